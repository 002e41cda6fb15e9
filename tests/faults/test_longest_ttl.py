"""The longest TTL that leases may have: known before it is granted, forgotten when it is over."""

from __future__ import annotations

from datetime import timedelta
from threading import Barrier

import pytest
from sqlalchemy import Engine, create_engine

from dblock import Locks
from dblock.dialects.postgresql import witness
from dblock.protocol import commands
from tests.conftest import Database
from tests.faults.database import QUEUED, WAITING, WRITER, epoch, forget, lapse, pause
from tests.servers import execute
from tests.support import LONG, SECONDS, Threads, eventually
from tests.worlds.world import World

USUAL, DAY = 5.0, 86400.0


def test_the_longest_ttl_is_known_before_it_is_granted(volatile: Database) -> None:
    url = volatile.url
    with Locks(url) as locks:
        known = []
        for ttl in (5, 40, 7):
            assert locks.lease(f"lease of {ttl}", ttl=ttl, renew=False).acquire()
            known.append(epoch(url).longest_ttl)
        assert known == [5, 40, 40]
        lease = locks.lease("renewed", ttl=5, renew=False)
        assert lease.acquire()
        lease.renew(ttl=200)
        assert epoch(url).longest_ttl == 200
        forget(url)
        assert not locks.lease("other").acquire(blocking=False)
        assert 40 < pause(url) <= 200


def bounds(url: str) -> tuple[float, float]:
    """The longest TTL that is granted, and the longest that may be out."""
    ((granted, out),) = execute(
        url, "SELECT w.longest_ttl, e.longest_ttl FROM dblock_witness AS w, dblock_epoch AS e"
    )
    return granted, out


def days_pass(url: str, locks: Locks) -> None:
    """Two, with a short lease in each."""
    for _ in range(2):
        lapse(url)
        with locks.lease("of that day", ttl=USUAL, wait=0):
            pass


def test_a_ttl_that_nobody_asks_for_any_more_is_forgotten(volatile: Database, world: World) -> None:
    url = volatile.url
    with world.locks(url) as locks:
        with locks.lease("report", ttl=DAY):
            pass
        assert bounds(url) == (DAY, DAY)
        lapse(url)
        with locks.lease("other", ttl=USUAL, wait=0):
            assert bounds(url) == (USUAL, DAY)  # one of DAY may be on its way yet
        lapse(url)
        with locks.lease("other", ttl=USUAL, wait=0):
            assert bounds(url) == (USUAL, USUAL)
        forget(url)
        assert not locks.lease("other").acquire(blocking=False)
        assert pause(url) <= USUAL


def test_a_lease_that_is_out_is_not_forgotten(volatile: Database, world: World) -> None:
    url = volatile.url
    with world.locks(url) as locks:
        lease = locks.lease("report", ttl=DAY, renew=False)
        assert lease.acquire()
        for _ in range(3):
            days_pass(url, locks)
            granted, out = bounds(url)
            assert granted == USUAL
            assert lease.remaining < out <= DAY
        forget(url)
        assert not locks.lease("other").acquire(blocking=False)
        assert lease.remaining < pause(url) <= DAY


def test_a_lease_renewed_to_a_longer_ttl_is_not_forgotten(volatile: Database) -> None:
    url = volatile.url
    with Locks(url) as locks:
        lease = locks.lease("report", ttl=LONG, renew=False)
        assert lease.acquire()
        days_pass(url, locks)
        lease.renew(ttl=DAY)
        assert bounds(url) == (DAY, DAY)
        days_pass(url, locks)
        assert lease.remaining < bounds(url)[1] <= DAY
        lapse(url)
        lease.renew(ttl=LONG)  # it is found out by renewals too, and by none in vain
        assert bounds(url) == (LONG, bounds(url)[1])


def test_a_table_that_is_too_large_is_not_read(
    volatile: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "_READABLE", -1)
    with Locks(volatile.url) as locks:
        with locks.lease("report", ttl=DAY):
            pass
        days_pass(volatile.url, locks)
        assert bounds(volatile.url) == (USUAL, DAY)


def test_several_find_that_a_day_has_passed(unused: Database, threads: Threads) -> None:
    """Nobody is refused, and the longest TTL of them is known."""
    ready = Barrier(8)

    def begin(number: int) -> bool:
        with Locks(unused.url) as locks:
            assert locks.lease(f"first {number}", ttl=USUAL).acquire()
            ready.wait()
            if number == 0:
                lapse(unused.url)
            ready.wait()
            return locks.lease(f"lease {number}", ttl=USUAL + number).acquire(blocking=False)

    for _ in range(5):
        begun = [threads.start(begin, number) for number in range(8)]
        assert all(future.result() for future in begun)
        assert bounds(unused.url) == (USUAL + 7, USUAL + 7)
        execute(unused.url, "DELETE FROM dblock_lock")


def record(engine: Engine, locks: Locks, ttl: float) -> None:
    """Record a TTL that is no longer than one which was announced."""
    query = locks._database.dialect.query(commands.RecordTtl(ttl))
    with engine.begin() as connection:
        connection.exec_driver_sql(query.sql, dict(query.params))


def test_two_begin_anew_at_once(volatile: Database, threads: Threads) -> None:
    """The second has seen what the first has, and comes to write when that has written."""
    url = volatile.url
    engine = create_engine(url)
    with Locks(url) as locks, engine.connect() as first:
        assert locks.lease("report", ttl=USUAL).acquire()
        lapse(url)
        for query in (
            locks._database.dialect.query(commands.AnnounceTtl(DAY)),
            locks._database.dialect.query(commands.RecordTtl(DAY)),
        ):
            first.exec_driver_sql(query.sql, dict(query.params))
        second = threads.start(record, engine, locks, USUAL)
        eventually(lambda: execute(url, WAITING) == [(1,)])
        first.commit()
        second.result(SECONDS)
        assert bounds(url) == (DAY, DAY)
    engine.dispose()


def test_an_announcement_is_in_no_records_way(volatile: Database, threads: Threads) -> None:
    """Where commits are slow there is always one between a record's look and its turn."""
    url = volatile.url
    engine = create_engine(url)
    with Locks(url) as locks, engine.connect() as first:
        assert locks.lease("report", ttl=USUAL).acquire()
        lapse(url)
        longer = locks._database.dialect.query(commands.AnnounceTtl(DAY))
        first.exec_driver_sql(longer.sql, dict(longer.params))
        second = threads.start(record, engine, locks, USUAL)
        eventually(lambda: execute(url, WAITING) == [(1,)])
        first.commit()
        second.result(SECONDS)
        assert bounds(url) == (USUAL, USUAL)
        # What was announced and is not recorded yet is announced again.
        assert locks.lease("other", ttl=DAY).acquire()
        assert bounds(url) == (DAY, DAY)
    engine.dispose()


def test_who_waits_when_a_day_has_passed(unused: Database, world: World, threads: Threads) -> None:
    with Locks(unused.url) as locks, world.locks(unused.url) as others:
        holder, waiter = locks.lease("report", ttl=LONG, renew=False), others.lease("report")
        assert holder.acquire()
        waiting = threads.start(waiter.acquire)
        eventually(lambda: execute(unused.url, QUEUED) == [(1,)])
        lapse(unused.url)
        holder.release()
        assert waiting.result(SECONDS)
        threads.run(waiter.release)


def test_a_pause_loses_sight_of_no_lease(volatile: Database) -> None:
    """What the table does not know any more is waited for, however often its pause begins anew."""
    url = volatile.url
    with Locks(url) as locks:
        assert locks.lease("report", ttl=DAY, renew=False).acquire()
        lapse(url)
        assert locks.lease("other", ttl=USUAL).acquire()
        for _ in range(3):
            forget(url)
            assert not locks.lease("last", ttl=USUAL).acquire(blocking=False)
            assert pause(url) > DAY - LONG
            ((left,),) = execute(url, "SELECT valid_until - grants_from FROM dblock_witness")
            assert left > timedelta(seconds=DAY)


def test_a_witness_of_older_code(volatile: Database) -> None:
    """It does not say until when its longest TTL is known, and the epoch not when a pause ends."""
    url = volatile.url
    with Locks(url) as locks:
        assert locks.lease("report", ttl=DAY, renew=False).acquire()
        execute(url, f"UPDATE dblock_epoch SET grants_from = NULL, {WRITER}")
        execute(url, f"UPDATE dblock_witness SET valid_until = NULL, {WRITER}")
        assert locks.lease("other", ttl=LONG).acquire()
        assert bounds(url) == (LONG, DAY)
