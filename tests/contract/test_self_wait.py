"""A thread that would wait for itself is told at once; threads share what they may share."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import Attempt, DeadlockDetected, Lease, Locks, RetryPolicy, RowLock
from tests.support import EAGER, LONG, SHORT, Threads, borrowed, eventually
from tests.worlds.surface import Bridged


def make(locks: Locks, kind: str, retry: RetryPolicy | None = None) -> Lease | RowLock:
    if kind == "lease":
        return locks.lease("report", ttl=LONG, retry=retry)
    return locks.row("report", retry=retry)


kinds = pytest.mark.parametrize("second", ["lease", "row"])


@pytest.mark.parametrize("first", ["lease", "row"])
@kinds
def test_told_at_once(locks: Locks, first: str, second: str) -> None:
    naps: list[Attempt] = []
    again = make(locks, second, RetryPolicy(before_sleep=naps.append))
    with make(locks, first):
        start = time.monotonic()
        with pytest.raises(DeadlockDetected, match="would wait for itself") as caught:
            again.acquire()
        with pytest.raises(DeadlockDetected):
            again.acquire(timeout=LONG)
        with pytest.raises(DeadlockDetected), again:
            raise AssertionError("not reached")
        assert again.acquire(blocking=False) is False
        assert again.acquire(timeout=0) is False
        assert time.monotonic() - start < LONG / 2
    assert caught.value.name == "report"
    assert naps == []
    assert again.acquire()  # now that it is free
    again.release()


@pytest.mark.parametrize("on_what", ["session", "connection"])
@pytest.mark.parametrize("inner", [False, True])
def test_a_lock_that_went_with_its_savepoint(
    locks: Locks, engine: Engine, threads: Threads, on_what: str, inner: bool
) -> None:
    """PostgreSQL gives it back then. InnoDB keeps it, and SQLite the file, until the end."""
    again = locks.lease("report", ttl=LONG, wait=0)
    with borrowed(engine, on_what) as on:
        assert locks.row("before", on=on).acquire()
        savepoint = on.begin_nested()
        row, second = locks.row("report", on=on), locks.row("report", on=on)
        if inner:
            released = on.begin_nested()
            assert row.acquire()
            end(on, released.commit)
        else:
            assert row.acquire()
        assert second.acquire()
        assert row.held
        assert second.held
        with pytest.raises(DeadlockDetected):
            again.acquire(timeout=LONG)
        end(on, savepoint.rollback)
        if locks._database.dialect.traits.refusal_holds:
            assert row.held
            assert not threads.start(
                lambda: locks.lease("report", ttl=LONG).acquire(blocking=False)
            ).result(LONG)
            with pytest.raises(DeadlockDetected):
                again.acquire(timeout=LONG)
        else:
            assert not row.held
            assert not second.held
            with again:
                pass
        with pytest.raises(DeadlockDetected):
            locks.lease("before", ttl=LONG).acquire()
        on.rollback()
    with again:
        pass


def test_locks_in_many_savepoints_leave_nothing(locks: Locks, engine: Engine) -> None:
    """A connection may be used for days, and each of its transactions may have savepoints."""
    with borrowed(engine, "connection") as on:
        connection: Any = on.target.sync_connection if isinstance(on, Bridged) else on
        for _ in range(3):
            assert locks.row("before", on=on).acquire()
            for number in range(3):
                savepoint = on.begin_nested()
                assert locks.row(f"report {number}", on=on).acquire()
                end(on, savepoint.commit)
            root = weakref.ref(connection.get_transaction())
            del savepoint
            on.rollback()
            gc.collect()
            assert root() is None
        watching = list(connection.dispatch.rollback_savepoint)
        assert len(watching) == (0 if locks._database.dialect.traits.refusal_holds else 1)


def test_a_lock_from_before_a_savepoint_stays(locks: Locks, engine: Engine) -> None:
    with borrowed(engine, "connection") as on:
        assert locks.row("report", on=on).acquire()
        savepoint = on.begin_nested()
        assert locks.row("report", on=on).acquire()
        end(on, savepoint.rollback)
        with pytest.raises(DeadlockDetected):
            locks.lease("report", ttl=LONG).acquire()
        on.rollback()


def end(on: Any, how: Callable[[], None]) -> None:
    """End a savepoint, in whichever world."""
    on.run(how) if hasattr(on, "run") else how()


@kinds
def test_by_a_lock_in_the_users_transaction(locks: Locks, engine: Engine, second: str) -> None:
    again = make(locks, second)
    with borrowed(engine, "session") as on:
        assert locks.row("report", on=on).acquire()
        with pytest.raises(DeadlockDetected):
            again.acquire()
        assert again.acquire(blocking=False) is False
        with borrowed(engine, "connection") as another:
            with pytest.raises(DeadlockDetected):
                locks.row("report", on=another).acquire()
            assert locks.row("report", wait=0, on=another).acquire() is False
        on.commit()
        with again:
            pass
        assert locks.row("report", on=on).acquire()
        on.rollback()
        with again:
            pass


def test_a_row_lock_where_there_is_one_writer(locks: Locks, threads: Threads) -> None:
    """There a row lock is the lock of everything, so any other would be waited for in vain."""
    with locks.row("a"):
        if locks._database.dialect.traits.one_writer:
            for lock in (locks.lease("b"), locks.row("b")):
                with pytest.raises(DeadlockDetected, match="take leases before row locks"):
                    lock.acquire()
                assert lock.acquire(blocking=False) is False
        else:
            with locks.lease("b", wait=0), locks.row("c", wait=0):
                pass
    with locks.lease("b", ttl=LONG), locks.row("a", wait=LONG):
        pass


def test_what_has_lapsed_is_waited_for(locks: Locks) -> None:
    lapsed = locks.lease("report", ttl=SHORT, renew=False)
    assert lapsed.acquire()
    eventually(lambda: not lapsed.held)
    again = locks.lease("report", ttl=LONG)
    assert again.acquire(timeout=LONG)
    again.release()


@kinds
def test_what_another_thread_holds_is_waited_for(
    locks: Locks, threads: Threads, second: str
) -> None:
    first = locks.lease("report", ttl=LONG)
    assert threads.run(first.acquire)
    again = make(locks, second)
    assert again.acquire(timeout=0.1) is False
    threads.run(first.release)
    assert again.acquire(timeout=LONG)
    again.release()


@kinds
def test_one_thread_releases_what_another_acquired(
    locks: Locks, threads: Threads, second: str
) -> None:
    """As with threading.Lock; and then the first one has nothing to wait for."""
    lock = make(locks, second)
    assert lock.acquire()
    threads.run(lock.release)
    assert not lock.held
    assert lock.acquire(timeout=LONG)
    lock.release()


@kinds
def test_one_object_shared_by_threads(locks: Locks, second: str) -> None:
    workers, rounds = 8, 10
    lock, together = make(locks, second, EAGER), threading.Barrier(workers)
    count, inside, most = 0, 0, 0
    pool = Threads()

    def work() -> None:
        nonlocal count, inside, most
        inside += 1
        most = max(most, inside)
        seen = count
        time.sleep(0.001)
        count = seen + 1
        inside -= 1

    def worker() -> None:
        locked: Callable[[], None] = lock(work)
        together.wait(LONG)
        for _ in range(rounds):
            locked()

    try:
        for _ in range(workers):
            pool.start(worker)
        pool.join()
    finally:
        pool.close()
    assert (count, most) == (workers * rounds, 1)
    assert not lock.held
