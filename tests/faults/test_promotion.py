"""A standby takes the primary's place while a lease is held (promise 15)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, MetaData, create_engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from dblock import Lease, LockLost, Locks, NotAcquired, StaleFence, Timeouts, Unavailable
from dblock.fencing import gate, table
from dblock.schema import upgrade
from tests.conftest import NewDatabase, OwnServers
from tests.faults.database import clock, grants_from, shorten_pause
from tests.servers import PostgreSQL, execute
from tests.support import LONG, SECONDS, SHORT, eventually
from tests.worlds.world import World


@dataclass
class Pair:
    """A primary and its asynchronous standby; ``url`` leads to whichever can be written to."""

    primary: PostgreSQL
    standby: PostgreSQL
    database: str

    @property
    def url(self) -> str:
        hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        return (
            f"postgresql+psycopg://postgres@/{self.database}?{hosts}"
            "&target_session_attrs=read-write"
        )

    def replicated(self, token: str) -> bool:
        return self.standby_has(f"SELECT count(*) FROM dblock_lock WHERE token = '{token}'")

    def standby_has(self, query: str) -> bool:
        """Whether a query has the answer 1 there."""
        with contextlib.suppress(DBAPIError):
            return execute(self.standby.url_for(self.database), query) == [(1,)]
        return False

    def caught_up(self) -> bool:
        """Whether all that the primary has written is on the standby."""
        return self.standby.has_replayed(self.primary.flushed())

    def stop(self) -> None:
        """Stop the promoted one without a word, and start it again."""
        self.standby.stop_immediately()
        self.standby.start()

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.promote()


@pytest.fixture
def pair(own_server: OwnServers, new_database: NewDatabase) -> Pair:
    primary = own_server(PostgreSQL)
    standby = primary.standby()
    db = new_database("postgresql", server=primary)
    upgrade(db.url)
    return Pair(primary, standby, str(make_url(db.url).database))


def renew(lease: Lease, engine: Engine) -> None:
    lease.renew()


def guard(lease: Lease, engine: Engine) -> None:
    with Session(engine) as session, lease.guard(session):
        pass


def be_told(lease: Lease, engine: Engine) -> None:
    assert lease.lost.wait(SECONDS)
    lease.check()


@pytest.mark.parametrize("use", [renew, guard, be_told])
def test_a_hold_is_not_trusted_on_another_server(
    pair: Pair, use: Callable[[Lease, Engine], None]
) -> None:
    engine = create_engine(pair.url)
    with Locks(engine, timeouts=Timeouts(connect=5, query=5, socket=10)) as locks:
        # Its keeper, too, has the time to fail over, and more, before it is over.
        lease = locks.lease("report", ttl=LONG / 3, renew=use is be_told)
        assert lease.acquire()
        eventually(lambda: pair.replicated(lease.token))
        pair.fail_over()
        engine.dispose()
        with pytest.raises(LockLost) as caught:
            use(lease, engine)
        assert caught.value.reason == "failover"
        with pytest.raises(LockLost):
            lease.release()
        # It was freed by its token, and still is granted to nobody: others may have been told so.
        assert not locks.show("report").held
        assert "nothing is granted for another" in str(lease._acquire(0))
    engine.dispose()


@pytest.mark.parametrize("durability", ["durable", "volatile"])
def test_what_the_standby_never_heard_of_is_not_granted_twice(pair: Pair, durability: str) -> None:
    upgrade(pair.url, durability=durability)
    with Locks(pair.url) as locks, Locks(pair.url) as others:
        assert locks.lease("before", ttl=LONG, renew=False).acquire()
        eventually(pair.caught_up)
        pair.standby.stop()  # not paused: nothing of what follows may be on its way
        if durability == "volatile":
            pair.primary.crash_backend()  # nor of this, and of the epoch that it began
        lease = locks.lease("report", ttl=LONG, renew=False)
        if durability == "volatile":
            assert not lease.acquire(blocking=False)
            shorten_pause(pair.url, 0)
        for _ in range(3):
            assert lease.acquire()
            fence = lease.fence
            lease.release()
        assert lease.acquire()
        pair.primary.kill()
        pair.standby.start()
        pair.standby.promote()
        first = clock(pair.url)
        for lock in (others.lease("report"), others.lease("other"), others.row("report")):
            assert "nothing is granted for another" in str(lock._acquire(0))
        found_out, open_from = clock(pair.url), grants_from(pair.url)
        assert (open_from - first).total_seconds() >= LONG
        assert (open_from - found_out).total_seconds() <= LONG
        shorten_pause(pair.url, SHORT)
        with others.lease("report", ttl=LONG) as later:
            assert later.fence > fence + 1
            acquired_at = others.show("report").acquired_at
            assert acquired_at is not None
            assert acquired_at >= grants_from(pair.url)
            with pytest.raises(LockLost) as caught:
                lease.renew()
            assert caught.value.reason == "failover"


def test_a_gate_refuses_the_old_primarys_holders_once_a_new_one_has_passed(
    pair: Pair, tmp_path: Path
) -> None:
    """However often the old primary has granted the name without the standby's knowledge."""
    warehouse = create_engine(f"sqlite:///{tmp_path}/warehouse.db")
    table(metadata := MetaData())
    metadata.create_all(warehouse)
    with Locks(pair.url) as locks, Locks(pair.url) as others:
        assert locks.lease("before", ttl=LONG, renew=False).acquire()
        eventually(pair.caught_up)
        pair.standby.stop()
        fences = []
        for _ in range(20):
            with locks.lease("report", ttl=LONG) as lease:
                fences.append(lease.fence)
        pair.primary.kill()
        pair.standby.start()
        pair.standby.promote()
        assert "nothing is granted for another" in str(others.lease("report")._acquire(0))
        shorten_pause(pair.url, SHORT)
        with others.lease("report", ttl=LONG) as later, warehouse.begin() as connection:
            gate(connection, "report", later.fence)
        for fence in fences:
            with pytest.raises(StaleFence), warehouse.begin() as connection:
                gate(connection, "report", fence)
    warehouse.dispose()


@pytest.mark.parametrize("durability", ["durable", "volatile"])
def test_a_crash_after_a_promotion_does_not_end_its_pause(pair: Pair, durability: str) -> None:
    """Twice, and an immediate stop; the lease was never heard of there."""
    upgrade(pair.url, durability=durability)
    with Locks(pair.url) as locks, Locks(pair.url) as others:
        assert locks.lease("before", ttl=LONG, renew=False).acquire()
        eventually(pair.caught_up)
        pair.standby.stop()
        lease = locks.lease("report", ttl=LONG, renew=False)
        assert lease.acquire()
        pair.primary.kill()
        pair.standby.start()
        pair.standby.promote()
        assert "nothing is granted for another" in str(others.lease("report")._acquire(0))
        ends = grants_from(pair.url)
        for crash in (pair.standby.crash_backend, pair.standby.crash_backend, pair.stop):
            crash()
            assert "nothing is granted for another" in str(others.lease("report")._acquire(0))
            assert grants_from(pair.url) >= ends
            with pytest.raises(LockLost) as caught:
                lease.renew()
            assert caught.value.reason == "failover"


def test_a_promotion_in_a_pause_begins_another(pair: Pair) -> None:
    with Locks(pair.url) as locks:
        assert locks.lease("report", ttl=LONG, renew=False).acquire()
        eventually(pair.caught_up)
        pair.fail_over()
        assert "nothing is granted for another" in str(locks.lease("other")._acquire(0))
        ends = grants_from(pair.url)
        second = Pair(pair.standby, pair.standby.standby(), pair.database)
        with Locks(second.url) as others:
            second.fail_over()
            assert "nothing is granted for another" in str(others.lease("other")._acquire(0))
            assert grants_from(second.url) > ends
            assert (grants_from(second.url) - clock(second.url)).total_seconds() <= LONG


def test_an_old_primary_beside_the_new_one_is_left(pair: Pair, world: World) -> None:
    """Both can be written to. Whoever has reached the new one does not go back."""
    new, old = pair.standby.url_for(pair.database), pair.primary.url_for(pair.database)
    with world.locks(old) as before:
        assert before.list() == []
        pair.standby.promote()
        with world.locks(new) as after, world.locks(old) as later:
            assert after.list() == []
            for locks in (before, later):  # one with a connection that it has had since
                with pytest.raises(Unavailable, match="another has taken its place"):
                    locks.lease("other").acquire(blocking=False)
                with pytest.raises(Unavailable, match="another has taken its place"):
                    locks.row("other").acquire(blocking=False)
        with world.locks(f"{pair.url}&load_balance_hosts=random") as either:

            def found() -> bool:
                with contextlib.suppress(Unavailable):
                    return either.list() == []
                return False

            eventually(found)
            with pytest.raises(NotAcquired, match="nothing is granted for another"):
                either.lease("other", wait=0).__enter__()
    assert execute(old, "SELECT count(*) FROM dblock_lock WHERE lock_name = 'other'") == [(0,)]


def test_a_server_that_was_restarted_is_the_same(pair: Pair) -> None:
    with Locks(pair.url) as locks, locks.lease("report", ttl=LONG) as lease:
        pair.primary.kill()
        pair.primary.start()
        lease.renew()
