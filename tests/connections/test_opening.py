"""A transaction of the user's begun with its first statement, on a real server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection

from dblock import Locks
from dblock.dialects.postgresql import opening as opening_module
from dblock.dialects.postgresql import read_deadline
from dblock.dialects.postgresql import sender as sender_module
from dblock.dialects.postgresql.opening import Opener, opener
from dblock.dialects.query import Query
from tests.conftest import Database, lent
from tests.support import SECONDS, Threads, interrupted

pytestmark = pytest.mark.parametrize("db", ["postgresql"], indirect=True)
db = pytest.fixture(lent)

SUM: Query[Any] = Query("SELECT %(a)s::int + %(b)s::int, 7 %% 4, now()", {"a": 1, "b": 2})
ROW: Query[Any] = Query("SELECT * FROM pg_temp.thing WHERE n < %(most)s", {"most": 9})
NONE: Query[Any] = Query("SELECT * FROM no_table WHERE n < %(most)s", {"most": 9})
SLEEP: Query[Any] = Query("SELECT pg_sleep(%(seconds)s)", {"seconds": 60})
#: More often than it takes to be prepared.
OFTEN = 8


@pytest.fixture
def connection(db: Database) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(db.url.replace("+psycopg", "")) as connection:
        yield connection


@pytest.fixture
def opening(connection: psycopg.Connection[Any]) -> Opener:
    made = opener(connection)
    assert made is not None
    return made


def status(connection: psycopg.Connection[Any]) -> TransactionStatus:
    assert connection.pgconn.pipeline_status == PipelineStatus.OFF
    return TransactionStatus(connection.pgconn.transaction_status)


def make_thing(connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE TEMPORARY TABLE thing AS SELECT 1 AS n")
    connection.commit()


def often(opening: Opener, connection: psycopg.Connection[Any], query: Query[Any]) -> None:
    for _ in range(OFTEN):
        assert opening.open(query) is not None
        connection.rollback()


def prepared(connection: psycopg.Connection[Any]) -> int:
    """How many statements dblock has prepared there."""
    sql = "SELECT count(*) FROM pg_prepared_statements WHERE starts_with(name, 'dblock')"
    (count,) = connection.execute(sql).fetchone() or (0,)
    connection.rollback()
    return int(count)


def test_the_transaction_goes_on(connection: psycopg.Connection[Any], opening: Opener) -> None:
    for _ in range(OFTEN):
        opened = opening.open(SUM)
        assert opened is not None
        ((total, rest, since),), matched = opened
        assert (total, rest, matched) == (3, 3, 1)
        assert opening.kinds == [23, 23, 1184]
        assert status(connection) is TransactionStatus.INTRANS
        assert connection.execute("SELECT now()").fetchone() == (since,)
        assert opening.open(SUM) is None  # has begun
        connection.commit()
    assert prepared(connection) == 1


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("isolation_level", psycopg.IsolationLevel.REPEATABLE_READ),
        ("read_only", True),
        ("deferrable", True),
        ("autocommit", True),
    ],
)
def test_a_transaction_of_another_kind_is_the_drivers(
    connection: psycopg.Connection[Any], opening: Opener, setting: str, value: object
) -> None:
    setattr(connection, setting, value)
    assert opening.open(SUM) is None
    assert status(connection) is TransactionStatus.IDLE


def test_cursors_of_the_users_own_see_everything(db: Database) -> None:
    class Cursor(psycopg.Cursor[Any]):
        pass

    with psycopg.connect(db.url.replace("+psycopg", ""), cursor_factory=Cursor) as connection:
        assert opener(connection) is None


def test_a_failed_one_is_rolled_back_by_the_user(
    connection: psycopg.Connection[Any], opening: Opener
) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        opening.open(NONE)
    assert status(connection) is TransactionStatus.INERROR
    connection.rollback()
    assert opening.open(SUM) is not None


@pytest.mark.parametrize("change", ["DISCARD ALL", "ALTER TABLE pg_temp.thing ADD m INTEGER"])
def test_one_that_is_gone_or_stale_is_left_to_the_driver(
    connection: psycopg.Connection[Any], opening: Opener, change: str
) -> None:
    make_thing(connection)
    often(opening, connection, ROW)
    assert prepared(connection) == 1
    connection.autocommit = True
    connection.execute(change)
    connection.autocommit = False
    if change == "DISCARD ALL":
        make_thing(connection)
    assert opening.open(ROW) is None
    assert status(connection) is TransactionStatus.IDLE
    assert prepared(connection) == 0
    often(opening, connection, ROW)
    assert prepared(connection) == 1


def test_it_is_bounded(connection: psycopg.Connection[Any], opening: Opener) -> None:
    read_deadline.bound(connection, 0.1)
    with pytest.raises(psycopg.OperationalError, match=r"did not answer within 0\.1 s"):
        opening.open(SLEEP)
    assert connection.closed


def test_an_interruption_ends_it(connection: psycopg.Connection[Any], opening: Opener) -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        opening.open(SLEEP)
    assert status(connection) is TransactionStatus.INERROR
    connection.rollback()
    assert opening.open(SUM) is not None


def test_a_connection_that_is_gone_is_said_to_be(
    connection: psycopg.Connection[Any], opening: Opener, db: Database
) -> None:
    with psycopg.connect(db.url.replace("+psycopg", ""), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        opening.open(SUM)
    assert connection.closed


def test_the_encoding_is_that_of_now(connection: psycopg.Connection[Any], opening: Opener) -> None:
    """Its name for a row would be another row's."""
    echo: Query[Any] = Query("SELECT %(text)s::text, octet_length(%(text)s::text)", {"text": "é"})
    often(opening, connection, echo)
    connection.execute("SET client_encoding TO latin1")
    connection.commit()
    opened = opening.open(echo)
    assert opened is not None
    assert list(opened[0]) == [("é", 2)]


def test_what_is_notified_meanwhile_is_heard(
    connection: psycopg.Connection[Any], opening: Opener, db: Database
) -> None:
    heard: list[str] = []
    connection.add_notify_handler(lambda notify: heard.append(notify.payload))
    connection.execute("LISTEN here")
    connection.commit()
    with psycopg.connect(db.url.replace("+psycopg", ""), autocommit=True) as other:
        other.execute("NOTIFY here, 'hello'")
    for _ in range(2):  # it comes behind the answer of whatever is sent next
        assert opening.open(SUM) is not None
        connection.pgconn.exec_(b"ROLLBACK")
    assert heard == ["hello"]


def test_a_transaction_of_another_thread_is_left(
    connection: psycopg.Connection[Any], opening: Opener, threads: Threads
) -> None:
    often(opening, connection, SUM)
    asked = threading.Event()

    class Lock:
        """It is had by who executes a statement there."""

        def __enter__(self) -> None:
            asked.set()
            assert begun.wait(SECONDS)

        def __exit__(self, *error: object) -> None:
            pass

    begun, connection.lock = threading.Event(), Lock()  # type: ignore[assignment]
    waiting = threads.start(opening.open, SUM)
    assert asked.wait(SECONDS)
    connection.pgconn.exec_(b"BEGIN")
    begun.set()
    assert waiting.result(SECONDS) is None
    assert status(connection) == TransactionStatus.INTRANS


@pytest.mark.parametrize("threshold", [0, 5])
def test_an_interruption_at_each_line(db: Database, threshold: int) -> None:
    """It ends at once. SQLAlchemy throws the connection away then."""
    files = {opening_module.__file__, sender_module.__file__}
    for number in range(1, 500):
        connecting = psycopg.connect(db.url.replace("+psycopg", ""), prepare_threshold=threshold)
        with closing(connecting) as connection:
            opening = opener(connection)
            assert opening is not None
            if not interrupted(partial(opening.open, SUM), number, files):
                return
    pytest.fail("it never came to an end")


def test_what_begins_with_the_transaction_stays(db: Database) -> None:
    """A refusal is undone, and not what SQLAlchemy's listeners did first."""
    engine = create_engine(db.url)

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql("SET LOCAL application_name = 'tenant'")

    with (
        Locks(engine) as locks,
        psycopg.connect(db.url.replace("+psycopg", "")) as other,
        engine.connect() as connection,
    ):
        with locks.row("order"):
            pass
        other.execute("SELECT FROM dblock_lock WHERE lock_name = 'order' FOR UPDATE")
        assert not locks.row("order", on=connection, wait=0).acquire()
        name = connection.exec_driver_sql("SHOW application_name").scalar_one()
    engine.dispose()
    assert name == "tenant"


def test_two_locks_share_what_is_prepared(db: Database) -> None:
    engine = create_engine(db.url)
    openers = set()
    with engine.connect() as connection:
        for _ in range(4):
            with Locks(engine) as locks:
                assert locks.row("order", on=connection).acquire()
                connection.rollback()
            openers.add(connection.connection.info["dblock"].opener)
    engine.dispose()
    assert len(openers) == 1


def test_a_connection_that_its_pool_has_let_go(db: Database) -> None:
    engine = create_engine(db.url)
    with Locks(engine) as locks, engine.connect() as connection:
        connection.detach()
        assert locks.row("order", on=connection).acquire()
        connection.rollback()
    engine.dispose()


def test_what_the_user_waits_with_is_kept(connection: psycopg.Connection[Any]) -> None:
    waited: list[object] = []

    def wait(generator: Any, *args: Any, **kwargs: Any) -> Any:
        waited.append(generator)
        return psycopg.Connection.wait(connection, generator, *args, **kwargs)

    connection.wait = wait  # type: ignore[method-assign, assignment]
    with read_deadline.Bound(connection, 10.0):
        connection.execute("SELECT 1")
    assert waited
    assert connection.wait is wait
    assert read_deadline.within(connection) is None
