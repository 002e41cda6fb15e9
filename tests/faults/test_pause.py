"""A pause lasts until it is over, whatever happens in it; test_promotion has the promotions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dblock import Locks, NotAcquired
from dblock.schema import upgrade
from tests.conftest import Database
from tests.faults.database import WRITER, clock, epoch, grants_from, shorten_pause
from tests.faults.test_crash import CRASHES
from tests.servers import PostgreSQL, execute
from tests.support import LONG, SHORT
from tests.worlds.world import World


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
