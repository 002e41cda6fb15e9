"""Packets of several statements on a real MySQL: what they lock, and what is left when one of them
fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.exc import OperationalError

from dblock import Locks, Timeouts
from dblock.dialects.adapter import Send
from dblock.dialects.mariadb.adapter import PyMySQL
from dblock.dialects.mysql import MySQL as MySQLStatements
from dblock.dialects.packets import Answers
from dblock.dialects.query import THEN, Query, Result
from dblock.protocol import commands
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.state import Renewal
from tests.conftest import Database, NewDatabase, OwnServers, lent
from tests.servers import MySQL, execute
from tests.support import LONG, SECONDS

db = pytest.fixture(lent)
on_mysql = pytest.mark.parametrize("db", ["mysql"], indirect=True)

ADAPTER = PyMySQL(Timeouts())
DIALECT = MySQLStatements(None, "dblock_", Timeouts(), ADAPTER)
TOKEN, OTHER = "0123456789abcdef" * 2, "f" * 32
TICKET = "0123456789abcdef" + "01234567"
FAILS = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {}, MESSAGE_TEXT = 'from the test'"
COMMIT_FAILED = 3100  # ER_RUN_HOOK_ERROR: before the COMMIT it would be a refusal
BUSY = 3572


@pytest.fixture
def connection(db: Database) -> Iterator[Any]:
    url = make_url(db.url)
    connecting = pymysql.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        database=url.database,
    )
    ADAPTER.prepare_connection(connecting)
    yield connecting
    if connecting.open:
        connecting.close()


@pytest.fixture
def send(connection: Any) -> Send:
    return ADAPTER.sender(connection)


def ask(send: Send, command: commands.Command[Any]) -> Any:
    query = DIALECT.query(command)
    rows, matched = send(query._replace(sql=DIALECT.placed(query.sql)), SECONDS)
    return query.read(Result(rows, matched))


def transaction(*statements: str) -> Query[Any]:
    return Query(THEN.join(("START TRANSACTION", *statements, "COMMIT")), {})


# --- in the middle -----------------------------------------------------------------------------


@on_mysql
@pytest.mark.parametrize("code", [BUSY, 1213], ids=["busy", "a deadlock"])
def test_one_that_fails_leaves_no_transaction_open(send: Send, db: Database, code: int) -> None:
    """The connection is used again, and what the packet had locked and changed is as before."""
    execute(db.url, "INSERT INTO dblock_lock (lock_name, fence) VALUES ('a', 1)")
    changed = "UPDATE dblock_lock SET fence = 9 WHERE lock_name = 'a'"
    with pytest.raises(pymysql.Error, match="from the test"):
        send(transaction(changed, FAILS.format(code), "SELECT 1"), SECONDS)
    locked = "SELECT fence FROM dblock_lock WHERE lock_name = 'a' FOR UPDATE NOWAIT"
    assert execute(db.url, locked) == [(1,)]
    assert send(transaction(changed, "SELECT 2"), SECONDS)[0] == ((2,),)
    assert execute(db.url, locked) == [(9,)]


GUARD_OF_A = "SELECT 1 FROM dblock_guard WHERE lock_name = 'a' FOR SHARE NOWAIT"
ROW = "SELECT 1 FROM dblock_lock WHERE lock_name = '{}' FOR UPDATE NOWAIT"
RENEWED = tuple(Renewal(name, TOKEN, LONG) for name in ("a", "b"))


@on_mysql
@pytest.mark.parametrize(
    ("command", "in_use"),
    [
        (commands.Grant("a", OTHER, "owner", LONG), GUARD_OF_A),
        (commands.Join("a", OTHER, "owner", LONG, TICKET), GUARD_OF_A),
        (commands.Renew(RENEWED), ROW.format("b")),
    ],
    ids=["grant", "join", "renew"],
)
def test_a_client_that_stops_where_a_row_is_in_use_leaves_none_locked(
    connection: Any, send: Send, db: Database, command: commands.Command[Any], in_use: str
) -> None:
    """It has locked another row before, and nothing tells the server to give that back."""
    for name in ("a", "b"):
        ask(send, commands.Grant(name, TOKEN, "owner", LONG))
    if command.word != "renew":
        ask(send, commands.Release("a", TOKEN))
    engine = create_engine(db.url, poolclass=NullPool)
    with engine.connect() as other, engine.connect() as third:
        other.exec_driver_sql(in_use)
        with pytest.raises(StatementError) as caught:
            ask(send, command)
        assert caught.value.fault is Fault.BUSY
        query = DIALECT.query(command)
        query = query._replace(sql=DIALECT.placed(query.sql))
        # It stops as soon as it has the server's answer.
        ADAPTER.send_packet(connection, query, Answers(query.sql), SECONDS, False)
        third.exec_driver_sql(ROW.format("a"))
    assert ask(send, command)


@on_mysql
def test_a_new_name_does_not_lock_where_fences_begin(send: Send, db: Database) -> None:
    ask(send, commands.RaiseFloor(7))
    engine = create_engine(db.url, poolclass=NullPool)
    with engine.connect() as other:
        other.exec_driver_sql(ROW.format(""))
        assert ask(send, commands.Grant("a", TOKEN, "owner", LONG)).fence == 8


# --- what a try locks --------------------------------------------------------------------------


@on_mysql
@pytest.mark.parametrize("held", [True, False], ids=["held", "free"])
def test_a_mere_try_locks_no_guards_row(send: Send, db: Database, held: bool) -> None:
    """A guard asks for that row without waiting: it would fail because others try."""
    ask(send, commands.Grant("a", TOKEN, "owner", LONG))
    if not held:
        ask(send, commands.Release("a", TOKEN))
    engine = create_engine(db.url, poolclass=NullPool)
    send(Query("START TRANSACTION", {}), SECONDS)
    granted = ask(send, commands.Grant("a", OTHER, "owner", LONG, known=True))
    with engine.connect() as other:
        if held:
            assert granted is None
            assert other.exec_driver_sql(GUARD_OF_A).scalar() == 1
        else:  # a grant does
            assert granted is not None
            with pytest.raises(OperationalError, match=str(BUSY)):
                other.exec_driver_sql(GUARD_OF_A)


# --- a sweep -----------------------------------------------------------------------------------


@on_mysql
def test_a_sweep_skips_what_is_locked_and_what_is_renewed(send: Send, db: Database) -> None:
    """Without that it would wait for other sweeps, or delete the row of a waiter that lives."""
    for waiter in ("dead", "swept", "alive"):
        ask(send, commands.Register(waiter, "a", "lease", "owner", 2.0, -1.0, {}))
    swept = DIALECT.placed(DIALECT.query(commands.Sweep()).sql)
    begin, find, lock, delete, commit = swept.split(THEN)
    engine = create_engine(db.url, poolclass=NullPool)
    left = "SELECT id FROM dblock_waiter ORDER BY id"
    with engine.connect() as other:
        other.exec_driver_sql("SELECT 1 FROM dblock_waiter WHERE id = 'swept' FOR UPDATE")
        send(Query(THEN.join((begin, find)), {}), SECONDS)
        execute(
            db.url,
            "UPDATE dblock_waiter SET expires_at = expires_at + INTERVAL 1 DAY WHERE id = 'alive'",
        )
        send(Query(THEN.join((lock, delete, commit)), {}), SECONDS)
        assert execute(db.url, left) == [("alive",), ("swept",)]
    ask(send, commands.Sweep())
    assert execute(db.url, left) == [("alive",)]


# --- at the end --------------------------------------------------------------------------------


def said_to_fail(real: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """Let the client be told that a COMMIT failed which the server has done."""

    def send(adapter: PyMySQL, connection: Any, query: Query[Any], answers: Any, *how: Any) -> None:
        if not left:
            real(adapter, connection, query, answers, *how)
            return
        add, told = answers.add, []

        def adding(rows: Any, cursor: Any) -> None:
            told.append(rows)
            if query.sql.endswith("COMMIT") and len(told) == query.sql.count(THEN) + 1:
                left.pop()
                raise pymysql.OperationalError(COMMIT_FAILED, "from the test")
            add(rows, cursor)

        answers.add = adding
        real(adapter, connection, query, answers, *how)

    return send


def failing(real: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """Let the server fail where it should commit."""

    def send(adapter: PyMySQL, connection: Any, query: Query[Any], *how: Any) -> None:
        if left and query.sql.endswith("COMMIT"):
            left.pop()
            sql = query.sql.removesuffix("COMMIT") + FAILS.format(COMMIT_FAILED)
            query = query._replace(sql=sql)
        real(adapter, connection, query, *how)

    return send


@on_mysql
@pytest.mark.parametrize("how", [said_to_fail, failing])
def test_a_caller_whose_commit_fails_looks_for_its_hold(
    db: Database, how: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    monkeypatch.setattr(PyMySQL, "send_packet", how(PyMySQL.send_packet, left))
    with Locks(db.url) as locks, Locks(db.url) as others:
        lease = locks.lease("a", ttl=LONG, wait=SECONDS)
        left.append(1)
        assert lease.acquire()
        assert left == []
        assert lease.fence == locks.show("a").fence == 1
        left.append(1)
        lease.renew()
        assert left == []
        assert not others.lease("a").acquire(blocking=False)
        lease.release()
        with others.lease("a", wait=0) as theirs:
            assert theirs.fence == 2


@on_mysql
def test_a_commit_that_fails_is_as_a_lost_connection(
    connection: Any, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is unknown, so nothing of the session is used again."""
    monkeypatch.setattr(PyMySQL, "send_packet", failing(PyMySQL.send_packet, [1]))
    with pytest.raises(Exception, match="from the test") as caught:
        send(transaction("SELECT 1"), SECONDS)
    assert ADAPTER.classify(caught.value) is Fault.DISCONNECTED
    assert not ADAPTER.is_usable(connection)


# --- a server that commits nothing by itself ---------------------------------------------------


@pytest.mark.parametrize("lent_engine", [False, True], ids=["own", "lent"])
def test_where_sessions_begin_without_autocommit(
    new_database: NewDatabase, own_server: OwnServers, lent_engine: bool
) -> None:
    """A grant that stays in an open transaction is granted to others too, with the same fence."""
    db = new_database(
        "mysql", migrated=True, server=own_server(lambda: MySQL(options=["--autocommit=0"]))
    )
    where = create_engine(db.url) if lent_engine else db.url
    with Locks(where) as locks, Locks(db.url) as others:
        for fence in (1, 3):
            with locks.lease("a", wait=0) as lease:
                assert lease.fence == fence
                assert not others.lease("a", wait=0).acquire()
                assert execute(db.url, "SELECT fence FROM dblock_lock") == [(fence,)]
            with others.lease("a", wait=0) as theirs:
                assert theirs.fence == fence + 1
