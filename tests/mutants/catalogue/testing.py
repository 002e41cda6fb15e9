"""Mutants of what users test their locks with."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FAULTS = "tests/testing/test_faults.py"
TIME = "tests/testing/test_time.py"
INSTEAD_OF = "tests/testing/test_instead_of.py"

TESTING = (
    Mutant(
        "expired-and-not-told",
        "what a test does to a lock has been told when it is done",
        "Faults.expire",
        "self.advance(0)",
        "pass",
        f"{FAULTS}::test_a_loss_is_told_in_all_ways[expire]",
    ),
    Mutant(
        "guard-that-does-not-fail",
        "a test can have a guard fail",
        "StandIn.run",
        "self._process.wire.guard(name)",
        "pass",
        f"{FAULTS}::test_a_guard_that_fails",
    ),
    Mutant(
        "reply-not-lost",
        "a test can have a reply be lost",
        "Wired._over_the_wire",
        "self.wire.reply(loss)",
        "pass",
        f"{FAULTS}::test_an_outcome_that_stays_unknown",
    ),
    Mutant(
        "dead-waiter-that-cleans-up",
        "another process that dies does nothing any more",
        "process.Process.end",
        "self.wire.away = self.staff.dead = True",
        "self.staff.dead = True",
        f"{FAULTS}::test_another_dies_waiting",
    ),
    Mutant(
        "database-by-its-own-clock",
        "a test's time is the database's too",
        "Wired._timed",
        "query.sql.replace(\"'now'\", f\"'{self.store.clock.stamp()}'\")",
        "query.sql",
        f"{TIME}::test_time_moves_for_holder_and_database",
    ),
    Mutant(
        "time-leaps",
        "leases are renewed while a test's time goes by",
        "Clock.move",
        "while (moment := self._due(paused)) <= to:",
        "while (moment := self._due(paused)) <= self._now:",
        f"{TIME}::test_leases_are_renewed_as_time_goes_by",
    ),
    Mutant(
        "nobody-is-waited-for",
        "threads of a test wait for one another",
        "process.Process.alone",
        "return not (",
        "return True or (",
        f"{TIME}::test_threads_wait_for_one_another",
    ),
    Mutant(
        "row-let-go-with-its-statement",
        "a row lock in the user's transaction lasts as long as that",
        "StandIn.run",
        "store.rows[name] = root",
        "pass",
        f"{INSTEAD_OF}::test_row_locks_in_transactions",
    ),
    Mutant(
        "handles-left-behind",
        "handles that were made before are in the test's database too",
        "standing_in.stand_in",
        "end = database.stand_in(made)",
        "locks._database, end = made, lambda: None",
        f"{INSTEAD_OF}::test_what_was_made_before_comes_along",
    ),
    Mutant(
        "held-leases-swept-along",
        "a lease that is held for real stays where it is",
        "standing_in._refuse_held",
        "if held:",
        "if False:",
        f"{INSTEAD_OF}::test_what_is_held_stays_where_it_is",
    ),
)
