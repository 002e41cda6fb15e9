"""Mutants that break what is promised of calls that are made once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS = "tests/contract/test_once.py"

HTTP = "tests/contrib/test_idempotency.py"

ONCE = (
    Mutant(
        "a-failed-call-keeps-its-key",
        "a call that raised is not on record, even if its transaction is committed",
        "once.Once._forget",
        "if self._active:",
        "if False:",
        f"{TESTS}::test_an_error_leaves_no_key[threads-sqlite]",
    ),
    Mutant(
        "a-call-ends-in-another-transaction",
        "the key and the effect are one transaction",
        "once.Once._finish",
        "if not self._active:",
        "if False:",
        f"{TESTS}::test_a_transaction_that_ends_inside[threads-postgresql]",
    ),
    Mutant(
        "another-payload-is-a-repetition",
        "a key that belongs to another payload is refused",
        "protocol.once._judge",
        "fingerprint != record.fingerprint",
        "fingerprint == record.token",
        f"{TESTS}::test_fingerprints[threads-sqlite]",
    ),
    Mutant(
        "a-call-without-a-result-is-replayed",
        "nobody gets the result of a call that has not ended",
        "protocol.once._judge",
        "if record.result is None:",
        "if False:",
        f"{TESTS}::test_inside_itself[threads-sqlite]",
    ),
    Mutant(
        "a-key-that-was-taken-over-is-pruned",
        "a call that is on record stays so for as long as it is kept",
        "runs.RunStatements._prune",
        "DELETE FROM {table} WHERE {old} AND ({key}) IN",
        "DELETE FROM {table} WHERE ({key}) IN",
        f"{TESTS}::test_a_key_that_is_taken_over_is_not_pruned[threads-postgresql]",
    ),
    Mutant(
        "an-expired-key-keeps-its-result",
        "a key that is kept no longer counts as new",
        "postgresql.row.RowStatements.claim_once",
        "WHERE o.expires_at <= clock_timestamp()",
        "WHERE false",
        f"{TESTS}::test_expired_keys_are_new[threads-postgresql]",
    ),
    Mutant(
        "callers-share-keys",
        "nobody gets another caller's response",
        "Rules.call",
        "[method, path, caller, key]",
        "[method, path, key]",
        f"{HTTP}::test_callers_share_no_keys[django-postgresql]",
    ),
    Mutant(
        "failures-are-recorded",
        "a request that failed can be repeated with its key",
        "Rules.record",
        "status < 500 and status not in TRY_AGAIN",
        "True",
        f"{HTTP}::test_what_fails_is_not_recorded[flask-sqlite]",
    ),
    Mutant(
        "another-body-is-the-same",
        "a key of another request is refused",
        "Rules.call",
        'b"\\n" + given',
        'b"\\n"',
        f"{HTTP}::test_another_request_with_the_key[starlette-sqlite]",
    ),
    Mutant(
        "cookies-are-recorded",
        "no session's cookie is on record",
        "Answer.recorded",
        "name.lower() not in _OF_ONE_ANSWER",
        "True",
        f"{HTTP}::test_it_runs_once[django-sqlite]",
    ),
    Mutant(
        "refusal-of-the-views-own-call",
        "an error of the view is not told as one of its request",
        "Call.refusal",
        "self.key is None or error.name != self.key",
        "False",
        "tests/contrib/django/test_idempotency.py::test_a_call_of_its_own[postgresql]",
    ),
    Mutant(
        "flask-record-without-commit",
        "what a view did is committed with its record",
        "flask.idempotency._transaction",
        "session.commit()",
        "pass",
        f"{HTTP}::test_it_runs_once[flask-sqlite]",
    ),
    Mutant(
        "starlette-record-without-commit",
        "what an endpoint did is committed with its record",
        "starlette._transaction",
        "await session.commit()",
        "pass",
        f"{HTTP}::test_it_runs_once[starlette-sqlite]",
    ),
    Mutant(
        "django-record-without-a-block",
        "what a view did is rolled back with its record",
        "django.idempotency.decorator",
        "raise Unrecorded(response)",
        "return response",
        f"{HTTP}::test_what_fails_is_not_recorded[django-sqlite]",
    ),
)
