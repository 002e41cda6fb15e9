"""Taking a lease again while holding it: only where asked for, counted, for one thread."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, Locks, NotHeld
from tests.support import LONG, SHORT, Threads, eventually, lock_row


def test_counted(locks: Locks, others: Locks, engine: Engine) -> None:
    lease = locks.lease("report", ttl=LONG, reentrant=True)
    with lease:
        row = lock_row(engine, locks, "report")
        with lease:
            assert lease.acquire(blocking=False)
            assert lease.acquire(timeout=0)
            assert lock_row(engine, locks, "report") == row
            lease.release()
            lease.release()
        assert lease.held
        assert lock_row(engine, locks, "report") == row
        assert not others.lease("report").acquire(blocking=False)
    assert not lease.held
    with pytest.raises(NotHeld):
        lease.release()
    with others.lease("report", wait=0):
        pass


def test_without_touching_the_database(locks: Locks) -> None:
    lease = locks.lease("report", ttl=LONG, reentrant=True)
    assert lease.acquire()
    locks.close()  # from now on it could not
    assert lease.acquire()
    lease.release()
    assert lease.held
    with pytest.raises(ValueError, match="closed"):
        lease.release()


def test_a_recursive_function(locks: Locks) -> None:
    @locks.lease("report", ttl=LONG, reentrant=True)
    def factorial(n: int) -> int:
        return n * factorial(n - 1) if n else 1

    assert factorial(5) == 120
    assert not locks.lease("report").locked()


def test_only_where_asked_for(locks: Locks) -> None:
    lease = locks.lease("report", ttl=LONG)
    with lease:
        with pytest.raises(DeadlockDetected, match="reentrant=True"):
            lease.acquire()
        assert not lease.acquire(blocking=False)
        assert lease.held


def test_for_the_thread_that_holds_it(locks: Locks, threads: Threads) -> None:
    lease = locks.lease("report", ttl=LONG, reentrant=True)
    with lease:
        assert not threads.run(lease.acquire, blocking=False)
        waiting = threads.start(lease.acquire)
        threading.Event().wait(0.1)
        assert not waiting.done()
    assert waiting.result(LONG)
    with pytest.raises(NotHeld):  # it is not this thread's any more
        lease.release()
    threads.run(lease.release)
    assert not lease.locked()


def test_through_the_same_object(locks: Locks) -> None:
    with locks.lease("report", ttl=LONG, reentrant=True):
        another = locks.lease("report", ttl=LONG, reentrant=True)
        with pytest.raises(DeadlockDetected):
            another.acquire()
        assert not another.acquire(blocking=False)


def test_what_has_lapsed_is_not_entered_again(locks: Locks) -> None:
    lease = locks.lease("report", ttl=SHORT, renew=False, reentrant=True)
    assert lease.acquire()
    fence = lease.fence
    eventually(lambda: not lease.held)
    assert lease.acquire(timeout=LONG)
    assert lease.fence == fence + 1


def test_a_thread_leaves_nothing_to_the_next(locks: Locks) -> None:
    """Python gives the identity of an ended thread to a new one."""
    lease = locks.lease("report", ttl=LONG, reentrant=True)
    got: list[tuple[int, bool]] = []

    def work() -> None:
        got.append((threading.get_ident(), lease.acquire(blocking=False)))

    for _ in range(5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [held for _, held in got] == [True, False, False, False, False]
    assert len({ident for ident, _ in got}) < 5, "no identity was used again: nothing was tested"
