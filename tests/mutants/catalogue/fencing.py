"""Mutants of the gate for fences in other databases."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS = "tests/contract/test_fencing.py"
STALE = f"{TESTS}::test_no_fence_after_a_larger_one[threads-{{}}-connection]"
NO_STALE_WRITE = "a gate lets no fence through after a larger one"

FENCING = (
    Mutant(
        "a-gate-is-open",
        NO_STALE_WRITE,
        "fencing.pass_through",
        "if newest > fence:",
        "if False:",
        STALE.format("sqlite"),
        dies_in="sqlite gate:",
    ),
    Mutant(
        "a-gate-refuses-its-own-fence",
        "the same fence may come again",
        "fencing.pass_through",
        "if newest > fence:",
        "if newest >= fence:",
        STALE.format("sqlite"),
        dies_in="sqlite gate:",
    ),
    Mutant(
        "a-gate-forgets-on-postgresql",
        NO_STALE_WRITE,
        "postgresql.row.RowStatements.gate",
        "greatest(seen.fence, excluded.fence)",
        "excluded.fence",
        STALE.format("postgresql"),
        dies_in="postgresql gate:",
    ),
    Mutant(
        "a-gate-forgets-on-mariadb",
        NO_STALE_WRITE,
        "mariadb.row.RowStatements.gate",
        "GREATEST(fence, VALUES(fence))",
        "VALUES(fence)",
        STALE.format("mariadb"),
        dies_in="mariadb gate:",
    ),
    Mutant(
        "a-gate-forgets-on-sqlite",
        NO_STALE_WRITE,
        "sqlite.row.RowStatements.gate",
        "max(fence, excluded.fence)",
        "excluded.fence",
        STALE.format("sqlite"),
        dies_in="sqlite gate:",
    ),
    Mutant(
        "a-gate-that-nobody-waits-at",
        "one transaction at a time passes a gate, also with a fence that was there before",
        "mariadb.row.RowStatements.gate",
        "VALUES ({EXACT}, %(fence)s)",
        "VALUES (CONCAT({EXACT}, UUID()), %(fence)s)",
        f"{TESTS}::test_a_fence_that_comes_again_keeps_others_out[threads-mariadb]",
        dies_in="mariadb gate:",
    ),
    Mutant(
        "a-gates-names-look-alike",
        "the names of gates are exact",
        "fencing.table",
        'Column("name", NAME,',
        'Column("name", __import__("sqlalchemy").String(255),',
        f"{TESTS}::test_each_name_has_its_own[threads-mariadb]",
    ),
    Mutant(
        "a-gate-in-autocommit",
        "nothing is let through where nothing stays locked",
        "fencing._borrow",
        "borrow(on, dialect, _RUNTIME)",
        "borrow(on, dialect, _RUNTIME, locking=False)",
        f"{TESTS}::test_nothing_stays_locked_in_autocommit[threads-mariadb]",
    ),
    Mutant(
        "a-look-alike-has-a-gate",
        "a server that only looks like the real one is refused by name",
        "fencing._borrow",
        "transaction.recognise()",
        "pass",
        "tests/databases/test_look_alikes.py::test_a_gate[postgresql]",
    ),
)
