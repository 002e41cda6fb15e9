"""A standby takes the primary's place while a lease is held (promise 15)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from dblock import Lease, LockLost, Locks, Timeouts
from tests.conftest import NewDatabase, OwnServers
from tests.servers import PostgreSQL, execute
from tests.support import LONG, SECONDS, eventually


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
        query = f"SELECT count(*) FROM dblock_lock WHERE token = '{token}'"
        with contextlib.suppress(DBAPIError):
            return execute(self.standby.url_for(self.database), query) == [(1,)]
        return False

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.promote()


@pytest.fixture
def pair(own_server: OwnServers, new_database: NewDatabase) -> Pair:
    primary = own_server(PostgreSQL)
    standby = primary.standby()
    db = new_database("postgresql", migrated=True, server=primary)
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
        lease = locks.lease("report", ttl=LONG, renew=use is be_told)
        assert lease.acquire()
        eventually(lambda: pair.replicated(lease.token))
        pair.fail_over()
        engine.dispose()
        with pytest.raises(LockLost) as caught:
            use(lease, engine)
        assert caught.value.reason == "failover"
        with pytest.raises(LockLost):
            lease.release()
        # It was freed all the same, by its token: nobody has to wait for its expiry.
        assert lease.acquire(blocking=False)
        lease.renew()
        lease.release()
    engine.dispose()


def test_a_server_that_was_restarted_is_the_same(pair: Pair) -> None:
    with Locks(pair.url) as locks, locks.lease("report", ttl=LONG) as lease:
        pair.primary.kill()
        pair.primary.start()
        lease.renew()
