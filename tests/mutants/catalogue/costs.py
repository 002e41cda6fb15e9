"""Mutants of what a statement costs the database."""

from __future__ import annotations

from tests.mutants import reasons
from tests.mutants.mutant import Mutant

PLANTED = "tests/faults/test_planted.py"
COSTS = "tests/faults/test_round_trips.py"

COST = (
    Mutant(
        "refused-try-writes",
        "a refused try writes nothing",
        "postgresql.lease.LeaseStatements.grant_any",
        "WHERE NOT EXISTS (TABLE taken)\n"
        "    AND NOT EXISTS (SELECT FROM {self.lock_table} WHERE lock_name = %(name)s)\n"
        "ON CONFLICT (lock_name) DO NOTHING",
        "ON CONFLICT (lock_name) DO UPDATE SET owner = excluded.owner WHERE false",
        f"{COSTS}::test_a_refused_try_writes_nothing_on_postgresql[lease]",
        dies_in="postgresql nights:",
    ),
    Mutant(
        "release-waits-for-the-disk",
        "a pair of acquire and release is one sync",
        "postgresql.lease.LeaseStatements.release",
        "RETURNING {LAZY}",
        "RETURNING 1",
        f"{COSTS}::test_a_pair_of_acquire_and_release_is_one_sync",
        beyond=reasons.COST,
    ),
    Mutant(
        "a-newer-row-is-not-seen",
        "a free name is granted",
        "Attempt._mend",
        "return (position.free or out) and",
        "return out and",
        f"{PLANTED}::test_a_try_that_finds_a_newer_row_than_it_has_read_is_granted",
        dies_in="model killed-waiters:",
    ),
    Mutant(
        "release-reads-the-whole-table",
        "a lease costs the same among many",
        "postgresql.lease.LeaseStatements.release",
        "WHERE lock_name = %(name)s",
        "WHERE lock_name || '' = %(name)s",
        f"{COSTS}::test_no_statement_of_one_name_reads_the_whole_table",
        beyond=reasons.COST,
    ),
)
