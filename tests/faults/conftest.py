"""A database of its own behind a proxy of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import Locks, Timeouts
from dblock.schema import upgrade
from tests.conftest import SERVERS, NewDatabase, find_or_skip
from tests.faults.proxy import Proxy
from tests.lending import Database, Lender
from tests.servers import FAMILY, PostgreSQL, execute
from tests.worlds.portal import WORLDS
from tests.worlds.world import World

# Bytes that occur in one statement only.
GRANT = b"acquired_at = "
RENEW = b"SET expires_at"
RELEASE = b"SET token = NULL"
# A release of what must not be believed in, for somebody may wait for it.
GIVE_BACK = {"postgresql": b"FROM newest LEFT JOIN first", **dict.fromkeys(FAMILY, RELEASE)}


@dataclass
class Net:
    """dblock on both ways to one database: through the proxy, in some world, and around it."""

    db: Database
    proxy: Proxy
    world: World
    locks: Locks
    direct: Locks

    def new_locks(self, timeouts: Timeouts) -> Locks:
        return self.world.locks(self.proxy.url, timeouts=timeouts)

    def engine(self, **options: Any) -> Engine:
        """The user's own, through the proxy."""
        through = replace(self.db, url=self.proxy.url)
        return self.world.engine(through.users_url, **options)


def refuse_set_up(url: str, locks: Locks) -> Callable[[], None]:
    """Let dblock refuse every new connection of ``locks``: a newer version has upgraded the tables,
    and the server has joined a cluster, so dblock looks at them again. Return what undoes it."""
    ((version,),) = execute(url, "SELECT version FROM dblock_schema")
    execute(url, "UPDATE dblock_schema SET version = 99")
    locks._database.dialect.settle(None)

    def undo() -> None:
        execute(url, f"UPDATE dblock_schema SET version = {version}")

    return undo


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with WORLDS[request.param]() as made:
        yield made


@pytest.fixture(params=SERVERS)
def net(request: pytest.FixtureRequest, world: World, lender: Lender) -> Iterator[Net]:
    with (
        lender.lend(request.param) as db,
        Proxy(db.url) as proxy,
        world.locks(proxy.url, timeouts=Timeouts(connect=2, query=1, socket=3)) as locks,
        Locks(db.url) as direct,
    ):
        with direct.row("report"):
            pass  # MariaDB takes a name that has a row with one statement
        yield Net(db, proxy, world, locks, direct)


@pytest.fixture
def unused(new_database: NewDatabase) -> Database:
    """A database on PostgreSQL with tables that nobody has used."""
    db = new_database("postgresql")
    upgrade(db.url)
    return db


@pytest.fixture
def volatile(unused: Database) -> Database:
    upgrade(unused.url, durability="volatile")
    return unused


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQL]:
    """A server that tests crash, and leave running."""
    with find_or_skip(PostgreSQL) as server:
        yield server


@pytest.fixture
def crashing(server: PostgreSQL, new_database: NewDatabase) -> Database:
    """An empty database on the server that crashes."""
    return new_database("postgresql", server=server)
