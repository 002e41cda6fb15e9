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
        "a-slot-of-before-is-taken-from-its-holder",
        "a semaphore has no more holders than slots",
        "postgresql.slots.SlotStatements._grant_known_slot",
        "AND {FREE} AND",
        "AND",
        f"{TESTS}::test_a_slot_of_before_that_another_has[threads-postgresql]",
    ),
    Mutant(
        "a-slot-of-before-is-taken-from-its-holder-on-mariadb",
        "a semaphore has no more holders than slots",
        "mariadb.slots.SlotStatements._grant_known_slot",
        "{self.anybodys} AND {self.admits}",
        "{self.admits}",
        f"{TESTS}::test_a_slot_of_before_that_another_has[threads-mariadb]",
    ),
    Mutant(
        "a-slot-of-before-is-taken-from-its-holder-on-sqlite",
        "a semaphore has no more holders than slots",
        "sqlite.slots.SlotStatements._grant_known_slot",
        "lock_name = :slot AND {self.anybodys}",
        "lock_name = :slot",
        f"{TESTS}::test_a_slot_of_before_that_another_has[threads-sqlite]",
    ),
    Mutant(
        "a-slot-of-before-is-taken-from-who-waits",
        "who comes later does not overtake who waits for a slot",
        "postgresql.slots.SlotStatements._grant_known_slot",
        "AND {self.admits}",
        "",
        f"{TESTS}::test_a_slot_of_before_is_not_taken_from_who_waits[threads-postgresql]",
    ),
    Mutant(
        "a-slot-of-before-whatever-the-limit-on-mariadb",
        "all who use a semaphore have the same limit",
        "mariadb.slots.SlotStatements._grant_known_slot",
        "{self.anybodys} AND {self.admits}",
        "{self.anybodys}",
        f"{TESTS}::test_a_slot_of_before_is_not_above_the_limit[threads-mariadb]",
    ),
    Mutant(
        "a-slot-of-before-above-the-limit",
        "a semaphore has no more holders than slots",
        "names.FreedSlots.pop",
        "if number <= limit:",
        "if True:",
        f"{TESTS}::test_a_slot_of_before_may_be_no_slot_any_more[threads-sqlite]",
    ),
    Mutant(
        "a-slot-of-before-overtakes-its-waiters",
        "nobody overtakes who waits",
        "postgresql.slots.SlotStatements._grant_known_slot",
        "waiters IS NULL AND ",
        "",
        "tests/waiting/test_queue.py::test_nobody_overtakes_who_waits_for_a_slot_by_its_name",
    ),
    Mutant(
        "a-busy-slot-of-before-is-the-only-try",
        "a slot under a guard keeps nobody from the others",
        "protocol.slots.SlotAttempt._ask",
        "if failure.fault not in UNDONE:",
        "if failure.fault is not None:",
        f"{TESTS}::test_a_slot_of_before_under_a_guard_is_not_taken[threads-mariadb]",
    ),
    Mutant(
        "a-slot-of-before-without-its-fence-is-refused",
        "a holder has one slot, whatever its statement was told",
        "protocol.slots.SlotAttempt._ask",
        "reply.matched > 0 or query.read",
        "query.read",
        "tests/waiting/test_server_wait_grant.py::"
        "test_what_a_trigger_of_the_users_tells_is_no_fence_of_a_slot",
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
        "dialects.slots.SlotStatements.keeps_out",
        "NOT {self.anybodys} AND (token",
        "false AND (token",
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
