"""Mutants of where a lock is (promise 21)."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

TESTS = "tests/contract/test_whereabouts.py"
REFUSED = f"{TESTS}::test_a_transaction_in_another_database_is_refused"
PLANTED = (
    "tests/databases/test_planted_functions.py"
    "::test_no_statement_runs_what_another_role_has_planted"
)
COPY = f"{TESTS}::test_a_copy_of_the_whole_database_is_another_one"

PLACES = (
    Mutant(
        "any-tables-will-do",
        "a transaction of another database is refused",
        "Dialect._is_here",
        'where = " AND ".join(conditions)',
        'where = "1 = 1"',
        f"{REFUSED}[threads-postgresql-known-row]",
        beyond=reasons.TWO_DATABASES,
    ),
    Mutant(
        "any-tables-will-do-for-a-guard",
        "a transaction of another server is refused",
        "mariadb.row.RowStatements.guard",
        "WHERE lock_name = {EXACT} AND {self.here_now}",
        "WHERE lock_name = {EXACT}",
        f"{REFUSED}[threads-mariadb-known-guard]",
        beyond=reasons.TWO_DATABASES,
    ),
    Mutant(
        "copies-are-the-same",
        "a copy of a database is another one",
        "Dialect._is_here",
        "if what in self.found:",
        "if False:",
        f"{COPY}[threads-sqlite]",
        beyond=reasons.TWO_DATABASES,
    ),
    Mutant(
        "restored-dumps-are-the-same",
        "and so is one that was restored from a dump",
        "Dialect._is_here",
        'for what in ("container", "writer"):',
        "for what in ():",
        f"{COPY}[threads-postgresql]",
        beyond=reasons.TWO_DATABASES,
    ),
    Mutant(
        "where-the-session-is",
        "no search_path leads elsewhere",
        "Dialect.settle",
        "made._name_tables()",
        "pass",
        f"{TESTS}::test_no_search_path_leads_elsewhere[threads-postgresql]",
        beyond=reasons.TWO_DATABASES,
    ),
    Mutant(
        "refused-for-ever",
        "who is in another database is told so",
        "row_lock._try_borrowed",
        "if not (tried.locked or tried.here or tries.placed):",
        "if False:",
        f"{REFUSED}[threads-sqlite-fresh-row]",
        beyond=reasons.TWO_DATABASES,
    ),
    Mutant(
        "snapshot-before-the-wait",
        "under REPEATABLE READ a row lock shows what was committed while it was waited for",
        "Tables._name_tables",
        'self._is_here(f"{self.locking} NOWAIT")',
        "self._is_here()",
        "tests/contract/test_guard.py::"
        "test_a_takeover_waits_for_the_guarded_transaction[threads-mariadb]",
        beyond="what a plain look of the user's shows after a wait",
    ),
    Mutant(
        "any-function-will-do",
        "no function that another role planted is run",
        "postgresql.queue.QUEUE",
        "pg_catalog.unnest",
        "unnest",
        f"{PLANTED}[Cursor]",
        beyond="functions that another role planted, which no simulated server has",
    ),
    Mutant(
        "any-operator-will-do",
        "and no operator",
        "postgresql.queue.Entry.of",
        "::float8 / 1000::float8",
        "::float8 / 1000",
        f"{PLANTED}[Cursor]",
        beyond="operators that another role planted, which no simulated server has",
    ),
)
