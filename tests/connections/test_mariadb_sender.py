"""The statements of each hold on MariaDB, on a real server: parsed once, and sent as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest
from sqlalchemy import make_url

from dblock import Timeouts
from dblock.dialects.adapter import Answer, Send
from dblock.dialects.mariadb import MariaDB
from dblock.dialects.mariadb.adapter import PyMySQL
from dblock.dialects.mariadb.sender import prepared
from dblock.dialects.query import Query, Result
from dblock.protocol import commands
from dblock.protocol.commands import Look
from dblock.protocol.state import Granted
from tests.conftest import Database, lent
from tests.support import SECONDS

pytestmark = pytest.mark.parametrize("db", ["mariadb"], indirect=True)
db = pytest.fixture(lent)

ADAPTER = PyMySQL(Timeouts())
DIALECT = MariaDB(None, "dblock_", Timeouts(), ADAPTER)
TOKEN = "0123456789abcdef" * 2
#: How often a statement is sent before it is prepared.
THRESHOLD = 5


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
    with closing(connecting) as connection:
        ADAPTER.prepare_connection(connection)
        yield connection


@pytest.fixture
def send(connection: Any) -> Send:
    return ADAPTER.sender(connection)


def ask(send: Send, query: Query[Any]) -> Any:
    rows, matched = send(query._replace(sql=DIALECT.placed(query.sql)), SECONDS)
    return query.read(Result(rows, matched))


def hold(send: Send, name: str, *, known: bool = True, token: str = TOKEN) -> int:
    """Take a name and give it back; return the fence."""
    grant = commands.Grant(name, token, "owner of it's own: ö, 100 %", 30.0, known)
    granted = ask(send, DIALECT.query(grant))
    assert isinstance(granted, Granted)
    assert ask(send, DIALECT.query(commands.Release(name, token))) == 1
    return granted.fence


def said(send: Send, what: str) -> int:
    """So many statements of a kind has this session sent."""
    ((_, count),) = send(Query(f"SHOW SESSION STATUS LIKE 'Com_{what}'", {}), SECONDS)[0]
    return int(count)


@pytest.mark.parametrize("known", [True, False])
def test_what_each_hold_needs_is_prepared(send: Send, known: bool) -> None:
    first = hold(send, "näme", known=False)
    fences = [hold(send, "näme", known=known) for _ in range(THRESHOLD + 4)]
    assert fences == list(range(first + 1, first + len(fences) + 1))
    assert said(send, "prepare_sql") == 2
    assert said(send, "execute_sql") >= 8


def test_a_few_holds_prepare_nothing(send: Send) -> None:
    for _ in range(THRESHOLD):
        hold(send, "few", known=False)
    assert said(send, "prepare_sql") == 0


def test_other_statements_are_not_prepared(send: Send) -> None:
    for _ in range(3 * THRESHOLD):
        ask(send, DIALECT.query(Look(("looked at",))))
    assert said(send, "prepare_sql") == 0


@pytest.mark.parametrize("known", [True, False])
def test_a_refused_one_has_no_fence(send: Send, known: bool) -> None:
    for _ in range(2 * THRESHOLD):
        hold(send, "taken", known=False)
        hold(send, "taken")
    asked = "taken", TOKEN, "owner", 30.0
    assert ask(send, DIALECT.query(commands.Grant(*asked, known=True)))
    refused = commands.Grant("taken", "another", "owner", 30.0, known)
    assert ask(send, DIALECT.query(refused)) is None
    assert ask(send, DIALECT.query(commands.Release("taken", "another"))) == 0
    assert ask(send, DIALECT.query(commands.Release("taken", TOKEN))) == 1


def test_what_is_forgotten_is_sent_as_it_is(send: Send, db: Database) -> None:
    """As behind a pooler that gives the session to another connection."""
    fences = [hold(send, "forgotten", known=False)]
    fences += [hold(send, "forgotten") for _ in range(2 * THRESHOLD)]
    of_a_hold = (
        DIALECT.query(commands.Grant("", "", "", 1.0, known=True)),
        DIALECT.query(commands.Release("", "")),
    )
    for query in of_a_hold:
        name, *_ = prepared(DIALECT.placed(query.sql), make_url(db.url).database or "")
        send(Query(f"DEALLOCATE PREPARE {name}", {}), SECONDS)
    fences += [hold(send, "forgotten") for _ in range(2 * THRESHOLD)]
    assert fences == list(range(fences[0], fences[0] + len(fences)))
    assert said(send, "prepare_sql") == 2


class Full(PyMySQL):
    """As with a server that has no room: the setting is for all, and other tests run beside."""

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer:
        if query.sql.startswith("PREPARE"):
            raise pymysql.OperationalError(1461, "Can't create more than ... statements")
        return super().send(connection, query, within, waits)


def test_a_server_that_has_too_many(connection: Any) -> None:
    send = Full(Timeouts()).sender(connection)
    hold(send, "many", known=False)
    for _ in range(2 * THRESHOLD):
        hold(send, "many")
    assert said(send, "execute_sql") == 0


def test_a_table_that_a_migration_changes(send: Send) -> None:
    hold(send, "changed", known=False)
    for number in range(3):
        for _ in range(2 * THRESHOLD):
            hold(send, "changed")
        column = f"ALTER TABLE dblock_lock ADD COLUMN more{number} INT FIRST"
        send(Query(column, {}), SECONDS)
    for _ in range(3):
        hold(send, "changed")
    assert said(send, "prepare_sql") == 2
    for number in range(3):
        send(Query(f"ALTER TABLE dblock_lock DROP COLUMN more{number}", {}), SECONDS)


def test_a_table_that_is_gone(send: Send) -> None:
    for _ in range(2 * THRESHOLD):
        hold(send, "gone", known=False)
    send(Query("RENAME TABLE dblock_lock TO away", {}), SECONDS)
    try:
        with pytest.raises(pymysql.ProgrammingError, match="dblock_lock"):
            hold(send, "gone", known=False)
    finally:
        send(Query("RENAME TABLE away TO dblock_lock", {}), SECONDS)
    hold(send, "gone", known=False)
