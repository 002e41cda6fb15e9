"""The database's clock is put forward and back: a real server, with a clock that can be set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from dblock import Locks, NotAcquired
from dblock.schema import upgrade
from tests.conftest import NewDatabase
from tests.faults.database import WRITER, epoch, forget, shorten_pause
from tests.servers import execute
from tests.support import LONG, SECONDS, SHORT, Threads
from tests.worlds.world import World

HOUR = 3600
TTL = 1.0
PAUSE = """SELECT extract(epoch FROM e.grants_from - clock_timestamp()),
    e.grants_from = w.grants_from FROM dblock_epoch AS e, dblock_witness AS w"""


class Clock:
    """All statements of one database go by it."""

    def __init__(self, url: str) -> None:
        self.url = url
        name = make_url(url).database
        execute(
            url,
            "CREATE SCHEMA clock",
            "CREATE TABLE clock.ahead AS SELECT interval '0' AS by",
            "CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS "
            "'SELECT pg_catalog.clock_timestamp() + by FROM clock.ahead'",
            f'ALTER DATABASE "{name}" SET search_path = clock, pg_catalog, public',
        )

    def put(self, seconds: float) -> None:
        """Put it so far ahead of what it is."""
        execute(self.url, f"UPDATE clock.ahead SET by = interval '{seconds} seconds'")

    def fail_over(self, ahead: float) -> None:
        """Have the server be another, with another clock."""
        self.put(ahead)
        execute(self.url, f"UPDATE dblock_epoch SET server = 'another', {WRITER}")
        forget(self.url)

    def pause(self) -> float:
        """What is left of it, by the row that outlives a crash and by the witness alike."""
        ((left, same),) = execute(self.url, PAUSE)
        assert same
        return float(left)


@pytest.fixture
def clock(new_database: NewDatabase) -> Clock:
    db = new_database("postgresql")
    upgrade(db.url)
    return Clock(db.url)


@pytest.fixture(params=["durable", "volatile"])
def closed(clock: Clock, request: pytest.FixtureRequest) -> Iterator[Clock]:
    """A pause was begun while the clock was an hour ahead, after a lease of LONG."""
    upgrade(clock.url, durability=request.param)
    with Locks(clock.url) as locks:
        assert locks.lease("report", ttl=LONG, renew=False).acquire()
        clock.fail_over(ahead=HOUR)
        assert not locks.lease("report").acquire(blocking=False)
        assert 0 < clock.pause() <= LONG
        yield clock


def test_a_pause_of_a_clock_that_was_ahead_is_cut_short(closed: Clock, world: World) -> None:
    begun = epoch(closed.url)
    closed.put(0)
    assert closed.pause() > HOUR - LONG
    with world.locks(closed.url) as locks:
        with pytest.raises(NotAcquired, match="nothing is granted"), locks.lease("a", wait=0):
            pass
        assert 0 < closed.pause() <= LONG
        assert epoch(closed.url) == begun  # nothing was forgotten meanwhile
        shorten_pause(closed.url, SHORT)
        assert locks.lease("other").acquire(timeout=SECONDS)


def test_who_waits_finds_out_that_the_clock_was_put_right(clock: Clock, threads: Threads) -> None:
    """It waits as long as it was told to, looks again, and waits for no more than a TTL then."""
    with Locks(clock.url) as locks:
        assert locks.lease("report", ttl=TTL, renew=False).acquire()
        clock.fail_over(ahead=HOUR)
        assert not locks.lease("other", ttl=TTL).acquire(blocking=False)
        waiting = threads.start(locks.lease("other", ttl=TTL).acquire)
        clock.put(0)
        assert waiting.result(SECONDS)


def test_a_clock_that_is_put_back_begins_no_long_pause(clock: Clock, world: World) -> None:
    """By the clock the end of the last pause is still to come."""
    clock.put(HOUR)
    with world.locks(clock.url) as locks:
        with locks.lease("report", ttl=LONG):
            pass
        clock.put(0)
        assert not locks.lease("report").acquire(blocking=False)
        assert 0 < clock.pause() <= LONG
        shorten_pause(clock.url, SHORT)
        with locks.row("report", wait=SECONDS):
            pass
