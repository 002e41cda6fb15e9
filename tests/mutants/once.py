"""Mutants that break what is promised of calls that are made once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS = "tests/contract/test_once.py"

HTTP = "tests/contrib/test_idempotency.py"
ONE_EFFECT = "a key has one effect, whoever comes with it"

SAVEPOINT = "tests/contract/test_savepoint.py"
UNDONE = "what is done in a savepoint is undone with the transaction around it"

ONCE = (
    Mutant(
        "a-savepoint-begins-the-transaction",
        UNDONE,
        "sqlalchemy_transaction._begin_before_savepoints",
        'connection.exec_driver_sql("BEGIN")',
        "pass",
        f"{SAVEPOINT}::test_a_call_first_in_a_savepoint[threads-sqlite-session]",
    ),
    Mutant(
        "a-savepoint-that-may-have-begun-the-transaction-is-used",
        UNDONE,
        "SQLite3.savepoint_problem",
        "return SAVEPOINT if _mode(plain) == _LEGACY else None",
        "return None",
        f"{SAVEPOINT}::test_a_savepoint_that_may_have_begun_the_transaction_is_refused"
        "[threads-sqlite-connection-None]",
    ),
    Mutant(
        "a-transaction-that-has-begun-is-forgotten",
        "a savepoint is no hindrance in a transaction that has begun before it",
        "_PerConnection.note_begun",
        "self.begun = ref(root)",
        "pass",
        f"{SAVEPOINT}::test_on_a_connection_that_has_begun[threads-sqlite]",
    ),
    Mutant(
        "a-repetition-is-the-first",
        ONE_EFFECT,
        "protocol.once._judge",
        "if record.token == token:",
        "if record.token:",
        f"{TESTS}::test_once[threads-sqlite-connection]",
    ),
    *(
        Mutant(
            f"a-key-is-new-again-on-{kind}",
            ONE_EFFECT,
            f"{kind}.row.RowStatements.claim_once",
            old,
            new,
            f"{TESTS}::test_a_second_call_waits_for_the_result[threads-{kind}]",
        )
        for kind, old, new in (
            ("postgresql", "WHERE o.expires_at <= clock_timestamp()", "WHERE true"),
            ("mariadb", "IF(expires_at <= UTC_TIMESTAMP(6),", "IF(true,"),
            ("sqlite", "CASE WHEN o.expires_at <= {NOW} THEN", "CASE WHEN true THEN"),
        )
    ),
    Mutant(
        "a-repetition-has-another-result",
        "a repetition gets the result of the call that was made",
        "once.Once._finish",
        "once.finish(database.dialect, self.key, self._token, recorded)",
        'once.finish(database.dialect, self.key, self._token, "0")',
        f"{TESTS}::test_once[threads-sqlite-connection]",
    ),
    Mutant(
        "a-repetition-has-no-result",
        "a repetition gets the result of the call that was made",
        "once.Once.__enter__",
        "json.loads(recorded)",
        "None",
        f"{TESTS}::test_once[threads-sqlite-connection]",
    ),
    Mutant(
        "a-call-that-was-made-is-forgotten",
        ONE_EFFECT,
        "once.Once.__exit__",
        "if kind is not None:",
        "if True:",
        f"{TESTS}::test_once[threads-sqlite-connection]",
    ),
    Mutant(
        "a-call-in-progress-was-made",
        "nobody is told of a call that is not committed",
        "protocol.once.claim",
        "raise _in_progress(dialect, key, wait) from failure.__cause__",
        'return "0"',
        f"{TESTS}::test_in_progress[threads-postgresql-0]",
    ),
    Mutant(
        "a-record-outlives-a-rollback",
        "after a rollback nothing is on record",
        "once.Once.__enter__",
        "if recorded is not None:",
        "transaction.driver_connection.commit()\nif recorded is not None:",
        f"{TESTS}::test_a_rollback_leaves_nothing[threads-sqlite]",
    ),
    Mutant(
        "a-call-that-may-wait-is-undone",
        "the record of a call commits with its effect",
        "protocol.once._bounded",
        "query.read(reply) is not None",
        "False",
        f"{TESTS}::test_once[threads-postgresql-connection]",
    ),
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
