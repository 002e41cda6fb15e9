"""Time stands still unless it is moved; who waits for a thread of the test's waits for that."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta

import pytest

from dblock import LockLost, Locks, NotAcquired
from dblock.handles.base import Handle
from dblock.testing import Faults
from tests.support import ROUNDING, Threads, eventually


def test_time_stands_still(dblock_locks: Locks) -> None:
    with dblock_locks.lease("report", ttl=0.1, renew=False) as lease:
        remaining = lease.remaining
        time.sleep(0.3)
        assert lease.remaining == remaining
        assert lease.held


def test_time_moves_for_holder_and_database(dblock_locks: Locks, dblock_faults: Faults) -> None:
    lease = dblock_locks.lease("report", ttl=30, renew=False)
    lease.acquire()
    before = dblock_locks.show("report")
    dblock_faults.advance(26)
    after = dblock_locks.show("report")
    assert lease.remaining == pytest.approx(1, abs=0.01)
    assert before.remaining is not None
    assert before.remaining - (after.remaining or 0) == pytest.approx(26, abs=0.01)
    dblock_faults.advance(2)
    assert not lease.held
    assert dblock_locks.show("report").held  # the holder stops before
    dblock_faults.advance(3)
    assert not dblock_locks.show("report").held


def test_leases_are_renewed_as_time_goes_by(dblock_locks: Locks, dblock_faults: Faults) -> None:
    with dblock_locks.lease("report", ttl=30) as lease:
        expires = dblock_locks.show("report").expires_at
        dblock_faults.advance(timedelta(hours=1).total_seconds())
        assert lease.held
        renewed = dblock_locks.show("report").expires_at
        assert None not in (expires, renewed)
        assert renewed - expires > timedelta(minutes=59)  # type: ignore[operator]


def test_a_paused_process(dblock_locks: Locks, dblock_faults: Faults) -> None:
    dangers: list[object] = []
    lease = dblock_locks.lease("report", ttl=30, on_danger=dangers.append)
    lease.acquire()
    another = dblock_faults.wanted_by_another("report")
    dblock_faults.pause(20)  # it wakes up in time
    assert len(dangers) == 1
    dblock_faults.advance(60)
    assert lease.held
    dblock_faults.pause(60)
    assert not lease.held
    assert another.held
    assert len(dangers) == 1
    with pytest.raises(LockLost, match="expired"):
        lease.release()


def test_a_wait_takes_no_time(dblock_locks: Locks, dblock_faults: Faults) -> None:
    start = time.monotonic()
    dblock_faults.held_by_another("report")
    with pytest.raises(NotAcquired, match="within 300 s"):
        dblock_locks.lease("report", wait=300).__enter__()
    assert time.monotonic() - start < 300


def test_a_wait_without_an_end_is_told(dblock_locks: Locks, dblock_faults: Faults) -> None:
    dblock_faults._store.clock.longest = 60
    dblock_faults.held_by_another("report")
    with pytest.raises(RuntimeError, match="no process will release"):
        dblock_locks.lease("report").acquire()


def test_threads_wait_for_one_another(dblock_locks: Locks, threads: Threads) -> None:
    """For as long as it takes, while time goes by as usual, and the holder's lease is renewed."""

    def expires() -> datetime:
        found = dblock_locks.show("report").expires_at
        assert found is not None
        return found

    with dblock_locks.lease("report", ttl=0.3) as lease:
        first, began = expires(), time.monotonic()
        waiting = threads.start(dblock_locks.lease("report", wait=60).acquire)
        eventually(lambda: expires() > first + timedelta(seconds=0.3))
        went_by = expires() - first
        assert went_by.total_seconds() <= time.monotonic() - began + ROUNDING
        assert lease.held
        assert not waiting.done()
    assert waiting.result(60)


def test_a_thread_that_waits_can_be_hurried(
    dblock_locks: Locks, dblock_faults: Faults, threads: Threads
) -> None:
    with dblock_locks.lease("report"):
        waiting = threads.start(dblock_locks.lease("report", wait=3000).acquire)
        eventually(lambda: bool(dblock_locks.show("report").waiters))
        dblock_faults.advance(3000)
        assert not waiting.result(60)


def test_threads_wait_for_a_row_lock(dblock_locks: Locks, threads: Threads) -> None:
    locked, go_on = threading.Event(), threading.Event()

    def lock() -> None:
        with dblock_locks.row("order"):
            locked.set()
            go_on.wait(60)

    def take(handle: Handle) -> None:
        with handle:
            pass

    holding = threads.start(lock)
    assert locked.wait(60)
    handles = dblock_locks.row("order", wait=60), dblock_locks.lease("report", wait=60)
    waiting = [threads.start(take, handle) for handle in handles]
    time.sleep(0.1)
    assert not any(future.done() for future in waiting)
    go_on.set()
    holding.result(60)
    for future in waiting:
        future.result(60)
