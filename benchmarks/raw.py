"""The yardsticks: what the bare drivers need for the same work, with nothing around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import URL, make_url

from dblock.dialects import Dialect
from dblock.protocol.steps import Query

from .measure import Cycle

TOKEN = "0123456789abcdef" * 2
OWNER = "benchmark"

#: A lock table as one would write it by hand, and the table of a counter.
TABLES = (
    "CREATE TABLE raw_lock (name VARCHAR(255) PRIMARY KEY, token VARCHAR(32), owner VARCHAR(255))",
    "INSERT INTO raw_lock (name) VALUES ('row')",
    "CREATE TABLE ticket (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL)",
    "INSERT INTO ticket (id, stock) VALUES (1, 2000000000)",
)


class Raw:
    """One database through its bare driver."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self._url = make_url(url)
        self._mark = "?" if kind == "sqlite" else "%s"
        self._open: list[Any] = []

    def connect(self, *, autocommit: bool) -> Any:
        connection = _CONNECT[self.kind](self._url, autocommit)
        self._open.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    def create_tables(self) -> None:
        cursor = self.connect(autocommit=True).cursor()
        for statement in TABLES:
            cursor.execute(statement)

    def insert_delete(self) -> Cycle:
        """Lock by inserting under a unique name, unlock by deleting: each a durable commit."""
        run = self.connect(autocommit=True).cursor().execute
        insert = self._sql("INSERT INTO raw_lock (name, token, owner) VALUES (?, ?, ?)")
        delete = self._sql("DELETE FROM raw_lock WHERE name = ? AND token = ?")
        return {
            "acquire": lambda: run(insert, ("pair", TOKEN, OWNER)),
            "release": lambda: run(delete, ("pair", TOKEN)),
        }

    def same_statements(self, dialect: Dialect) -> Cycle:
        """Send dblock's own grant and release, ready made."""
        send = self._sender(dialect)
        grant, release = dialect.grant("same", TOKEN, OWNER, 30.0), dialect.release("same", TOKEN)
        return {"acquire": lambda: send(grant), "release": lambda: send(release)}

    def refused_statements(self, dialect: Dialect, name: str) -> Cycle:
        """Send dblock's own grant for a name that another has, and the look that follows."""
        send = self._sender(dialect)
        grant, look = dialect.grant(name, TOKEN, OWNER, 30.0), dialect.look(name)
        return {"try": lambda: (send(grant), send(look))}

    def _sender(self, dialect: Dialect) -> Callable[[Query], None]:
        connection = self.connect(autocommit=True)
        dialect.prepare_connection(connection)
        cursor = connection.cursor()

        def send(query: Query) -> None:
            cursor.execute(query.sql, query.params)
            if cursor.description:
                cursor.fetchall()

        return send

    def select_for_update(self) -> Cycle:
        """Begin and lock an existing row; commit. SQLite has BEGIN IMMEDIATE instead."""
        sqlite = self.kind == "sqlite"
        connection = self.connect(autocommit=sqlite)
        cursor = connection.cursor()
        select = self._sql("SELECT token FROM raw_lock WHERE name = ?")
        select += "" if sqlite else " FOR UPDATE"

        def acquire() -> None:
            if sqlite:
                cursor.execute("BEGIN IMMEDIATE")
            elif self.kind == "mariadb":
                connection.begin()  # psycopg does this by itself
            cursor.execute(select, ("row",))
            cursor.fetchall()

        return {"acquire": acquire, "release": connection.commit}

    def single_update(self) -> Cycle:
        """Take one off in a single guarded UPDATE; commit."""
        connection = self.connect(autocommit=False)
        cursor = connection.cursor()
        update = self._sql("UPDATE ticket SET stock = stock - ? WHERE id = ? AND stock >= ?")
        return {
            "take": lambda: cursor.execute(update, (1, 1, 1)),
            "commit": connection.commit,
        }

    def refused_advisory(self) -> Cycle:
        """Try for a PostgreSQL advisory lock that another session has."""
        self.connect(autocommit=True).execute("SELECT pg_advisory_lock(1)")
        cursor = self.connect(autocommit=True).cursor()

        def attempt() -> None:
            cursor.execute("SELECT pg_try_advisory_lock(1)")
            assert cursor.fetchone() == (False,)

        return {"try": attempt}

    def _sql(self, sql: str) -> str:
        return sql.replace("?", self._mark)


def _psycopg(url: URL, autocommit: bool) -> Any:
    import psycopg

    return psycopg.connect(
        host=url.host,
        port=url.port or 5432,
        user=url.username,
        password=url.password,
        dbname=url.database,
        autocommit=autocommit,
    )


def _pymysql(url: URL, autocommit: bool) -> Any:
    import pymysql

    return pymysql.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        database=url.database,
        autocommit=autocommit,
    )


def _sqlite3(url: URL, autocommit: bool) -> Any:
    import sqlite3

    assert url.database is not None
    connection = sqlite3.connect(url.database, isolation_level=None if autocommit else "DEFERRED")
    if autocommit:  # as dblock's own; a user's connection keeps its default, FULL
        connection.execute("PRAGMA synchronous = NORMAL")
    return connection


_CONNECT: dict[str, Callable[[URL, bool], Any]] = {
    "postgresql": _psycopg,
    "mariadb": _pymysql,
    "sqlite": _sqlite3,
}
