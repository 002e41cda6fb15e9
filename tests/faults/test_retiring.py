"""Names are retired while statements are under way, before a crash, and before a failover."""

from __future__ import annotations

import pytest
from sqlalchemy import NullPool, create_engine

from dblock import Locks
from dblock.protocol.commands import Create
from dblock.protocol.steps import Execute, Procedure
from dblock.schema import upgrade
from tests.conftest import Database
from tests.faults.database import WAITING, shorten_pause
from tests.faults.test_promotion import Pair, pair
from tests.servers import PostgreSQL, execute
from tests.support import LONG, SHORT, Threads, eventually

__all__ = ["pair"]

MONTH = 30 * 24 * 3600.0
AGE = "UPDATE dblock_lock SET acquired_at = '2000-01-01', expires_at = '2000-01-01'"
# Whoever inserts a row waits for the lock 7, its snapshot having been taken.
SLOW = (
    "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END'",
    "CREATE TRIGGER slow BEFORE INSERT ON dblock_lock FOR EACH ROW "
    "WHEN (NEW.lock_name <> '') EXECUTE FUNCTION slow()",
)


def use(locks: Locks, name: str, times: int = 1) -> int:
    """Take a name, a long time ago; return the last fence."""
    fence = 0
    for _ in range(times):
        with locks.lease(name, ttl=LONG) as lease:
            fence = lease.fence
    execute(str(locks.engine.url.render_as_string(hide_password=False)), AGE)
    return fence


def test_a_row_is_deleted_while_another_is_made(unused: Database, threads: Threads) -> None:
    """Who has not seen that the row is gone makes none, with a floor of before that."""
    url = unused.url
    with Locks(url) as locks, Locks(url) as others:
        fence = use(locks, "report", 3)
        execute(url, *SLOW)
        with create_engine(url, poolclass=NullPool).connect() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_lock(7)")
            making = threads.start(_create, locks)
            eventually(lambda: making.done() or execute(url, WAITING) == [(1,)])
            assert others.prune_names(MONTH) == 1
            connection.exec_driver_sql("SELECT pg_advisory_unlock(7)")
        making.result(LONG)
        with others.lease("report", ttl=LONG, wait=LONG) as lease:
            assert lease.fence > fence


def _create(locks: Locks) -> None:
    def create() -> Procedure[None]:
        yield Execute(Create("report"))

    locks._database.run(create())


@pytest.mark.parametrize("durability", ["durable", "volatile"])
def test_fences_grow_across_a_crash(
    server: PostgreSQL, crashing: Database, durability: str
) -> None:
    url = crashing.url
    upgrade(url, durability=durability)
    with Locks(url) as locks:
        fence = use(locks, "report", 3)
        assert locks.prune_names(MONTH) == 1
        server.stop_immediately()
        server.start()
        if durability == "volatile":
            assert execute(url, "SELECT fence FROM dblock_lock") == []
            assert not locks.lease("report").acquire(blocking=False)  # for it may be out
            shorten_pause(url, SHORT)
        with locks.lease("report", ttl=LONG) as lease:
            assert lease.fence > fence


@pytest.mark.parametrize("heard", [True, False])
def test_fences_grow_across_a_failover(pair: Pair, heard: bool) -> None:
    """Whether the standby has heard that the name was retired, or not."""
    with Locks(pair.url) as locks:
        fence = use(locks, "report", 3)
        eventually(pair.caught_up)
        if not heard:
            pair.standby.stop()  # not paused: what has arrived is replayed before a promotion
        assert locks.prune_names(MONTH) == 1
        with locks.lease("report", ttl=LONG) as lease:
            assert lease.fence > fence
            fence = lease.fence
        if heard:
            execute(pair.primary.url, "CHECKPOINT")  # the release has not waited for the disk
            eventually(pair.caught_up)
    pair.primary.kill()
    pair.standby.start()
    pair.standby.promote()
    seen = pair.standby_has("SELECT count(*) FROM dblock_lock WHERE lock_name = ''")
    assert seen == heard
    with Locks(pair.url) as locks:
        assert not locks.lease("report").acquire(blocking=False)
        shorten_pause(pair.url, SHORT)
        with locks.lease("report", ttl=LONG) as lease:
            assert lease.fence > fence
