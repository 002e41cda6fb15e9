"""The witness: missing, written anew, not believed. In test_crash servers do crash."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier

import pytest
from sqlalchemy import Connection, create_engine

from dblock import Conflict, Lease, LockLost, Locks, SchemaMissing
from dblock.protocol import commands
from dblock.protocol.epoch import consult
from dblock.schema import upgrade
from tests.conftest import Database
from tests.faults.database import (
    QUEUED,
    WAITING,
    clock,
    epoch,
    forget,
    grants_from,
    pause,
    shorten_pause,
)
from tests.servers import execute
from tests.support import LONG, SECONDS, SHORT, Threads, eventually
from tests.worlds.world import World

TTL = 6.0  # is told of a loss after a third of it


# --- old holders -------------------------------------------------------------------------------


def renew(lease: Lease, on: Connection) -> None:
    lease.renew()


def release(lease: Lease, on: Connection) -> None:
    lease.release()


def guard(lease: Lease, on: Connection) -> None:
    with lease.guard(on):
        pass


def be_told(lease: Lease, on: Connection) -> None:
    assert lease.lost.wait(SECONDS)
    lease.check()


@pytest.mark.parametrize("use", [renew, release, guard, be_told])
def test_old_holders_are_told(
    volatile: Database, world: World, use: Callable[[Lease, Connection], None]
) -> None:
    engine = world.engine(volatile.url)
    with world.locks(volatile.url) as locks, engine.connect() as connection:
        lease = locks.lease("report", ttl=TTL if use is be_told else LONG, renew=use is be_told)
        assert lease.acquire()
        forget(volatile.url)
        with pytest.raises(LockLost) as caught:
            use(lease, connection)
        assert caught.value.reason == "crash"
    engine.dispose()


def test_a_guard_after_a_crash_of_durable_tables(unused: Database) -> None:
    engine = create_engine(unused.url)
    with Locks(unused.url) as locks, locks.lease("report", ttl=LONG) as lease:
        forget(unused.url)
        with engine.connect() as connection, lease.guard(connection) as fence:
            assert fence == 1
    engine.dispose()


@pytest.mark.parametrize("row", ["with its row", "without"])
def test_fences_grow_across_a_crash(volatile: Database, row: str) -> None:
    with Locks(volatile.url) as locks:
        fences = []
        for number in range(6):
            if number == 3:
                forget(volatile.url)
                assert not locks.lease("report").acquire(blocking=False)
                shorten_pause(volatile.url, 0)
                if row == "with its row":
                    with locks.row("report"):
                        pass
            with locks.lease("report", ttl=LONG, wait=0) as lease:
                fences.append(lease.fence)
        assert fences == sorted(set(fences))


def test_nothing_granted_means_no_pause(volatile: Database) -> None:
    with Locks(volatile.url) as locks:
        with locks.row("report", wait=0):
            pass
        forget(volatile.url)
        with locks.lease("report", wait=0) as lease:
            assert lease.fence == 1


# --- who finds out -----------------------------------------------------------------------------


def test_two_find_out_at_once(volatile: Database, threads: Threads) -> None:
    """The second has seen what the first has, and comes to write when that has written."""
    url = volatile.url
    engine = create_engine(url)
    with Locks(url) as locks, engine.connect() as first:
        assert locks.lease("report", ttl=LONG, renew=False).acquire()
        forget(url)
        query = locks._database.dialect.query(commands.WriteWitness())
        ((begun,),) = first.exec_driver_sql(query.sql, dict(query.params))
        second = threads.start(locks._database.run, consult(locks._database.exchange()))
        eventually(lambda: execute(url, WAITING) == [(1,)])
        first.commit()
        assert second.result(SECONDS).witness.epoch == begun == epoch(url).epoch
    engine.dispose()


def test_several_begin_at_once(unused: Database, threads: Threads) -> None:
    """Nobody is refused because another's longer TTL is being recorded."""
    ready = Barrier(8)

    def begin(number: int) -> bool:
        with Locks(unused.url) as locks:
            ready.wait()
            return locks.lease(f"lease {number}", ttl=number + 1).acquire(blocking=False)

    begun = [threads.start(begin, number) for number in range(8)]
    assert all(future.result() for future in begun)


def test_row_locks_wait_too(volatile: Database, world: World, threads: Threads) -> None:
    engine = world.engine(volatile.url)
    with world.locks(volatile.url) as locks, engine.connect() as connection:
        lease = locks.lease("report", ttl=LONG, renew=False)
        assert threads.run(lease.acquire)
        forget(volatile.url)
        assert not locks.row("report").acquire(blocking=False)
        shorten_pause(volatile.url, SHORT)
        with locks.row("report", on=connection, wait=LONG):
            assert clock(volatile.url) >= grants_from(volatile.url)
            connection.rollback()
        with locks.row("report", wait=0):
            pass
    engine.dispose()


def test_who_stands_in_the_queue_waits_too(
    unused: Database, world: World, threads: Threads
) -> None:
    with Locks(unused.url) as locks, world.locks(unused.url) as others:
        holder, waiter = locks.lease("report", ttl=LONG, renew=False), others.lease("report")
        assert holder.acquire()
        waiting = threads.start(waiter.acquire)
        eventually(lambda: execute(unused.url, QUEUED) == [(1,)])
        forget(unused.url)
        execute(unused.url, f"UPDATE dblock_epoch SET server = 'another', longest_ttl = {SHORT}")
        before = epoch(unused.url).epoch
        holder.release()
        assert waiting.result(SECONDS)
        assert epoch(unused.url).epoch > before
        acquired_at = locks.show("report").acquired_at
        assert acquired_at is not None
        assert acquired_at >= grants_from(unused.url)
        threads.run(waiter.release)


def test_a_row_lock_that_finds_out(unused: Database) -> None:
    engine = create_engine(unused.url)
    with Locks(unused.url) as locks, engine.connect() as connection:
        assert locks.row("report", on=connection).acquire(blocking=False)
        connection.rollback()
        forget(unused.url)
        repeatable = connection.execution_options(isolation_level="REPEATABLE READ")
        with pytest.raises(Conflict, match="Retry the whole transaction"):
            locks.row("report", on=repeatable).acquire(blocking=False)
        connection.rollback()
        assert locks.row("report", on=repeatable).acquire(blocking=False)
    engine.dispose()


# --- rows that are no witness ------------------------------------------------------------------


def test_tables_put_back_from_a_dump_are_not_believed(unused: Database) -> None:
    with Locks(unused.url) as locks:
        assert locks.lease("report", ttl=200, renew=False).acquire()
        for table in ("dblock_epoch", "dblock_witness"):
            execute(unused.url, f"CREATE TABLE dump AS TABLE {table}", f"TRUNCATE {table}")
            execute(unused.url, f"INSERT INTO {table} TABLE dump", "DROP TABLE dump")
        execute(unused.url, "TRUNCATE dblock_lock")  # as it was when the dump was made
        assert not locks.lease("report").acquire(blocking=False)
        assert 40 < pause(unused.url) <= 200
        assert epoch(unused.url).epoch > 0


def test_a_witness_that_would_outlive_a_crash_is_not_written(unused: Database) -> None:
    execute(unused.url, "ALTER TABLE dblock_witness SET LOGGED")
    with Locks(unused.url) as locks, pytest.raises(SchemaMissing, match="has to be UNLOGGED"):
        locks.lease("report", wait=0).acquire()


# --- durability --------------------------------------------------------------------------------


def test_durability_is_changed_under_leases(unused: Database) -> None:
    with Locks(unused.url) as locks, locks.lease("report", ttl=LONG) as lease:
        for durability in ("volatile", "durable", "durable", "volatile", "volatile"):
            upgrade(unused.url, durability=durability)
            lease.renew()
            with locks.lease("other", wait=0):
                pass
    assert epoch(unused.url).epoch == 0


def test_a_crash_does_not_go_unnoticed_by_a_change(volatile: Database) -> None:
    with Locks(volatile.url) as locks:
        assert locks.lease("report", ttl=LONG, renew=False).acquire()
        forget(volatile.url)
        upgrade(volatile.url, durability="durable")
        assert not locks.lease("report").acquire(blocking=False)
