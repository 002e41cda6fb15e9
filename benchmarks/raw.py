"""The yardsticks: what the bare drivers need for the same work, with nothing around it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import URL, make_url

from dblock import Locks
from dblock.dialects import Dialect
from dblock.dialects.query import Query
from dblock.protocol import commands

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


#: A queue in a row: see :mod:`.bare_queue`.
QUEUE_TABLE = """CREATE TABLE raw_queue (
    name text PRIMARY KEY, token text, fence bigint NOT NULL DEFAULT 0, expires_at timestamptz,
    waiters text[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50)"""


def create_tables(url: str) -> None:
    queues = [QUEUE_TABLE] if url.startswith("postgresql") else []
    with closing(connect(url, autocommit=True)) as connection, closing(connection.cursor()) as run:
        for statement in [*TABLES, *queues]:
            run.execute(statement)


def connect(url: str, *, autocommit: bool) -> Any:
    """Open a connection of the driver's own."""
    parsed = make_url(url)
    return _CONNECT[parsed.get_backend_name()](parsed, autocommit)


@dataclass(frozen=True, slots=True)
class RawLock:
    """Two ready-made calls."""

    acquire: Callable[[], object]
    release: Callable[[], object]


class RawClient:
    """One connection, and the locks that are taken on it, made once for each name."""

    def __init__(self, url: str, *, autocommit: bool = True) -> None:
        self.kind = make_url(url).get_backend_name()
        self.connection = connect(url, autocommit=autocommit)
        self.cursor = self.connection.cursor()
        self._locks: dict[str, RawLock] = {}

    def lock(self, name: str) -> RawLock:
        if name not in self._locks:
            self._locks[name] = self.make(name)
        return self._locks[name]

    def make(self, name: str) -> RawLock:
        raise NotImplementedError

    def sql(self, sql: str) -> str:
        return sql if self.kind == "sqlite" else sql.replace("?", "%s")

    def close(self) -> None:
        self.connection.close()


class InsertDelete(RawClient):
    """Lock by inserting under a unique name, unlock by deleting: each a durable commit."""

    def make(self, name: str) -> RawLock:
        run = self.cursor.execute
        insert = self.sql("INSERT INTO raw_lock (name, token, owner) VALUES (?, ?, ?)")
        delete = self.sql("DELETE FROM raw_lock WHERE name = ? AND token = ?")
        return RawLock(
            lambda: run(insert, (name, TOKEN, OWNER)), lambda: run(delete, (name, TOKEN))
        )


class SameStatements(RawClient):
    """Send dblock's own grant and release, ready made."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.dialect = dialect_of(url)
        self.dialect.adapter.prepare_connection(self.connection)

    def make(self, name: str) -> RawLock:
        grant = self.dialect.query(commands.Grant(name, TOKEN, OWNER, 30.0))
        release = self.dialect.query(commands.Release(name, TOKEN))
        return RawLock(lambda: self.send(grant), lambda: self.send(release))

    def refused(self, name: str) -> Cycle:
        """Send the grant for a name that another has, and the look that follows."""
        grant, look = (
            self.dialect.query(commands.Grant(name, TOKEN, OWNER, 30.0)),
            self.dialect.query(commands.Look((name,))),
        )

        def attempt() -> None:
            self.send(grant)
            self.send(look)

        return {"try": attempt}

    def send(self, query: Query[Any]) -> None:
        self.cursor.execute(query.sql, query.params)
        if self.cursor.description:
            self.cursor.fetchall()
        while self.kind == "mysql" and self.cursor.nextset():  # of a packet of several statements
            if self.cursor.description:
                self.cursor.fetchall()


class ForUpdate(RawClient):
    """Begin and lock an existing row, the same for every name; commit.

    SQLite has BEGIN IMMEDIATE instead.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, autocommit=url.startswith("sqlite"))

    def make(self, name: str) -> RawLock:
        select = self.sql("SELECT token FROM raw_lock WHERE name = ?")
        select += "" if self.kind == "sqlite" else " FOR UPDATE"

        def acquire() -> None:
            if self.kind == "sqlite":
                self.cursor.execute("BEGIN IMMEDIATE")
            elif self.kind == "mysql":
                self.connection.begin()  # psycopg does this by itself
            self.cursor.execute(select, ("row",))
            self.cursor.fetchall()

        return RawLock(acquire, self.connection.commit)


class Advisory(RawClient):
    """The server's own session lock, waited for there."""

    def make(self, name: str) -> RawLock:
        key: tuple[int | str] = (zlib.crc32(name.encode()),)
        lock, unlock = "SELECT pg_advisory_lock(%s)", "SELECT pg_advisory_unlock(%s)"
        if self.kind == "mysql":
            key = (name,)
            lock, unlock = "SELECT GET_LOCK(%s, 600)", "SELECT RELEASE_LOCK(%s)"

        def run(sql: str) -> None:
            self.cursor.execute(sql, key)
            self.cursor.fetchone()

        return RawLock(lambda: run(lock), lambda: run(unlock))

    def refused(self, name: str) -> Cycle:
        """Try for a lock that another session has."""

        def attempt() -> None:
            self.cursor.execute("SELECT pg_try_advisory_lock(%s)", (zlib.crc32(name.encode()),))
            assert self.cursor.fetchone() == (False,)

        return {"try": attempt}


def single_insert(connection: Any, keys: Iterator[str]) -> Cycle:
    """Insert a row with the next key, and commit."""
    cursor = connection.cursor()
    mark = _mark(connection)
    insert = f"INSERT INTO raw_lock (name, token) VALUES ({mark}, {mark})"
    return {
        "insert": lambda: cursor.execute(insert, (next(keys), TOKEN)),
        "commit": connection.commit,
    }


def single_update(connection: Any) -> Cycle:
    """Take one off in a single guarded UPDATE; commit, unless the connection does so by itself."""
    cursor = connection.cursor()
    mark = _mark(connection)
    update = f"UPDATE ticket SET stock = stock - {mark} WHERE id = {mark} AND stock >= {mark}"
    return {"take": lambda: cursor.execute(update, (1, 1, 1)), "commit": connection.commit}


def _mark(connection: Any) -> str:
    """What stands for a value in this driver's statements."""
    return "?" if type(connection).__module__.startswith("sqlite3") else "%s"


def dialect_of(url: str) -> Dialect:
    with Locks(url) as locks:
        locks.show("any")  # which looks where the tables are
        return locks._database.dialect


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
    "mysql": _pymysql,
    "sqlite": _sqlite3,
}
