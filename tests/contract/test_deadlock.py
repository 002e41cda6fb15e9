"""A cycle of waiters is found, whatever locks it goes over, and one of them is told (promise 3)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import pytest
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, Locks, Timeouts
from dblock.protocol import commands, deadlock
from dblock.protocol import waiters as seen_waiters
from dblock.protocol.steps import Execute
from tests.contract.conftest import NewLocks
from tests.support import LONG, SECONDS, Threads, borrowed, eventually, waiters
from tests.worlds.behind import run

Lock = AbstractContextManager[object]
Take = Callable[[Locks, str], Lock]


def lease(locks: Locks, name: str) -> Lock:
    return locks.lease(name, ttl=LONG, wait=SECONDS)


def row(locks: Locks, name: str) -> Lock:
    return locks.row(name, wait=SECONDS)


def told(lock: Lock) -> DeadlockDetected | None:
    """What is told of taking a lock; None when it was got."""
    try:
        with lock:
            return None
    except DeadlockDetected as error:
        return error


def hold_and_take(held: Lock, then: Callable[[], object], wanted: Lock) -> DeadlockDetected | None:
    with held:
        then()
        return told(wanted)


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that grows with each look for a cycle."""
    made, find = list[object](), deadlock.find_cycle

    def counted(*given: object) -> object:
        made.append(given)
        return find(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(seen_waiters, "find_cycle", counted)
    return made


@pytest.fixture
def times() -> dict[str, float]:
    """They look sooner than they do otherwise."""
    return {"visible_after": 0.05, "look": 0.1}


@pytest.mark.parametrize(
    "takes",
    [(lease, lease), (row, row), (lease, row), (lease, row, lease)],
    ids=["leases", "rows", "both", "three"],
)
def test_one_of_a_cycle_is_told(
    new_locks: NewLocks, engine: Engine, threads: Threads, takes: tuple[Take, ...]
) -> None:
    """Each flow is one of another program, holds one name, and waits for the next one's.

    It does not take the server to give its wait up first.
    """
    patient = Timeouts(query=SECONDS, socket=2 * SECONDS)
    programs = [new_locks(timeouts=patient) for _ in takes]
    if programs[0]._database.dialect.traits.one_writer:  # a row lock there waits for no other
        takes = tuple(lease for _ in takes)
    names = [f"name {number}" for number in range(len(takes))]
    all_hold = threading.Barrier(len(takes), timeout=SECONDS)
    ends = []
    for at, locks in enumerate(programs):
        after = (at + 1) % len(takes)
        held, wanted = takes[at](locks, names[at]), takes[after](locks, names[after])
        ends.append(threads.start(hold_and_take, held, all_hold.wait, wanted))
    (error,) = [error for end in ends if (error := end.result(SECONDS)) is not None]
    assert sorted(name for name, _ in error.cycle) == names
    assert error.name == error.cycle[0][0]
    for name, owner in error.cycle:
        assert repr(name) in str(error)
        assert "pid" in owner
    assert waiters(engine) == 0


def test_in_one_program(locks: Locks, threads: Threads) -> None:
    both_hold = threading.Barrier(2, timeout=SECONDS)
    ends = [
        threads.start(hold_and_take, lease(locks, one), both_hold.wait, lease(locks, other))
        for one, other in ("ab", "ba")
    ]
    assert sum(end.result(SECONDS) is not None for end in ends) == 1


def test_behind_others_of_the_program(locks: Locks, others: Locks, threads: Threads) -> None:
    """The first in a program's line holds nothing, one behind it does."""

    def seen(number: int) -> bool:
        return len(others.show("b").waiters) == number

    with lease(others, "b"):
        threads.start(told, lease(locks, "b"))
        eventually(partial(seen, 1))
        threads.start(hold_and_take, lease(locks, "a"), list, lease(locks, "b"))
        eventually(partial(seen, 2))
        assert told(lease(others, "a")) is not None
    threads.join()


def test_over_the_users_transactions(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    leased, both_hold = threading.Event(), threading.Barrier(2, timeout=SECONDS)

    def row_last() -> DeadlockDetected | None:
        with lease(others, "b"), borrowed(engine, "connection") as on:
            leased.set()
            both_hold.wait()
            return told(others.row("a", on=on, wait=SECONDS))

    last = threads.start(row_last)
    leased.wait(SECONDS)
    with borrowed(engine, "session") as on:
        first = hold_and_take(locks.row("a", on=on), both_hold.wait, lease(locks, "b"))
    assert (first is None) != (last.result(SECONDS) is None)


def test_a_holder_that_is_merely_slow(
    new_locks: NewLocks, threads: Threads, looks: list[object]
) -> None:
    """A chain is no cycle, nor is a lease that is taken once more."""
    first, second, third = new_locks(), new_locks(), new_locks()
    last = third.lease("c", ttl=LONG, reentrant=True)

    def seen(name: str) -> bool:
        return len(third.show(name).waiters) == 1

    with last:
        ends = []
        for locks, held, wanted in ((second, "b", "c"), (first, "a", "b")):
            ends += [threads.start(hold_and_take, lease(locks, held), list, lease(locks, wanted))]
            eventually(partial(seen, wanted))
        with last:
            before = len(looks)
            eventually(lambda: len(looks) >= before + 4)
    assert [end.result(SECONDS) for end in ends] == [None, None]


def test_what_a_waiter_is_said_to_hold(
    locks: Locks, others: Locks, threads: Threads, looks: list[object]
) -> None:
    """What one that is not there any more has left is not believed, and else it is."""

    def write(fence: int, lasts: float) -> None:
        """Write that one that holds "b" has waited for "a" since long ago."""
        command = commands.Register(
            "0" * 32,
            "a",
            strategy="lease",
            owner="x",
            waited=60,
            lasts=lasts,
            holds={"b": fence},
        )
        run(others, (step for step in (Execute(command),)))
        before = len(looks)
        eventually(lambda: len(looks) >= before + 2 or end.done())

    with others.lease("b", ttl=LONG) as there:
        end = threads.start(hold_and_take, lease(locks, "a"), list, lease(locks, "b"))
        eventually(lambda: bool(looks))
        write(there.fence, -1)
        write(there.fence - 1, LONG)
        assert not end.done()
        write(there.fence, LONG)
        assert end.result(SECONDS) is not None
