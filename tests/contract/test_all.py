"""Several locks as one: sorted, all or nothing, under one deadline."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, LockLost, Locks, NotAcquired, NotHeld, Unsupported
from tests.contract.conftest import NewLocks
from tests.support import EAGER, LONG, MOMENT, Threads, borrowed


def leases(locks: Locks, names: str) -> list[str]:
    return [name for name in names if locks.show(name).held]


def test_all_of_them(locks: Locks, others: Locks) -> None:
    together = locks.all(*(locks.lease(name, ttl=LONG) for name in "cab"))
    assert [lock.name for lock in together.locks] == ["a", "b", "c"]
    assert not together.held
    with together as entered:
        assert entered is together
        assert together.held
        assert leases(others, "abc") == ["a", "b", "c"]
    assert not together.held
    assert leases(others, "abc") == []
    assert together.acquire()
    together.release()


def test_or_none(locks: Locks, others: Locks) -> None:
    together = locks.all(*(locks.lease(name, ttl=LONG) for name in "cab"), wait=0)
    with others.lease("b", ttl=LONG):
        assert together.acquire() is False
        assert together.acquire(blocking=False) is False
        assert together.acquire(timeout=0.1) is False
        assert not together.held
        assert leases(others, "abc") == ["b"]
        with pytest.raises(NotAcquired, match="'b' was not acquired") as caught, together:
            raise AssertionError("not reached")
        assert caught.value.name == "b"
        assert leases(others, "abc") == ["b"]
    assert together.acquire()
    together.release()


def test_in_order_and_back(locks: Locks, others: Locks) -> None:
    """Taken in the order of the names: behind the first one nothing is taken; given back in
    reverse."""
    together = locks.all(*(locks.lease(name, ttl=LONG) for name in "cab"))
    order: list[str] = []
    for lock in together.locks:
        leave = lock._leave
        name = lock.name

        def noted(name: str = name, leave: object = leave) -> None:
            order.append(name)
            assert callable(leave)
            leave()

        lock._leave = noted  # type: ignore[method-assign]
    with together:
        pass
    assert order == ["c", "b", "a"]


def test_one_deadline(locks: Locks, others: Locks, threads: Threads) -> None:
    """The second one's wait is what the first one's has left of it."""
    first, second = others.lease("a", ttl=LONG), others.lease("b", ttl=LONG)
    assert first.acquire()
    assert second.acquire()
    together = locks.all(locks.lease("b", ttl=LONG), locks.lease("a", ttl=LONG), wait=3 * MOMENT)
    begun = threading.Event()

    def attempt() -> tuple[bool, float]:
        begun.set()
        start = time.monotonic()
        return together.acquire(), time.monotonic() - start

    attempting = threads.start(attempt)
    assert begun.wait(LONG)
    threading.Event().wait(MOMENT)
    threads.run(first.release)
    got, waited = attempting.result(LONG)
    assert got is False
    assert 3 * MOMENT <= waited < 3 * MOMENT + locks.timeouts.query / 2
    assert leases(others, "ab") == ["b"]
    second.release()


def test_opposite_orders(new_locks: NewLocks) -> None:
    pool, barrier = Threads(), threading.Barrier(2)
    together = 0

    def work(names: str) -> None:
        nonlocal together
        locks = new_locks(retry=EAGER)
        barrier.wait(LONG)
        for _ in range(100):
            with locks.all(*(locks.lease(name, ttl=LONG) for name in names), wait=LONG):
                seen = together
                together = seen + 1

    try:
        for names in ("ab", "ba"):
            pool.start(work, names)
        pool.join()
    finally:
        pool.close()
    assert together == 200


def test_row_locks_of_its_own(locks: Locks, others: Locks, threads: Threads) -> None:
    """More than one would be more than one writer."""
    if locks._database.dialect.traits.one_writer:
        with pytest.raises(Unsupported, match="take one row lock, or leases"):
            locks.all(locks.row("b"), locks.row("a"))
    else:
        together = locks.all(locks.row("b"), locks.row("a"))
        with together:
            assert together.held
            for name in "ab":
                assert not threads.run(others.row(name).acquire, blocking=False)
        assert not together.held
    for name in "ab":
        with others.row(name, wait=0):
            pass


def test_in_the_users_transaction(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    with others.lease("c", ttl=LONG), borrowed(engine, "session") as on:
        together = locks.all(*(locks.row(name, on=on) for name in "cab"), wait=0)
        assert together.acquire() is False  # those before it stay locked, as it is documented
        assert not threads.run(others.row("a").acquire, blocking=False)
        on.rollback()
        with others.row("a", wait=0):
            pass
    with borrowed(engine, "session") as on:
        with locks.all(locks.row("b", on=on), locks.row("a", on=on)):
            pass
        assert not threads.run(others.row("b").acquire, blocking=False)
        on.commit()
        with others.row("b", wait=0):
            pass


def test_both_kinds(locks: Locks, others: Locks, threads: Threads) -> None:
    if locks._database.dialect.traits.one_writer:
        with pytest.raises(Unsupported, match="a row lock locks everything"):
            locks.all(locks.row("b"), locks.lease("a", ttl=LONG))
        return
    with locks.all(locks.row("b"), locks.lease("a", ttl=LONG)):
        for name in "ab":
            assert not threads.run(others.lease(name).acquire, blocking=False)
            assert not threads.run(others.row(name).acquire, blocking=False)


def test_one_is_lost(locks: Locks, others: Locks) -> None:
    """The others are given back all the same, and the loss is told."""
    together = locks.all(*(locks.lease(name, ttl=LONG) for name in "abc"))
    with pytest.raises(LockLost) as caught, together:
        others.release("b", force=True)
    assert caught.value.name == "b"
    assert leases(others, "abc") == []

    @together
    def work() -> None:
        others.release("b", force=True)
        raise KeyError("of the body")

    with pytest.raises(KeyError) as failed:
        work()
    assert any("LockLost" in note for note in failed.value.__notes__)
    assert leases(others, "abc") == []


def test_one_waits_for_itself(locks: Locks, others: Locks) -> None:
    with locks.lease("b", ttl=LONG):
        together = locks.all(locks.lease("a", ttl=LONG), locks.lease("b", ttl=LONG))
        with pytest.raises(DeadlockDetected):
            together.acquire()
        assert leases(others, "ab") == ["b"]


def test_not_held(locks: Locks) -> None:
    with pytest.raises(NotHeld):
        locks.all(locks.lease("a")).release()


def test_wrong_arguments(locks: Locks) -> None:
    with pytest.raises(ValueError, match="at least one"):
        locks.all()
    with pytest.raises(ValueError, match="'a' is given twice"):
        locks.all(locks.lease("a"), locks.row("a"))
    with pytest.raises(TypeError, match="not str"):
        locks.all("a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        locks.all(locks.lease("a"), wait=-1)
    with pytest.raises(ValueError, match="non-blocking"):
        locks.all(locks.lease("a")).acquire(False, 1)
