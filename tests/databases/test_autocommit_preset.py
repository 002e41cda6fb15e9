"""A server whose preset of autocommit is off, and whose greeting says that it is on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from sqlalchemy import make_url

from dblock import Locks
from dblock.schema import upgrade
from tests.conftest import find_or_skip
from tests.servers import MariaDB, MySQL
from tests.support import LONG
from tests.worlds.portal import WORLDS

DRIVERS = {"threads": ("pymysql", "mysqldb", "mysqlconnector"), "asyncio": ("asyncmy", "aiomysql")}


@pytest.fixture(scope="module", params=[MariaDB, MySQL])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with find_or_skip(partial(request.param, options=["--autocommit=0"])) as server:
        server.create_database("shop")
        upgrade(server.url_for("shop"))
        yield server.url_for("shop")


@pytest.mark.parametrize(
    ("world", "driver"), [(world, driver) for world in DRIVERS for driver in DRIVERS[world]]
)
def test_users_transactions_hold_locks(url: str, world: str, driver: str) -> None:
    users = make_url(url).set(drivername=f"mysql+{driver}")
    if driver == "mysqlconnector":
        users = users.update_query_dict({"use_pure": "true"})
    with WORLDS[world]() as here, here.locks(url) as locks, Locks(url) as others:
        engine = here.engine(users.render_as_string(hide_password=False))
        with engine.connect() as connection, locks.lease("report", ttl=LONG) as lease:
            assert locks.row("order", on=connection, wait=0).acquire()
            assert not others.row("order", wait=0).acquire()
            with lease.guard(connection):
                pass
            connection.rollback()
            with others.row("order", wait=0):
                pass
        engine.dispose()
