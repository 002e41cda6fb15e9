"""A user's connection that breaks, with each driver that may have it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from dblock import Locks, SocketTimeout, Timeouts, Unavailable
from tests.conftest import BORROWED, SERVERS
from tests.faults.conftest import Net
from tests.servers import FAMILY, execute
from tests.support import SECONDS, Threads
from tests.worlds.portal import WORLDS

PAIRS = [(world, kind) for world in WORLDS for kind in (*SERVERS, *BORROWED[world])]
pytestmark = pytest.mark.parametrize(("world", "net"), PAIRS, indirect=True)

SESSION = {
    "postgresql": "SELECT pg_backend_pid()",
    **dict.fromkeys(FAMILY, "SELECT CONNECTION_ID()"),
}
END = {"postgresql": "SELECT pg_terminate_backend({})", **dict.fromkeys(FAMILY, "KILL {}")}


@pytest.fixture
def near(net: Net) -> Iterator[Locks]:
    """Those whose own connections are good."""
    with net.world.locks(net.db.url, timeouts=Timeouts(connect=1, query=0.3, socket=0.8)) as made:
        yield made


@pytest.mark.parametrize("how", ["row", "guard"])
def test_a_server_that_went_deaf(net: Net, near: Locks, threads: Threads, how: str) -> None:
    """It acknowledges and never answers: the wait has its end all the same."""
    held = near.lease("held", ttl=60)
    assert held.acquire()
    engine = net.engine()
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        net.proxy.deaf = True
        row = near.row("report", wait=0.2, on=connection)
        call = row.acquire if how == "row" else held.guard(connection).__enter__
        with pytest.raises(SocketTimeout, match="connection broke"):
            threads.attempt(call).result(SECONDS)
        assert connection.invalidated
        net.proxy.restore()
    with engine.connect() as connection, near.row("report", wait=0, on=connection):
        connection.rollback()
    held.release()
    engine.dispose()


@pytest.mark.parametrize("how", ["row", "guard"])
def test_an_answer_that_trickles(net: Net, near: Locks, threads: Threads, how: str) -> None:
    """Each byte of it comes in time, and all of them do not."""
    held = near.lease("held", ttl=60)
    assert held.acquire()
    engine = net.engine()
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        net.proxy.trickle = near.timeouts.socket / 2
        row = near.row("report", wait=0.2, on=connection)
        call = row.acquire if how == "row" else held.guard(connection).__enter__
        with pytest.raises(SocketTimeout, match="connection broke"):
            threads.attempt(call).result(SECONDS)
        net.proxy.trickle = 0.0
    with engine.connect() as connection, near.row("report", wait=0, on=connection):
        connection.rollback()
    held.release()
    engine.dispose()


@pytest.mark.parametrize("how", ["row", "guard"])
def test_a_session_that_was_ended(net: Net, near: Locks, how: str) -> None:
    held = near.lease("held", ttl=60)
    assert held.acquire()
    engine = net.engine()
    # asyncpg may hear of its end later, when SQLAlchemy rolls back.
    with contextlib.suppress(DBAPIError), engine.connect() as connection:
        session = connection.execute(text(SESSION[net.db.kind])).scalar_one()
        execute(net.db.url, END[net.db.kind].format(session))
        row = near.row("report", on=connection)
        call = row.acquire if how == "row" else held.guard(connection).__enter__
        with pytest.raises(Unavailable, match="connection broke, and with it the transaction"):
            call()
    held.release()
    engine.dispose()
    another = net.engine()
    with another.connect() as connection, near.row("report", wait=0, on=connection):
        connection.rollback()
    another.dispose()
