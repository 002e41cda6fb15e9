"""A synchronous pair: what the standby has not got is not told, whoever cuts the wait for it off.

PostgreSQL commits locally before it waits. A wait that is cut off ends with the connection, or
with success and a warning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import make_url

from dblock import Locks, NotAcquired, OutcomeUnknown, Timeouts, Unavailable
from dblock.protocol import commands, job_runs
from dblock.protocol.epoch import consult
from dblock.protocol.job_runs import JobRun
from dblock.protocol.steps import Execute, Procedure
from dblock.schema import upgrade
from tests.conftest import EVER, NewDatabase, find_or_skip
from tests.servers import PostgreSQL, execute
from tests.support import LONG, MOMENT, SECONDS, Threads, eventually
from tests.worlds.world import World

QUICK = Timeouts(connect=2, query=0.3, socket=0.6)
PATIENT = Timeouts(connect=SECONDS, query=SECONDS / 2, socket=SECONDS)
CUT_OFF = {
    "cancelled": "pg_cancel_backend",  # the server warns, and tells of success
    "terminated": "pg_terminate_backend",
}
Servers = tuple[PostgreSQL, PostgreSQL]
WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@dataclass
class Synchronous:
    """A primary whose commits wait for its standby."""

    standby: PostgreSQL
    url: str

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """Nothing gets to the standby meanwhile."""
        self.standby.stop()
        try:
            yield
        finally:
            self.standby.start()

    def waiting(self) -> set[datetime]:
        """When the statements began whose commits wait for the standby."""
        return {began for (began,) in execute(self.url, f"SELECT query_start {WAITING}")}

    def cut_off(self, how: str, doing: Future[Any]) -> None:
        """Cut the wait of what is done off, and see it wait again."""
        eventually(lambda: bool(self.waiting()))
        first = self.waiting()
        execute(self.url, f"SELECT {CUT_OFF[how]}(pid) {WAITING}")
        eventually(lambda: doing.done() or bool(self.waiting() - first))
        assert not doing.done()

    def told(self, name: str) -> bool:
        """Whether what the standby has on its disk by now includes the name's hold.

        A commit waits until the standby has it on disk. Queries there see it a little later.
        """
        database = make_url(self.url).database
        assert database is not None
        url = self.standby.url_for(database)
        ((received,),) = execute(url, "SELECT pg_last_wal_receive_lsn()")
        eventually(lambda: self.standby.has_replayed(received))
        query = f"SELECT 1 FROM dblock_lock WHERE lock_name = '{name}' AND token IS NOT NULL"
        return bool(execute(url, query))


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with find_or_skip(PostgreSQL) as primary:
        standby = primary.standby()
        execute(
            primary.url,
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
            # Warnings are not for clients here, by the will of whoever set the server up.
            "ALTER SYSTEM SET client_min_messages = 'error'",
            "SELECT pg_reload_conf()",
        )
        synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        eventually(lambda: bool(execute(primary.url, synchronous)))
        yield primary, standby


@pytest.fixture
def pair(servers: Servers, new_database: NewDatabase) -> Synchronous:
    primary, standby = servers
    return Synchronous(standby, new_database("postgresql", server=primary, migrated=True).url)


def test_a_grant_that_the_standby_has_not_got_is_unknown(pair: Synchronous, world: World) -> None:
    """Its token is found, which proves the local commit alone."""
    with world.locks(pair.url, timeouts=QUICK) as locks:
        assert locks.list() == []
        with pair.cut():
            lease = locks.lease("report", ttl=10 * LONG)
            with pytest.raises(OutcomeUnknown, match="nothing was started"):
                lease.acquire(blocking=False)
            assert not lease.held
            assert locks.show("report").held


def test_a_waiter_is_told_that_the_server_waits_for_its_standby(
    pair: Synchronous, world: World, threads: Threads
) -> None:
    """The grant in its way is committed, and will neither be told nor be undone."""
    with world.locks(pair.url, timeouts=PATIENT) as locks, Locks(pair.url) as others:
        with locks.lease("report"):
            pass
        with pair.cut():
            acquiring = threads.start(locks.lease("report", ttl=LONG).acquire)
            eventually(lambda: bool(pair.waiting()))
            for lock in (
                others.lease("report", ttl=LONG, wait=MOMENT),
                others.row("report", wait=MOMENT),
            ):
                with pytest.raises(NotAcquired, match="waits for a synchronous standby"), lock:
                    pass
            assert "waits for a synchronous standby" in others.show("report").describe()
        assert acquiring.result(SECONDS)


def test_a_ttl_that_the_standby_has_not_heard_of_is_not_granted(pair: Synchronous) -> None:
    """A grant of a volatile table waits for no standby, so what bounds its TTL has to."""
    upgrade(pair.url, durability="volatile")
    with Locks(pair.url, timeouts=QUICK) as locks, Locks(pair.url, timeouts=QUICK) as others:
        with locks.lease("report"):  # the new table's witness is there
            pass
        with pair.cut():
            for made in (locks, locks, others):
                with pytest.raises(Unavailable):
                    made.lease("report", ttl=2 * EVER).acquire(blocking=False)
        assert others.lease("report", ttl=2 * EVER).acquire(timeout=SECONDS)


def test_a_ttl_that_is_not_announced_is_not_recorded(pair: Synchronous) -> None:
    """Where the announcement was undone, as a failover may, it has to be made anew."""

    def record(ttl: float) -> Procedure[None]:
        yield Execute(commands.RecordTtl(ttl))

    with Locks(pair.url) as locks:
        locks._database.run(record(2 * EVER))
        known = locks._database.run(consult(locks._database.exchange())).witness
        assert known.longest_ttl == EVER


@pytest.mark.parametrize("how", CUT_OFF)
def test_a_grant_that_the_standby_gets_after_all_is_held(
    pair: Synchronous, world: World, threads: Threads, how: str
) -> None:
    with world.locks(pair.url, timeouts=PATIENT) as locks:
        lease = locks.lease("report", ttl=10 * LONG)
        with pair.cut():
            acquiring = threads.start(lease.acquire)
            pair.cut_off(how, acquiring)
        assert acquiring.result(SECONDS)
        assert lease.held
        assert pair.told("report")
        lease.release()


def renew(locks: Locks) -> Callable[[], object]:
    lease = locks.lease("report", ttl=10 * LONG)
    assert lease.acquire()
    return lease.renew


def end_a_run(locks: Locks) -> Callable[[], object]:
    database, run = locks._database, JobRun("report", "today", 1)
    assert database.run(job_runs.begin(database.exchange("report"), run, "me"))
    return lambda: database.run(job_runs.end(database.exchange("report", timeout=SECONDS), run, 0))


def tell_of_a_longer_ttl(locks: Locks) -> Callable[[], object]:
    return lambda: locks._database.run(consult(locks._database.exchange(timeout=SECONDS), 2 * EVER))


@pytest.mark.parametrize("prepare", [renew, end_a_run, tell_of_a_longer_ttl])
@pytest.mark.parametrize("how", CUT_OFF)
def test_what_the_standby_has_not_got_is_written_again(
    pair: Synchronous,
    threads: Threads,
    prepare: Callable[[Locks], Callable[[], object]],
    how: str,
) -> None:
    with Locks(pair.url, timeouts=PATIENT) as locks:
        action = prepare(locks)
        with pair.cut():
            doing = threads.start(action)
            pair.cut_off(how, doing)
        doing.result(SECONDS)
