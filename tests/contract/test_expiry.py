"""Expiry is the database's clock alone, and right even after waiting for a row."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from dblock import Attempt, Locks, RetryPolicy
from tests.conftest import Database
from tests.contract.conftest import NewLocks
from tests.servers import FAMILY
from tests.support import LONG, SHORT, Threads, blocked, eventually, expire, lock_row

HELD_UP = 0.7  # what a clock read too early would be wrong by
CLOSE = 0.3  # what it may be wrong by


@pytest.mark.parametrize("hours", [-30, 30])
def test_the_wall_clock_here_does_not_matter(
    locks: Locks, others: Locks, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + hours * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: int((true() + hours * 3600) * 1e9))
    with locks.lease("report", ttl=LONG) as lease:
        assert 0 < lease.remaining < LONG
        assert 0 < (locks.show("report").remaining or 0) <= LONG
        monkeypatch.setattr(time, "time", true)  # of two hosts, one is off
        assert not others.lease("report").acquire(blocking=False)
        lease.renew()
        lease.check()


@pytest.mark.parametrize("ttl", [LONG, 1.235, 7.001])
def test_what_remains_is_not_above_the_ttl(locks: Locks, ttl: float) -> None:
    """Not by a rounding either. SQLite's times are in milliseconds."""
    for number in range(30):
        with locks.lease(f"report {number}", ttl=ttl):
            remaining = locks.show(f"report {number}").remaining
            assert remaining is not None
            assert remaining <= ttl


def test_a_takeover_has_to_wait_for_the_expiry(locks: Locks, others: Locks) -> None:
    """The holder's own deadline is over before the database's, never after."""
    first = locks.lease("report", ttl=3 * SHORT, renew=False)
    second = others.lease("report", ttl=LONG)
    assert first.acquire()
    while not second.acquire(blocking=False):
        pass
    assert not first.held
    second.release()


def test_what_the_database_says_has_expired_is_free(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    expire(engine, locks, "report")
    state = locks.show("report")
    assert not state.held
    assert (state.remaining or 0) < 0
    assert [listed.name for listed in locks.list()] == ["report"]  # not yet taken over
    with others.lease("report", wait=0, ttl=LONG):
        assert lease.held  # so it believes; renew, guard and release tell it otherwise


def test_acquired_after_the_row_was_locked(locks: Locks, engine: Engine, threads: Threads) -> None:
    lease = locks.lease("report", ttl=LONG)
    with lease:
        pass
    begun = threading.Event()

    def acquire() -> bool:
        begun.set()
        return lease.acquire()

    with blocked(engine, locks, "report"):
        acquiring = threads.start(acquire)
        assert begun.wait(LONG)
        threading.Event().wait(HELD_UP)
        assert not acquiring.done()
        freed = time.monotonic()
    assert acquiring.result(LONG)
    _check_the_time_left(locks, engine, freed)
    threads.run(lease.release)


def test_renewed_after_the_row_was_locked(locks: Locks, engine: Engine, threads: Threads) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    with blocked(engine, locks, "report"):
        renewing = threads.start(lease.renew)
        threading.Event().wait(HELD_UP)
        assert not renewing.done()
        freed = time.monotonic()
    renewing.result(LONG)
    state = locks.show("report")
    assert (state.remaining or 0) > LONG - (time.monotonic() - freed) - CLOSE
    # What the holder believes is never more than the database says.
    assert lease.remaining < (state.remaining or 0)
    lease.release()


def _check_the_time_left(locks: Locks, engine: Engine, freed: float) -> None:
    row = lock_row(engine, locks, "report")
    assert row.acquired_at is not None
    assert row.expires_at is not None
    assert abs((row.expires_at - row.acquired_at).total_seconds() - LONG) < CLOSE
    remaining = locks.show("report").remaining or 0
    assert remaining > LONG - (time.monotonic() - freed) - CLOSE
    assert remaining <= LONG


def test_a_lease_is_granted_only_while_it_lasts(
    locks: Locks, engine: Engine, threads: Threads
) -> None:
    """A short lease, granted after a wait much longer than itself, is whole."""
    naps: list[Attempt] = []
    lease = locks.lease(
        "report", ttl=2 * SHORT, renew=False, retry=RetryPolicy(before_sleep=naps.append)
    )
    with lease:
        pass
    with blocked(engine, locks, "report"):
        acquiring = threads.start(lease.acquire)
        threading.Event().wait(4 * SHORT)
        assert not acquiring.done()
    assert acquiring.result(LONG)
    row = lock_row(engine, locks, "report")
    assert row.acquired_at is not None
    assert row.expires_at is not None
    assert (row.expires_at - row.acquired_at).total_seconds() == pytest.approx(2 * SHORT, abs=0.1)
    eventually(lambda: not lease.locked())


TIME_ZONES = {
    "postgresql": "SET LOCAL TIME ZONE 'Pacific/Kiritimati'",
    **dict.fromkeys(FAMILY, "SET time_zone = '+05:00'"),
    "sqlite": "SELECT 1",  # has none
}


@pytest.mark.parametrize("west", [False, True])
def test_the_time_zone_of_the_users_session_does_not_matter(
    new_locks: NewLocks, engine: Engine, db: Database, west: bool
) -> None:
    locks, others = new_locks(), new_locks()
    zone = TIME_ZONES[db.kind].replace("+05", "-05" if west else "+05")
    if west:
        zone = zone.replace("Kiritimati", "Pago_Pago")
    held, guarded = others.lease("held", ttl=LONG), others.lease("guarded", ttl=LONG)
    assert held.acquire()
    assert guarded.acquire()
    assert others.lease("expired", ttl=LONG).acquire()
    expire(engine, locks, "expired")
    with engine.connect() as connection:
        connection.execute(text(zone))
        assert not locks.row("held", wait=0, on=connection).acquire()
        with guarded.guard(connection) as fence:
            assert fence == guarded.fence
        assert locks.row("expired", wait=0, on=connection).acquire()
        connection.commit()
        connection.invalidate()  # its time zone is not for the next user
