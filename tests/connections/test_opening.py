"""A transaction of the user's begun with its first statement, on a real server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from dblock.dialects.postgresql import read_deadline
from dblock.dialects.postgresql.opening import Opener, opener
from dblock.protocol.steps import Query
from tests.conftest import Database, lent

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
