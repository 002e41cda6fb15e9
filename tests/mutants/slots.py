"""Mutants that break what is promised of semaphores."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS = "tests/contract/test_semaphore.py"

SLOTS = (
    Mutant(
        "a-held-slot-is-taken",
        "a semaphore has no more holders than slots",
        "postgresql.slots.SlotStatements._grant_slot",
        "WHERE lock_name = {slot} AND {self.anybodys}",
        "WHERE lock_name = {slot}",
        f"{TESTS}::test_no_more_than_the_limit[threads-postgresql]",
    ),
    Mutant(
        "a-plan-that-takes-several-slots",
        "a holder has one slot, whatever plan the server makes",
        "postgresql.slots.SlotStatements._grant_slot",
        "FROM mine WHERE l.ctid = mine.ctid",
        """FROM (
            SELECT free.ctid, free.epoch
            FROM generate_series(0, %(limit)s::int - 1) AS n, LATERAL (
                SELECT k.ctid, admitted.epoch FROM admitted, {self.lock_table} AS k
                WHERE lock_name = {slot} AND {self.anybodys} FOR UPDATE OF k SKIP LOCKED
            ) AS free LIMIT 1
        ) AS mine WHERE l.ctid = mine.ctid""",
        "tests/faults/test_semaphore.py::test_one_slot_is_taken_whatever_the_plan",
    ),
    Mutant(
        "a-held-slot-is-taken-on-sqlite",
        "a semaphore has no more holders than slots",
        "sqlite.slots.SlotStatements._grant_slot",
        "AND {self.anybodys} LIMIT 1",
        "LIMIT 1",
        f"{TESTS}::test_no_more_than_the_limit[threads-sqlite]",
    ),
    Mutant(
        "a-busy-slot-ends-the-search-on-mariadb",
        "a slot under a guard keeps nobody from the others",
        "mariadb.slots.SlotStatements._grant_slot",
        "IF taken AND ROW_COUNT() = 1 THEN",
        "IF ROW_COUNT() <> 7 THEN",
        f"{TESTS}::test_a_slot_under_a_guard_is_not_taken[threads-mariadb]",
    ),
    Mutant(
        "any-limit-will-do",
        "all who use a semaphore have the same limit",
        "dialects.slots.SlotStatements.admits",
        '= {self.parameter("value")}',
        "<> ''",
        f"{TESTS}::test_another_limit_is_refused[threads-sqlite]",
    ),
    Mutant(
        "the-turnstile-is-not-respected",
        "who comes later does not overtake who waits for a slot",
        "dialects.slots.SlotStatements.admits",
        "AND NOT {self.anybodys} AND (token",
        "AND false AND (token",
        f"{TESTS}::test_the_turnstile_is_a_name[threads-sqlite]",
    ),
    Mutant(
        "no-slot-is-made-beside-a-guarded-one",
        "a slot under a guard keeps nobody from the others",
        "protocol.slots.SlotAttempt._mend",
        "if rowless is not None:",
        "if rowless is not None and not self.seen.position.free:",
        f"{TESTS}::test_a_slot_under_a_guard_is_not_taken[threads-postgresql]",
    ),
    Mutant(
        "a-slot-that-was-found-has-no-name",
        "what became of a try for a slot is found out by its token",
        "protocol.slots.SlotAttempt._look",
        "self.request.name = self.name if mine is None else mine.name",
        "self.request.name = self.name",
        "tests/faults/test_semaphore.py::test_a_lost_reply_is_settled[postgresql-threads-Lose.REPLY]",
    ),
    Mutant(
        "an-interrupted-try-keeps-its-slot",
        "who is interrupted holds nothing",
        "semaphore.Semaphore._try_within",
        "self._lease._abandon(request, orphaned, [], attempt.find)",
        "self._lease._abandon(request, orphaned, [])",
        "tests/faults/test_semaphore.py::test_an_interrupted_try_gives_its_slot_back[sqlite]",
    ),
    Mutant(
        "the-turnstile-is-kept",
        "a wait that has ended is in nobody's way",
        "semaphore.Semaphore._wait",
        "waited.callback(turnstile.give_up)",
        "pass",
        f"{TESTS}::test_a_wait_that_ends_leaves_nothing[threads-sqlite]",
    ),
    Mutant(
        "a-thread-waits-for-its-own-slots",
        "a thread that would wait for itself is told",
        "semaphore.Semaphore._refuse_own_slots",
        "== self._limit:",
        "> self._limit:",
        f"{TESTS}::test_waiting_for_oneself[threads-sqlite]",
    ),
    Mutant(
        "a-limit-that-is-another-is-waited-with",
        "who waits for a slot is told when the limit becomes another",
        "protocol.slots.SlotAttempt._check_limit",
        "if stored is not None and stored != self.limit:",
        "if stored is not None and stored > self.limit:",
        f"{TESTS}::test_another_limit_is_refused[threads-sqlite]",
    ),
)
