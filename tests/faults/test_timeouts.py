"""Three layers of timeouts: each ends, each has its own error, and none leaves anything behind."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import Session

from dblock import (
    ConnectTimeout,
    LockLost,
    Locks,
    OutcomeUnknown,
    QueryTimeout,
    SocketTimeout,
    Timeouts,
    Unavailable,
)
from tests.conftest import SERVERS, Database, NewDatabase
from tests.faults.conftest import GRANT, RELEASE, Net
from tests.faults.proxy import Lose
from tests.faults.test_settling import SESSIONS, locked
from tests.servers import FAMILY, execute
from tests.support import LONG, SECONDS, Threads, eventually
from tests.worlds.world import World

QUICK = Timeouts(connect=1, query=0.3, socket=0.8)


@pytest.fixture
def quick(net: Net) -> Iterator[Locks]:
    with net.new_locks(QUICK) as locks:
        assert locks.list() == []  # it has a connection that was good a moment ago
        yield locks


# --- the socket --------------------------------------------------------------------------------


def test_a_server_that_went_deaf(net: Net, quick: Locks, threads: Threads) -> None:
    """Acknowledges everything, answers nothing: neither keepalives nor the kernel notice."""
    held = quick.lease("held", ttl=60)
    row = quick.row("row")
    assert held.acquire()
    assert row.acquire()
    with net.engine().connect() as connection:
        connection.begin()
        connection.exec_driver_sql("SELECT 1")
        net.proxy.deaf = True
        before = len(net.proxy.requests)
        acquiring = threads.attempt(quick.lease("other", ttl=60).acquire)
        # On the connection that was good a moment ago.
        eventually(lambda: any(GRANT in request for request in net.proxy.requests[before:]))
        calls: list[tuple[type[Exception], Callable[[], object]]] = [
            (SocketTimeout, lambda: held.guard(connection).__enter__()),
            (Unavailable, lambda: quick.show("held")),
            (Unavailable, lambda: quick.row("other").acquire()),
            (Unavailable, quick.list),
            (LockLost, row.check),
        ]
        outcomes: list[tuple[type[Exception], Future[Any]]] = [(OutcomeUnknown, acquiring)]
        outcomes += [(error, threads.attempt(call)) for error, call in calls]
        for error, outcome in outcomes:
            with pytest.raises(error):
                outcome.result(SECONDS)
        with pytest.raises(Unavailable):
            threads.run(held.release)
    # Whatever was sent then never arrived.
    assert [state.name for state in net.direct.list()] == ["held"]
    net.proxy.restore()
    held.release()
    assert net.direct.list() == []


def test_an_answer_that_trickles_is_given_up_as_one_that_does_not_come(
    net: Net, quick: Locks, threads: Threads
) -> None:
    """Each byte comes in time, and all of them do not. So do those of whoever looks what became."""
    lease = quick.lease("report", ttl=60)

    def seconds() -> float:
        before = time.monotonic()
        with pytest.raises((OutcomeUnknown, Unavailable)):
            threads.run(lambda: lease.acquire(blocking=False))
        return time.monotonic() - before

    net.proxy.deaf = True
    silent = seconds()
    net.proxy.restore()
    assert quick.list() == []
    net.proxy.trickle = QUICK.socket / 2
    assert seconds() < 3 * silent
    with pytest.raises(Unavailable):
        quick.show("report")


def test_a_connection_that_fell_silent_is_replaced(net: Net, quick: Locks) -> None:
    """The connection alone is dead: whoever used it, is told the truth by way of another."""
    net.proxy.lose(Lose.REPLY_SILENTLY, GRANT)
    lease = quick.lease("report", ttl=60)
    assert lease.acquire()
    assert lease.fence == 1
    net.proxy.lose(Lose.REPLY_SILENTLY, RELEASE)
    lease.release()
    assert net.direct.list() == []


def test_looking_takes_no_longer_than_the_socket(net: Net, quick: Locks) -> None:
    net.proxy.lose(Lose.REPLY_SILENTLY, b"SELECT lock_name", hook=net.proxy.refuse)
    with pytest.raises(Unavailable):
        quick.show("report")


@pytest.mark.parametrize("lose", [Lose.REPLY_SILENTLY, Lose.TIMELINESS])
def test_no_session_is_left_behind(net: Net, quick: Locks, lose: Lose) -> None:
    before = set(execute(net.db.url, SESSIONS[net.db.kind]))
    lost = net.proxy.lose(lose, GRANT)
    lease = quick.lease("report", ttl=60)
    assert lease.acquire()
    after = set(execute(net.db.url, SESSIONS[net.db.kind]))
    assert lost.done.wait(SECONDS)
    # One was ended, and one taken in its place.
    assert len(after) <= len(before)
    assert after - before
    lease.release()


def test_a_row_lock_is_not_its_own_rival(net: Net, quick: Locks) -> None:
    """What a lost connection may have locked, with nobody there to tell, is not waited for."""
    assert locked(net.direct, "report")  # the name's row is there
    ghost = net.proxy.lose(Lose.TIMELINESS, b"FOR UPDATE")
    net.proxy.lose(Lose.NOTHING, b"FOR UPDATE", hook=ghost.deliver)
    with quick.row("report", wait=LONG) as row:
        assert row.held
        assert not net.direct.row("report").acquire(blocking=False)
    assert locked(net.direct, "report")


def test_a_row_lock_whose_end_is_not_heard_of_is_ended(net: Net, quick: Locks) -> None:
    row = quick.row("report")
    assert row.acquire()
    net.proxy.lose(Lose.TIMELINESS, b"COMMIT")
    with pytest.raises(LockLost):
        row.release()
    assert locked(net.direct, "report")


# --- connecting --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SERVERS)
def test_a_port_where_nobody_speaks(kind: str, threads: Threads) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with Locks(f"{kind}://a@127.0.0.1:{port}/app", timeouts=QUICK) as locks:
            uses = (locks.list, locks.lease("report").acquire, locks.row("report").acquire)
            for outcome in [threads.attempt(use) for use in uses]:
                with pytest.raises(ConnectTimeout if kind == "postgresql" else Unavailable):
                    outcome.result(SECONDS)


# --- the query ---------------------------------------------------------------------------------

BLOCK = {
    "postgresql": ["BEGIN", "LOCK TABLE dblock_lock IN ACCESS EXCLUSIVE MODE"],
    **{kind: ["LOCK TABLES dblock_lock WRITE"] for kind in FAMILY},
}


@pytest.mark.parametrize("kind", SERVERS)
def test_the_server_gives_up_before_the_client(kind: str, new_database: NewDatabase) -> None:
    db = new_database(kind, migrated=True)
    engine = create_engine(db.url, isolation_level="AUTOCOMMIT")
    with Locks(db.url, timeouts=Timeouts(connect=2, query=0.2, socket=LONG)) as locks:
        assert locks.list() == []
        with engine.connect() as blocker:
            for statement in BLOCK[kind]:
                blocker.exec_driver_sql(statement)
            with pytest.raises(QueryTimeout, match="gave the statement up"):
                locks.show("report")
            blocker.invalidate()
        assert locks.lease("report").acquire(timeout=LONG)  # on the same connection
    engine.dispose()


NO_WRITES = {
    "postgresql": ["BEGIN", "LOCK TABLE dblock_lock IN EXCLUSIVE MODE"],
    **{kind: ["LOCK TABLES dblock_lock READ"] for kind in FAMILY},
}
GIVES_UP = Timeouts(connect=5, query=0.2, socket=0.5)
# MySQL limits reads alone, so there the client gives up, and ends the session.
TOLD = {
    **dict.fromkeys(SERVERS, (QueryTimeout, "gave the statement up")),
    "mysql": (SocketTimeout, "connection to the database broke"),
}


@contextlib.contextmanager
def blocking(url: str, statements: list[str]) -> Iterator[None]:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as blocker:
        for statement in statements:
            blocker.exec_driver_sql(statement)
        try:
            yield
        finally:
            blocker.invalidate()
    engine.dispose()


@pytest.mark.parametrize("wait", [0, 0.5])
def test_a_grant_that_the_server_gave_up_is_told_as_that(net: Net, wait: float) -> None:
    """It was undone: neither is the name refused nor the outcome unknown."""
    error, says = TOLD[net.db.kind]
    with net.world.locks(net.db.url, timeouts=GIVES_UP) as locks:
        assert locks.list() == []
        with blocking(net.db.url, NO_WRITES[net.db.kind]):
            lease = locks.lease("report", wait=wait)
            with pytest.raises(error, match=says):
                lease.acquire()
            assert not lease.held
        assert lease.acquire(timeout=SECONDS)


def test_a_grant_that_a_held_name_refuses_is_refused_all_the_same(net: Net) -> None:
    with net.direct.lease("report"), net.world.locks(net.db.url, timeouts=GIVES_UP) as locks:
        assert len(locks.list()) == 1
        with blocking(net.db.url, NO_WRITES[net.db.kind]):
            assert not locks.lease("report").acquire(blocking=False)


def test_a_grant_is_undone_where_the_database_cannot_be_asked(
    new_database: NewDatabase, world: World
) -> None:
    """PostgreSQL's grant is one statement, which its error undoes. MariaDB's has parts."""
    db = new_database("postgresql", migrated=True)
    with world.locks(db.url, timeouts=GIVES_UP) as locks:
        assert locks.list() == []
        with blocking(db.url, BLOCK["postgresql"]), pytest.raises(QueryTimeout):
            locks.lease("report", wait=0).acquire()
        assert locks.lease("report").acquire(timeout=SECONDS)


def test_a_wait_that_the_server_ended_leaves_no_trace(net: Net, threads: Threads) -> None:
    """It stands in the queue, so it is told that nobody knows: it may have been passed the name."""
    with net.direct.lease("report"), net.world.locks(net.db.url, timeouts=GIVES_UP) as locks:
        waiting = threads.attempt(locks.lease("report").acquire)
        eventually(lambda: bool(net.direct.show("report").waiters))
        with (
            blocking(net.db.url, BLOCK[net.db.kind]),
            pytest.raises((QueryTimeout, OutcomeUnknown)),
        ):
            waiting.result(SECONDS)
        assert not net.direct.show("report").waiters
        assert not any(state.waiters for state in net.direct.list())


def test_the_sessions_of_dblock(new_database: NewDatabase) -> None:
    """What they ask of a PostgreSQL server; settings of the user's stay."""
    db = new_database("postgresql", migrated=True)
    url = make_url(db.url).update_query_dict({"options": "-c statement_timeout=1234"})
    with Locks(url, timeouts=Timeouts(connect=2, query=4, socket=10)) as locks:
        connection = locks._database.holders.take()
        rows = connection.driver.execute("SELECT name, setting FROM pg_settings")
        settings = dict(rows.fetchall())
        locks._database.holders.give(connection)
    assert settings["statement_timeout"] == "1234"
    assert settings["client_connection_check_interval"] == "50"
    assert settings["tcp_keepalives_idle"] == "5"
    assert settings["tcp_user_timeout"] == "10000"


def test_an_idle_row_lock_is_no_forgotten_transaction(new_database: NewDatabase) -> None:
    db = new_database("postgresql", migrated=True)
    name = make_url(db.url).database
    limit = "idle_in_transaction_session_timeout = '2s'"  # a stall while it connects is shorter
    execute(db.url, f'ALTER DATABASE "{name}" SET {limit}')
    engine = create_engine(db.url)
    with Locks(db.url) as locks, locks.row("report") as row, engine.connect() as yardstick:
        yardstick.exec_driver_sql("SELECT 1")
        ended = "SELECT count(*) FROM pg_stat_activity WHERE pid = "
        ended += str(yardstick.connection.driver_connection.info.backend_pid)  # type: ignore[union-attr]
        eventually(lambda: execute(db.url, ended) == [(0,)])
        yardstick.invalidate()
        row.check()
    engine.dispose()


# --- lent engines ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("postgresql", "tcp_user_timeout"), *((kind, "read_timeout") for kind in FAMILY)],
)
def test_what_a_lent_engine_lacks_is_said_once(
    kind: str, missing: str, new_database: NewDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    db = new_database(kind, migrated=True)
    engine = create_engine(db.url)
    with caplog.at_level(logging.WARNING, "dblock"), Locks(engine) as locks:
        for _ in range(2):
            assert locks.list() == []
            with locks.row("report"), Session(engine) as session, locks.row("two", on=session):
                pass
    (record,) = caplog.records
    assert missing in record.getMessage()
    engine.dispose()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_url_lacks_nothing(
    kind: str, new_database: NewDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    db = new_database(kind, migrated=True)
    with caplog.at_level(logging.WARNING, "dblock"), Locks(db.url) as locks:
        assert locks.list() == []
    assert caplog.records == []


def test_a_lent_engines_connections_are_bounded_all_the_same(net: Net, threads: Threads) -> None:
    arguments = {"connect_timeout": 2} | ({"read_timeout": 1} if net.db.kind in FAMILY else {})
    engine = create_engine(net.proxy.url, connect_args=arguments)
    with Locks(engine, timeouts=QUICK) as locks:
        assert locks.list() == []
        net.proxy.deaf = True
        with pytest.raises(Unavailable):
            threads.run(locks.list)
    engine.dispose()


# --- a primary that is elsewhere ---------------------------------------------------------------


def test_a_waiter_survives_a_time_without_a_primary(
    new_database: NewDatabase, threads: Threads
) -> None:
    """As after a failover, when the old primary is a standby for some time."""
    db: Database = new_database("postgresql", migrated=True)
    name = make_url(db.url).database
    read_only = f'ALTER DATABASE "{name}" SET default_transaction_read_only = '
    execute(db.url, read_only + "on")
    with Locks(db.url, timeouts=Timeouts(connect=2, query=5, socket=LONG)) as locks:
        refused = threading.Event()
        classify = locks._database.dialect.adapter.classify

        def noticing(error: BaseException) -> object:
            refused.set()
            return classify(error)

        locks._database.dialect.adapter.classify = noticing  # type: ignore[method-assign, assignment]
        waiting = threads.start(locks.lease("report", ttl=60).acquire)
        assert refused.wait(LONG)
        execute(db.url, read_only + "off", options="-c default_transaction_read_only=off")
        assert waiting.result(LONG)
