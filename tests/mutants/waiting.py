"""Mutants of waiting (promise 10)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PG, WAITING = "dblock/dialects/postgresql.py", "dblock/waiting.py"
ACQUIRING = "dblock/protocol/acquiring.py"
QUEUE = "tests/waiting/test_queue.py"
WOKEN = "who waits is called by the database"

CALLS = (
    Mutant(
        "nobody-is-called",
        WOKEN,
        PG,
        'RETURNING {_CALL}, {_LAZY}""",\n            {"name": name, "token": token},',
        'RETURNING {_LAZY}""",\n            {"name": name, "token": token},',
        f"{QUEUE}::test_no_call_is_lost",
    ),
    Mutant(
        "the-dead-are-called",
        "a waiter that died is passed over",
        PG,
        "waiters = {_ALIVE}",
        "waiters = l.waiters",
        f"{QUEUE}::test_a_waiter_that_died_is_passed_over",
    ),
    Mutant(
        "overtaking",
        "nobody overtakes who waits",
        PG,
        "AND {_turn(_LAST)} FOR UPDATE",
        "AND {_turn('0')} FOR UPDATE",
        f"{QUEUE}::test_nobody_overtakes",
    ),
    Mutant(
        "last-in-first-out",
        "waiters are served in the order of arrival",
        PG,
        "array_append(l.waiters, %(ticket)s)",
        "array_prepend(%(ticket)s, l.waiters)",
        f"{QUEUE}::test_a_release_calls_the_next_in_the_order_of_arrival",
    ),
    Mutant(
        "gives-up-and-stays",
        "a waiter that gives up leaves no trace",
        ACQUIRING,
        "            yield from leave(dialect, claim.name, tries.ticket)\n",
        "",
        f"{QUEUE}::test_who_gives_up_leaves_no_trace_and_takes_no_call_along",
    ),
    Mutant(
        "a-lost-listener-goes-unnoticed",
        WOKEN,
        WAITING,
        "call.over = True",
        "pass",
        f"{QUEUE}::test_a_listener_that_is_lost_is_replaced",
    ),
    Mutant(
        "every-thread-for-itself",
        "many waiters of one process cost one",
        WAITING,
        "if line[0] is mine:",
        "if True:",
        f"{QUEUE}::test_many_threads_cost_one_waiter",
    ),
)
