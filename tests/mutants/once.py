"""Mutants that break what is promised of calls that are made once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS = "tests/contract/test_once.py"

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
        "once.Once.__exit__",
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
)
