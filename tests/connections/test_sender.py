"""Statements through libpq, on a real server: prepared, and prepared anew."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from dblock import Timeouts
from dblock.dialects.adapter import Send, ServerSession
from dblock.dialects.postgresql.adapter import Psycopg
from dblock.dialects.query import Query
from dblock.protocol.faults import Fault
from tests.conftest import Database, lent
from tests.support import SECONDS

pytestmark = pytest.mark.parametrize("db", ["postgresql"], indirect=True)
db = pytest.fixture(lent)

ADAPTER = Psycopg(Timeouts())
SUM: Query[Any] = Query("SELECT %(a)s::int + %(b)s::int, 7 %% 4", {"a": 1, "b": 2})
#: How often psycopg, and with it dblock, sends a statement before it prepares it.
THRESHOLD = 5


@pytest.fixture
def connection(db: Database) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(db.url.replace("+psycopg", "")) as connection:
        yield connection


@pytest.fixture
def session(connection: psycopg.Connection[Any]) -> ServerSession:
    return ADAPTER.prepare_connection(connection)


@pytest.fixture
def send(connection: psycopg.Connection[Any], session: ServerSession) -> Send:
    return ADAPTER.sender(connection)


def prepared(send: Send) -> list[str]:
    """The names of the session's prepared statements, as the server says."""
    sql = "SELECT name FROM pg_prepared_statements WHERE name <> ''"
    rows, _ = send(Query(sql, {}), SECONDS)
    return [row[0] for row in rows]


def often(send: Send, query: Query[Any] = SUM) -> None:
    for _ in range(THRESHOLD + 1):
        assert send(query, SECONDS) == ([(3, 3)], 1)


def test_what_is_sent_again_and_again_is_prepared(send: Send) -> None:
    for _ in range(THRESHOLD):
        assert send(SUM, SECONDS) == ([(3, 3)], 1)
    assert prepared(send) == []
    often(send)
    (name,) = prepared(send)
    assert name.startswith("dblock_")


def test_types_are_part_of_a_statement(send: Send) -> None:
    often(send)
    often(send, SUM._replace(params={"a": "1", "b": "2"}))
    assert len(prepared(send)) == 2


@pytest.mark.parametrize("forgets", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_what_is_forgotten_is_prepared_anew(send: Send, forgets: str) -> None:
    often(send)
    send(Query(forgets, {}), SECONDS)
    often(send)
    assert len(prepared(send)) == 1


def test_what_a_migration_has_made_stale_is_prepared_anew(send: Send) -> None:
    for sql in ("CREATE TEMPORARY TABLE told (number int)", "INSERT INTO told VALUES (3)"):
        send(Query(sql, {}), SECONDS)
    read = Query[Any]("SELECT number FROM told", {})
    for kind in ("int", "bigint", "text"):
        send(Query(f"ALTER TABLE told ALTER COLUMN number TYPE {kind}", {}), SECONDS)
        for _ in range(2 * THRESHOLD):
            assert send(read, SECONDS) == ([("3" if kind == "text" else 3,)], 1)
        assert len(prepared(send)) == 1


def test_a_statement_that_somebody_has_prepared_is_used(
    send: Send, connection: psycopg.Connection[Any]
) -> None:
    """As behind a pooler, which hands a backend from one client to the next."""
    often(send)
    another = ADAPTER.sender(connection)
    often(another)
    assert len(prepared(another)) == 1


def test_nothing_is_prepared_where_that_is_not_wanted(
    send: Send, connection: psycopg.Connection[Any]
) -> None:
    connection.prepare_threshold = None
    often(send)
    assert prepared(send) == []


def test_in_a_transaction_nothing_is_sent_again(send: Send) -> None:
    often(send)
    send(Query("BEGIN", {}), SECONDS)
    send(Query("DEALLOCATE ALL", {}), SECONDS)
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        send(SUM, SECONDS)
    send(Query("ROLLBACK", {}), SECONDS)


def test_what_is_longer_than_the_socket_takes_at_once(send: Send) -> None:
    length = 2**24
    query: Query[Any] = Query("SELECT length(%(text)s::text)", {"text": "x" * length})
    assert send(query, SECONDS) == ([(length,)], 1)


def test_how_many_rows_it_was_about(send: Send) -> None:
    assert send(Query("CREATE TEMPORARY TABLE numbers (n int)", {}), SECONDS) == ((), -1)
    assert send(Query("INSERT INTO numbers SELECT generate_series(1, 3)", {}), SECONDS) == ((), 3)
    assert send(Query("SELECT n FROM numbers WHERE n > 3", {}), SECONDS) == ([], 0)


@pytest.mark.parametrize(
    ("sql", "state", "fault"),
    [
        ("SELECT 1 / 0", "22012", None),
        ("SELECT FROM missing", "42P01", Fault.SCHEMA),
        ("SET LOCAL lock_timeout = 1; SELECT 1", "42601", None),
    ],
)
def test_errors_are_psycopgs(send: Send, sql: str, state: str, fault: Fault | None) -> None:
    with pytest.raises(psycopg.Error) as caught:
        send(Query(sql, {}), SECONDS)
    assert (caught.value.sqlstate, ADAPTER.classify(caught.value)) == (state, fault)
    often(send)  # it goes on


def test_who_does_not_answer_in_time_is_given_up(
    send: Send, connection: psycopg.Connection[Any]
) -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        send(Query("SELECT pg_sleep(%(long)s)", {"long": SECONDS}), 0.1)
    assert ADAPTER.timed_out(caught.value)
    assert ADAPTER.classify(caught.value) is Fault.DISCONNECTED
    assert not ADAPTER.is_usable(connection)


def test_who_ends_the_session_is_heard(
    send: Send, connection: psycopg.Connection[Any], db: Database
) -> None:
    with psycopg.connect(db.url.replace("+psycopg", ""), autocommit=True) as another:
        end = "SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,)
        ending = threading.Timer(0.1, lambda: another.execute(*end))
        ending.start()
        with pytest.raises(psycopg.errors.AdminShutdown):
            send(Query("SELECT pg_sleep(%(long)s)", {"long": SECONDS}), 2 * SECONDS)
        ending.join()


def test_ctrl_c_ends_the_statement_too(send: Send, connection: psycopg.Connection[Any]) -> None:
    interrupt = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        send(Query("SELECT pg_sleep(%(long)s)", {"long": SECONDS}), 2 * SECONDS)
    assert connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_call_that_comes_with_an_answer_is_heard(
    send: Send, connection: psycopg.Connection[Any], session: ServerSession
) -> None:
    channel = ADAPTER.listen(connection, session, lambda size: "00" * (size - 1) + "07")
    ticket = f"{channel}0001"
    send(
        Query(
            "SELECT pg_notify(%(channel)s, %(ticket)s)",
            {
                "channel": f"dblock_{channel}",
                "ticket": ticket,
            },
        ),
        SECONDS,
    )
    often(send)
    assert ADAPTER.called(connection) == [(ticket, None)]
