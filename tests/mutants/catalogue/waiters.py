"""Mutants of who waits, and of deadlocks (promise 3)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

VICTIMS = "tests/protocol/test_deadlock.py"
CYCLES = "tests/contract/test_deadlock.py"
SEEN = "tests/contract/test_waiters.py"
ONE = "one of a cycle of waiters is told"
TRUE = "nobody is told who does not wait for itself"
TRACE = "a waiter leaves no trace"

WAITERS = (
    Mutant(
        "nobody-is-the-victim",
        ONE,
        "deadlock.find_cycle",
        "if _came(one) < _came(last)",
        "if _came(one) > _came(last) and False",
        f"{CYCLES}::test_one_of_a_cycle_is_told[threads-sqlite-leases]",
        dies_in="sqlite both-orders:",
    ),
    Mutant(
        "all-are-victims",
        ONE,
        "deadlock.find_cycle",
        "if _came(one) < _came(last)",
        "if one.id != victim",
        f"{VICTIMS}::test_each_cycle_has_one_victim",
        dies_in="sqlite both-orders:",
    ),
    Mutant(
        "a-hold-of-earlier-is-believed",
        TRUE,
        "deadlock._keeps",
        "waiter.name in holder.holds and holder.holds[waiter.name] == waiter.fence",
        "waiter.name in holder.holds",
        f"{CYCLES}::test_what_a_waiter_is_said_to_hold[threads-sqlite]",
        dies_in="model of-before:",
    ),
    Mutant(
        "the-expired-are-believed",
        TRUE,
        "WaiterStatements.blocked",
        'WHERE w.holds IS NOT NULL AND {self._lasts("w")}',
        "WHERE w.holds IS NOT NULL",
        f"{CYCLES}::test_what_a_waiter_is_said_to_hold[threads-sqlite]",
        dies_in="postgresql dead-wait:",
    ),
    Mutant(
        "who-holds-hides-behind-others",
        ONE,
        "Waiter.note",
        "if not holds and not self._stands_out and not self._is_seen():",
        "if not self._stands_out and not self._is_seen():",
        f"{CYCLES}::test_behind_others_of_the_program[threads-sqlite]",
        dies_in="sqlite behind-others:",
    ),
    Mutant(
        "no-look-during-a-row-locks-wait",
        ONE,
        "_Attempts.chunk",
        "longest.append(self.waiter.piece(self.exchange.left, self.exchange.now))",
        "",
        f"{CYCLES}::test_one_of_a_cycle_is_told[threads-postgresql-rows]",
        dies_in="model row-in-both-orders: b.list_blocked#1!promote:1",
    ),
    Mutant(
        "a-waiters-row-stays",
        TRACE,
        "Waiter.leave",
        "yield Execute(command)",
        "pass",
        f"{SEEN}::test_who_waits_is_shown[threads-sqlite-lease]",
        dies_in="sqlite given-back-while-renewed:",
    ),
    Mutant(
        "an-interrupted-waiters-row-stays",
        TRACE,
        "Taking.abandon",
        "database.withdraw(self.waiter)",
        "pass",
        f"{SEEN}::test_an_interrupted_wait_leaves_no_trace[threads-sqlite-lease]",
        dies_in="model dropped-handle: b.sweep#1!interrupt",
    ),
    Mutant(
        "the-killed-stay",
        TRACE,
        "Waiter._write",
        "reply = yield Execute(Sweep())",
        "pass",
        f"{SEEN}::test_what_the_killed_left_goes_with_time[threads-sqlite]",
        dies_in="sqlite killed-waiters:",
    ),
    Mutant(
        "each-of-a-process-writes",
        "many waiters of one process cost one",
        "Waiter._is_seen",
        "self.caller.seen.setdefault(key, self) is not self",
        "False",
        f"{SEEN}::test_one_of_a_program_is_shown_after_the_other[threads-sqlite-lease]",
        dies_in="sqlite threads-waiting-long:",
    ),
    Mutant(
        "written-at-once",
        "a wait that is short costs nothing",
        "Waiter.note",
        "if now < self.next:",
        "if False:",
        f"{SEEN}::test_a_short_wait_writes_nothing[threads-sqlite-lease]",
        dies_in="model anothers:",
    ),
)
