"""A lease is taken, waited for, kept and given back."""

from __future__ import annotations

import inspect
import os
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import Attempt, Lease, Locks, NotAcquired, NotHeld, RetryPolicy
from tests.conftest import Database
from tests.contract.conftest import NewLocks
from tests.support import LONG, MOMENT, ROUNDING, SHORT, Threads, blocked, eventually, lock_row


def test_acquire_and_release(locks: Locks) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert (lease.held, lease.locked(), lease.remaining) == (False, False, 0.0)
    assert lease.acquire() is True
    assert (lease.held, lease.locked()) == (True, True)
    assert 0 < lease.remaining < LONG
    lease.check()
    assert not lease.lost.is_set()
    lease.release()
    assert (lease.held, lease.locked(), lease.remaining) == (False, False, 0.0)
    assert lease.acquire()  # again and again
    lease.release()


def test_with_holds_it_for_the_body_alone(locks: Locks, others: Locks) -> None:
    with locks.lease("report", ttl=timedelta(seconds=LONG)) as lease:
        assert lease.held
        assert others.lease("report").locked()
        assert not others.lease("report").acquire(blocking=False)
    assert not others.lease("report").locked()


def test_a_failing_body_gives_it_back(locks: Locks, others: Locks) -> None:
    with pytest.raises(KeyError) as caught, locks.lease("report", ttl=LONG):
        raise KeyError("of the body")
    assert not hasattr(caught.value, "__notes__")
    assert others.lease("report").acquire(blocking=False)


def test_the_body_is_never_run_unlocked(locks: Locks, others: Locks) -> None:
    ran = []
    with others.lease("report", ttl=LONG):
        with pytest.raises(NotAcquired), locks.lease("report", wait=0):
            ran.append("with")

        @locks.lease("report", wait=0)
        def work() -> None:
            ran.append("decorated")

        with pytest.raises(NotAcquired):
            work()
    assert ran == []
    work()
    assert ran == ["decorated"]


def test_as_a_decorator(locks: Locks, others: Locks) -> None:
    @locks.lease("report", ttl=LONG)
    def work(a: int, *, b: int) -> tuple[int, bool]:
        """It works."""
        return a + b, others.lease("report").locked()

    assert (work.__name__, work.__doc__) == ("work", "It works.")
    assert work(1, b=2) == (3, True)
    assert not others.lease("report").locked()


def test_the_signature_is_that_of_threading_lock() -> None:
    parameters = inspect.signature(Lease.acquire).parameters
    assert [(p.name, p.default) for p in parameters.values()][1:] == [
        ("blocking", True),
        ("timeout", -1),
    ]


def test_the_argument_errors_are_those_of_threading_lock(locks: Locks) -> None:
    arguments: list[tuple[Any, type[Exception]]] = [
        ((False, 1), ValueError),
        ((False, 0), ValueError),
        ((True, -2), ValueError),
        ((True, float("nan")), ValueError),
        ((True, float("inf")), OverflowError),
        ((True, 1e100), OverflowError),
        ((True, "1"), TypeError),
        ((True, None), TypeError),
    ]
    for args, error in arguments:
        for lock in (threading.Lock(), locks.lease("report"), locks.row("report")):
            with pytest.raises(error):
                lock.acquire(*args)
    assert locks.list() == []


def test_without_waiting(locks: Locks, others: Locks) -> None:
    naps: list[Attempt] = []
    retry = RetryPolicy(before_sleep=naps.append)
    with others.lease("report", ttl=LONG):
        assert locks.lease("report", retry=retry).acquire(blocking=False) is False
        assert locks.lease("report", retry=retry).acquire(timeout=0) is False
        assert locks.lease("report", wait=0, retry=retry).acquire() is False
    assert naps == []


@pytest.mark.parametrize("how", ["wait", "timeout"])
def test_the_deadline_is_kept(locks: Locks, others: Locks, how: str) -> None:
    naps: list[Attempt] = []
    retry = RetryPolicy(before_sleep=naps.append)

    def naps_in_time() -> bool:
        naps.clear()
        start = time.monotonic()
        if how == "wait":
            assert not locks.lease("report", wait=MOMENT, retry=retry).acquire()
        else:
            assert not locks.lease("report", retry=retry).acquire(timeout=MOMENT)
        assert time.monotonic() - start >= MOMENT
        return bool(naps)

    with others.lease("report", ttl=LONG):
        assert len(locks.list()) == 1  # it is connected
        eventually(naps_in_time)  # a busy machine may take all of that to ask once
    assert sum(nap.sleep for nap in naps) <= MOMENT
    assert all(nap.elapsed + nap.sleep <= MOMENT + 1e-6 for nap in naps)
    assert [nap.number for nap in naps] == list(range(1, len(naps) + 1))
    assert {nap.name for nap in naps} == {"report"}


@pytest.mark.parametrize("wait", [0, MOMENT])
def test_the_deadline_is_kept_when_the_row_is_busy(
    locks: Locks, engine: Engine, threads: Threads, wait: float
) -> None:
    lease = locks.lease("report")
    with lease:
        pass
    with blocked(engine, locks, "report"):
        start = time.monotonic()
        assert not threads.run(lease.acquire, timeout=wait)
        waited = time.monotonic() - start
    assert waited >= wait
    # No layer's own timeout took the place of the caller's.
    assert waited - wait < locks.timeouts.query / 2


@pytest.mark.parametrize("wait", [None, LONG])
def test_a_waiter_gets_it_on_release(
    locks: Locks, others: Locks, threads: Threads, wait: float | None
) -> None:
    waiting = threading.Event()
    retry = RetryPolicy(before_sleep=lambda attempt: waiting.set())
    lease = locks.lease("report", ttl=LONG, wait=wait, retry=retry)
    with others.lease("report", ttl=LONG):
        got = threads.start(lease.acquire)
        assert waiting.wait(LONG)
        assert not got.done()
    assert got.result(LONG)
    lease.release()


def test_a_waiter_gets_it_on_expiry(locks: Locks, others: Locks) -> None:
    lapsing = others.lease("report", ttl=SHORT, renew=False)
    assert lapsing.acquire()
    lease = locks.lease("report", ttl=LONG, wait=LONG)
    assert lease.acquire()
    assert not lapsing.held  # its own deadline is the earlier one
    lease.release()


def test_not_acquired_says_who_and_until_when(new_locks: NewLocks, db: Database) -> None:
    holders = new_locks(label="month's end")
    ttl, start = LONG + 0.4, time.monotonic()
    with holders.lease("report", ttl=ttl):
        with pytest.raises(NotAcquired) as caught, new_locks().lease("report", wait=0):
            raise AssertionError("not reached")
        at_least = ttl - (time.monotonic() - start)
        state = holders.show("report")
    error = caught.value
    assert error.name == "report"
    assert error.holder is not None
    assert error.holder.owner == state.owner
    assert error.holder.expires_at == state.expires_at
    assert at_least - ROUNDING <= (error.holder.remaining or 0) <= ttl + ROUNDING
    message = str(error)
    assert "'report' was not acquired within 0 s: held by " in message
    assert "month's end" in message
    assert f"pid {os.getpid()}" in message
    assert " UTC, expires in " in message


def test_renew(locks: Locks, engine: Engine) -> None:
    lease = locks.lease("report", ttl=LONG)
    with lease:
        before = lock_row(engine, locks, "report")
        fence, token = lease.fence, lease.token
        lease.renew(ttl=3 * LONG)
        assert 2 * LONG < lease.remaining < 3 * LONG
        after = lock_row(engine, locks, "report")
        assert after.expires_at is not None
        assert before.expires_at is not None
        assert (after.expires_at - before.expires_at).total_seconds() >= LONG
        assert (after.fence, after.token) == (before.fence, before.token) == (fence, token)
        lease.renew()  # back to its own TTL
        assert lease.remaining < LONG


def test_renewing_keeps_it(locks: Locks, others: Locks, engine: Engine) -> None:
    """Each time its expiry moves on, and nobody else gets it meanwhile."""
    with locks.lease("report", ttl=LONG, renew=False) as lease:
        expiries = []
        for _ in range(5):
            assert not others.lease("report").acquire(blocking=False)
            row = lock_row(engine, locks, "report")
            assert row.expires_at is not None
            expiries.append(row.expires_at)
            time.sleep(0.01)  # SQLite's clock counts milliseconds
            lease.renew()
        assert expiries == sorted(set(expiries))
        lease.check()


def test_what_is_not_held(locks: Locks) -> None:
    lease = locks.lease("report")
    for use in (
        lease.release,
        lease.renew,
        lease.check,
        lambda: lease.fence,
        lambda: lease.token,
    ):
        with pytest.raises(NotHeld, match="the lease on 'report' is not held") as caught:
            use()
        assert caught.value.name == "report"
    with lease:
        pass
    with pytest.raises(NotHeld):
        lease.release()


def test_list_and_show(locks: Locks, others: Locks) -> None:
    assert locks.list() == []
    assert not locks.show("a").held
    with others.lease("b", ttl=LONG) as b, others.lease("a", ttl=LONG, label="first") as a:
        listed = locks.list()
        assert [(state.name, state.fence, state.held) for state in listed] == [
            ("a", a.fence, True),
            ("b", b.fence, True),
        ]
        assert (listed[0].owner or "").endswith("first")
        assert (listed[1].owner or "").endswith("others")
        shown = locks.show("a")
        assert (shown.name, shown.fence, shown.owner) == ("a", a.fence, listed[0].owner)
        assert shown.acquired_at is not None
        assert shown.expires_at is not None
        assert (shown.expires_at - shown.acquired_at).total_seconds() == pytest.approx(LONG, abs=1)
        assert shown.acquired_at.utcoffset() == timedelta(0)
    assert locks.list() == []
    assert locks.show("a").fence == a_fence(locks)


def a_fence(locks: Locks) -> int:
    with locks.lease("a", ttl=LONG) as lease:
        return lease.fence - 1


def test_closed(locks: Locks) -> None:
    with locks.lease("report", ttl=LONG):
        pass
    locks.close()
    with pytest.raises(ValueError, match="closed"):
        locks.lease("report").acquire()


def test_a_lease_that_runs_out_is_seen_without_asking(locks: Locks) -> None:
    lease = locks.lease("report", ttl=SHORT, renew=False)
    assert lease.acquire()
    eventually(lambda: not lease.held)
    assert lease.remaining == 0.0
    eventually(lambda: not lease.locked())
