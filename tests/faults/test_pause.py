"""A pause lasts until it is over, whatever happens in it; test_promotion has the promotions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dblock import LockLost, Locks, NotAcquired, Unsupported
from dblock.schema import upgrade
from tests.conftest import KINDS, Database, NewDatabase
from tests.faults.database import WRITER, clock, epoch, forget, grants_from, pause, shorten_pause
from tests.faults.test_crash import CRASHES
from tests.servers import PostgreSQL, execute
from tests.support import LONG, SHORT
from tests.worlds.world import World

DAY = 24 * 3600.0
YEAR = 366 * DAY


def fail_over(server: PostgreSQL, url: str) -> None:
    """Have the server take itself for another than that of the last witness."""
    execute(url, f"UPDATE dblock_epoch SET server = 'another', {WRITER}")
    server.crash_backend()


def refused(locks: Locks) -> None:
    """Nothing is granted, in whichever way it is asked for."""
    for lock in (locks.lease("other", wait=0), locks.row("other", wait=0)):
        with pytest.raises(NotAcquired, match="nothing is granted for another"), lock:
            pass


@pytest.mark.parametrize(
    ("world", "crash"),
    [("threads", CRASHES[0]), ("asyncio", CRASHES[1])],
    ids=["backend", "immediate"],
    indirect=["world"],
)
@pytest.mark.parametrize("durability", ["durable", "volatile"])
def test_a_crash_in_a_pause_does_not_end_it(
    server: PostgreSQL,
    crashing: Database,
    world: World,
    durability: str,
    crash: Callable[[PostgreSQL], None],
) -> None:
    url = crashing.url
    upgrade(url, durability=durability)
    with Locks(url) as locks, world.locks(url) as others:
        assert locks.lease("report", ttl=LONG, renew=False).acquire()
        fail_over(server, url)
        refused(others)
        ends, begun = grants_from(url), epoch(url).epoch
        for _ in range(2):
            crash(server)
            refused(others)
            # What a volatile table lost is another's to wait for; a durable one lost nothing.
            assert grants_from(url) > ends if durability == "volatile" else grants_from(url) == ends
            assert (epoch(url).epoch > begun) == (durability == "volatile")
            assert (grants_from(url) - clock(url)).total_seconds() <= LONG
        shorten_pause(url, SHORT)
        with others.lease("other") as lease:
            assert lease.fence > begun
            acquired_at = others.show("other").acquired_at
            assert acquired_at is not None
            assert acquired_at >= grants_from(url)
        crash(server)
        if durability == "durable":
            assert others.lease("last").acquire(blocking=False)  # a pause that is over stays so


def test_tables_made_durable_in_a_pause_keep_it(server: PostgreSQL, crashing: Database) -> None:
    url = crashing.url
    upgrade(url, durability="volatile")
    with Locks(url) as locks, Locks(url) as others:
        assert locks.lease("report", ttl=LONG, renew=False).acquire()
        server.crash_backend()
        refused(others)
        ends = grants_from(url)
        upgrade(url, durability="durable")
        for _ in range(2):
            server.crash_backend()
            refused(others)
            assert grants_from(url) == ends


def test_a_clean_restart_in_a_pause_does_not_end_it(server: PostgreSQL, crashing: Database) -> None:
    upgrade(crashing.url)
    with Locks(crashing.url) as locks, Locks(crashing.url) as others:
        assert locks.lease("report", ttl=LONG, renew=False).acquire()
        fail_over(server, crashing.url)
        refused(others)
        ends = grants_from(crashing.url)
        server.restart()
        refused(others)
        assert grants_from(crashing.url) == ends


# --- on an operator's word ---------------------------------------------------------------------


def test_an_operator_begins_a_pause(unused: Database, world: World) -> None:
    """For when leases may be out that these tables do not know: all of before are lost."""
    with world.locks(unused.url) as locks, world.locks(unused.url) as others:
        lease = locks.lease("report", ttl=LONG, renew=False)
        assert lease.acquire()
        fence = lease.fence
        assert 0 < others.pause() <= LONG
        refused(others)
        with pytest.raises(LockLost) as caught:
            lease.renew()
        assert caught.value.reason == "failover"
        shorten_pause(unused.url, 0)
        others.release("report", force=True)
        with others.lease("report", wait=0) as later:
            assert later.fence > fence


@pytest.mark.filterwarnings("ignore:a TTL is longer")
def test_an_operator_ends_the_pause_of_a_year(unused: Database, world: World) -> None:
    """One TTL of a year, long over; and a failover."""
    with world.locks(unused.url) as locks:
        with locks.lease("report", ttl=YEAR, wait=0):
            pass
        execute(unused.url, f"UPDATE dblock_epoch SET server = 'another', {WRITER}")
        forget(unused.url)
        refused(locks)
        assert pause(unused.url) > YEAR - DAY
        assert locks.pause(SHORT) <= SHORT
        with locks.lease("report", wait=LONG):
            pass
        longest = epoch(unused.url).longest_ttl
        assert longest is not None
        assert longest <= LONG
        with pytest.raises(OverflowError, match="longest_ttl is at most 366 days"):
            locks.pause(YEAR + DAY)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "postgresql"])
def test_where_there_is_no_pause(new_database: NewDatabase, world: World, kind: str) -> None:
    db = new_database(kind, migrated=True)
    with world.locks(db.url) as locks, pytest.raises(Unsupported, match="no witness"):
        locks.pause()
