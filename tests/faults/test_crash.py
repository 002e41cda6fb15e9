"""PostgreSQL crashes: what it may have forgotten is granted to nobody (promise 15)."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from sqlalchemy import make_url

from dblock import LockLost, Locks, NotAcquired
from dblock.protocol import commands
from dblock.protocol.steps import Execute, Procedure
from dblock.schema import upgrade
from tests.conftest import Database, find_or_skip
from tests.faults.database import clock, epoch, grants_from, shorten_pause
from tests.servers import PgBouncer, PostgreSQL, execute, reaper
from tests.support import LONG, SHORT
from tests.worlds.world import World


def backend(server: PostgreSQL) -> None:
    server.crash_backend()


def immediate(server: PostgreSQL) -> None:
    server.stop_immediately()
    server.start()


CRASHES = (backend, immediate)


@pytest.mark.parametrize("crash", CRASHES)
def test_durable_leases_outlive_a_crash(
    server: PostgreSQL, crashing: Database, crash: Callable[[PostgreSQL], None]
) -> None:
    url = crashing.url
    upgrade(url)
    with Locks(url) as locks, Locks(url) as others:
        lease = locks.lease("report", ttl=LONG, renew=False)
        assert lease.acquire()
        before = epoch(url)
        crash(server)
        assert not others.lease("report").acquire(blocking=False)
        with others.lease("other", wait=0) as other, others.row("row", wait=0):
            assert other.fence == 1
        lease.renew()
        lease.release()
        with others.lease("report", wait=0) as next_one:
            assert next_one.fence == 2
    assert epoch(url) == before


@pytest.mark.parametrize(
    ("world", "crash"), [("threads", backend), ("asyncio", immediate)], indirect=["world"]
)
def test_after_a_crash_of_volatile_tables_nothing_is_granted_for_the_longest_ttl(
    server: PostgreSQL, crashing: Database, world: World, crash: Callable[[PostgreSQL], None]
) -> None:
    url = crashing.url
    upgrade(url, durability="volatile")
    with world.locks(url) as locks, world.locks(url) as others:
        lease = locks.lease("report", ttl=LONG, renew=False)
        assert lease.acquire()
        fence = lease.fence
        crash(server)
        first = clock(url)
        for lock in (
            others.lease("report", wait=0),
            others.lease("other", wait=0),
            others.row("report", wait=0),
        ):
            with pytest.raises(NotAcquired, match="nothing is granted for another"), lock:
                pass
        found_out, open_from = clock(url), grants_from(url)
        assert (open_from - first).total_seconds() >= LONG
        assert (open_from - found_out).total_seconds() <= LONG
        shorten_pause(url, SHORT)
        with others.lease("report", ttl=LONG) as later:
            assert later.fence > fence
            acquired_at = others.show("report").acquired_at
            assert acquired_at is not None
            assert acquired_at >= grants_from(url)
        with others.lease("report", wait=0) as next_one:
            assert next_one.fence > fence + 1


def test_a_longer_ttl_is_on_disk_once_it_is_announced(
    server: PostgreSQL, crashing: Database
) -> None:
    """So before it is granted; also where nothing else waits for the disk, which gets it later."""
    url = crashing.url
    upgrade(url, durability="volatile")
    execute(url, f'ALTER DATABASE "{make_url(url).database}" SET synchronous_commit = off')
    [(later,)] = execute(url, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")

    def announce(ttl: float) -> Procedure[None]:
        yield Execute(commands.AnnounceTtl(ttl))

    with Locks(url) as locks:
        assert locks.lease("first", ttl=LONG, renew=False).acquire()
        reaper.send(later, signal.SIGSTOP)
        locks._database.run(announce(10 * LONG))
        server.kill()
        server.start()
        assert epoch(url).longest_ttl == 10 * LONG


def test_behind_a_pooler(server: PostgreSQL, crashing: Database) -> None:
    upgrade(crashing.url, durability="volatile")
    name = crashing.url.rpartition("/")[2]
    with find_or_skip(lambda: PgBouncer(server)) as pooler, Locks(pooler.url_for(name)) as locks:
        lease = locks.lease("report", ttl=LONG, renew=False)
        assert lease.acquire()
        server.crash_backend()
        with pytest.raises(LockLost) as caught:
            lease.renew()
        assert caught.value.reason == "crash"
        assert "nothing is granted for another" in str(locks.lease("report")._acquire(0))


def test_a_clean_restart_forgets_nothing(server: PostgreSQL, crashing: Database) -> None:
    upgrade(crashing.url, durability="volatile")
    with Locks(crashing.url) as locks:
        lease = locks.lease("report", ttl=LONG, renew=False)
        assert lease.acquire()
        server.restart()
        lease.renew()
        assert locks.lease("other").acquire(blocking=False)
        assert not locks.row("report").acquire(blocking=False)
    assert epoch(crashing.url).epoch == 0
