"""What several files of tests share: threads that report, databases seen from below."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from types import FrameType
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from sqlalchemy import MetaData, event, func, select, text, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.sql import ColumnElement
from tenacity import wait_random

from dblock import Locks, RetryPolicy
from dblock.schema.tables import tables
from tests.patience import SECONDS as SECONDS
from tests.worlds.surface import Bridged, BridgedEngine

P = ParamSpec("P")
T = TypeVar("T")

LONG = 30.0  # a TTL that does not run out within a test
SHORT = 0.3  # a TTL that runs out while a test waits for it
ROUNDING = 0.001  # of SQLite's clock
MOMENT = 0.25  # for what must not happen, where no event can tell that it did not

#: How many times as many examples as usual are made of a property.
EXAMPLES = int(os.environ.get("DBLOCK_TEST_EXAMPLES") or 1)

EAGER = RetryPolicy(wait=wait_random(0, 0.01))
TABLE, WAITERS = (tables(MetaData())[table] for table in ("lock", "waiter"))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


class Threads:
    """Functions in threads; the outcome of every started one is looked at in the end."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(32)
        self._futures: list[Future[Any]] = []

    def start(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = self._pool.submit(function, *args, **kwargs)
        self._futures.append(future)
        return future

    def attempt(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start one that is to fail: its outcome is the caller's alone to look at."""
        return self._pool.submit(function, *args, **kwargs)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In another thread, and until it ends."""
        return self.attempt(function, *args, **kwargs).result(SECONDS)

    def join(self) -> None:
        for future in self._futures:
            future.result(SECONDS)
        self._futures.clear()

    def close(self) -> None:
        self._pool.shutdown()


class LockRow(NamedTuple):
    fence: int
    token: str | None
    acquired_at: datetime | None
    expires_at: datetime | None


def named(locks: Locks, name: str) -> ColumnElement[bool]:
    """What finds a name's row of the lock table, with any driver: aiomysql 0.3 knows no bytes."""
    key = locks._database.dialect.key(name)
    return TABLE.c.lock_name == (func.unhex(key.hex()) if isinstance(key, bytes) else key)


def lock_row(engine: Engine, locks: Locks, name: str) -> LockRow:
    """The name's row of the lock table, read without dblock."""
    columns = [TABLE.c[column] for column in LockRow._fields]
    query = select(*columns).where(named(locks, name))
    with engine.connect() as connection:
        return LockRow(*connection.execute(query).one())


def queues(engine: Engine, locks: Locks, name: str = "report") -> bool:
    """Return whether anybody stands in the name's queue."""
    return queue_length(engine, locks, name) > 0


def queue_length(engine: Engine, locks: Locks, name: str = "report") -> int:
    """Return how many waiters stand in the name's queue."""
    with engine.connect() as connection:
        row = connection.execute(TABLE.select().where(named(locks, name))).one()
    tickets = row.waiters or []
    return len(tickets.split(",") if isinstance(tickets, str) else tickets)


def expire(engine: Engine, locks: Locks, name: str) -> None:
    """Let a lease be over by the database's clock, its holder knowing nothing of it."""
    statement = update(TABLE).where(named(locks, name))
    with engine.begin() as connection:
        connection.execute(statement.values(expires_at=datetime(2000, 1, 1)))


def waiters(engine: Engine) -> int:
    """How many rows the table of waiters has."""
    with engine.connect() as connection:
        return len(connection.execute(select(WAITERS.c.id)).all())


@contextlib.contextmanager
def blocked(engine: Engine, locks: Locks, name: str) -> Iterator[None]:
    """Another program's transaction has the name's row, or all of SQLite's file, locked."""
    with engine.connect() as connection:
        if locks._database.dialect.traits.one_writer:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            row = select(TABLE.c.fence).where(named(locks, name))
            connection.execute(row.with_for_update())
        try:
            yield
        finally:
            connection.rollback()


@contextlib.contextmanager
def statements_seen(comment: str = "") -> Iterator[list[str]]:
    """What is sent through SQLAlchemy meanwhile, over any engine; each with a comment added."""
    seen: list[str] = []

    def see(
        connection: Any, cursor: Any, statement: str, parameters: Any, *rest: object
    ) -> tuple[str, Any]:
        seen.append(statement)
        return statement + comment, parameters

    event.listen(Engine, "before_cursor_execute", see, retval=True)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", see)
        # SQLAlchemy leaves this. dblock would take every engine of later tests for a watched one.
        Engine._has_events = False


@contextlib.contextmanager
def new_session(engine: Engine) -> Iterator[Session]:
    with borrowed(engine, "session") as on:
        yield cast(Session, on)


def attribute(on: Session, instance: object, name: str) -> Any:
    """An attribute of a mapped object, which may have to be read from the database."""
    return on.run(getattr, instance, name) if isinstance(on, Bridged) else getattr(instance, name)


def told_to_retry(error: Exception) -> None:
    assert "Retry the whole transaction" in str(error)


Borrowed = Connection | Session | scoped_session[Any]


def examples(usual: int) -> int:
    """Return how many examples to make of a property that usually gets so many."""
    return usual * EXAMPLES


BORROWED = ("connection", "session", "scoped_session")


@contextlib.contextmanager
def borrowed(engine: Engine, how: str) -> Iterator[Borrowed]:
    """A transaction of the user's, in one of the ways SQLAlchemy has it."""
    if isinstance(engine, BridgedEngine):
        with engine.borrowed(how) as on:
            yield on
    elif how == "connection":
        with engine.connect() as connection:
            yield connection
    elif how == "session":
        with Session(engine) as session:
            yield session
    else:
        scoped = scoped_session(sessionmaker(engine))
        try:
            yield scoped
        finally:
            scoped.remove()


def without_comments(sql: str) -> str:
    """A statement without what only some servers read in it."""
    return re.sub(r"/\*.*?\*/", "", sql)


class Facts:
    """A table of the user's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE facts (id INTEGER PRIMARY KEY, n INTEGER)")
            connection.exec_driver_sql("INSERT INTO facts VALUES (0, 0)")

    def add(self, on: Borrowed, id: int) -> None:
        on.execute(text("INSERT INTO facts VALUES (:id, 0)"), {"id": id})

    def read(self, on: Borrowed) -> int:
        return int(on.execute(text("SELECT n FROM facts WHERE id = 0")).scalar_one())

    def write(self, on: Borrowed, n: int) -> None:
        on.execute(text("UPDATE facts SET n = :n WHERE id = 0"), {"n": n})

    def ids(self) -> set[int]:
        with self._engine.connect() as connection:
            return set(connection.execute(text("SELECT id FROM facts")).scalars())

    @property
    def n(self) -> int:
        with self._engine.connect() as connection:
            return self.read(connection)


SETTINGS = {
    "postgresql": (
        "SHOW lock_timeout",
        "SHOW statement_timeout",
        "SHOW transaction_isolation",
        "SHOW synchronous_commit",
        "SHOW TimeZone",
    ),
    "mariadb": (
        "SELECT @@innodb_lock_wait_timeout",
        "SELECT @@tx_isolation",
        "SELECT @@autocommit",
        "SELECT @@time_zone",
    ),
    "mysql": (
        "SELECT @@innodb_lock_wait_timeout",
        "SELECT @@transaction_isolation",
        "SELECT @@autocommit",
        "SELECT @@time_zone",
        "SELECT @@max_execution_time",
    ),
    "sqlite": ("PRAGMA busy_timeout", "PRAGMA synchronous", "PRAGMA journal_mode"),
}


def settings(on: Borrowed, kind: str) -> list[Any]:
    """What a SET of dblock's would have changed."""
    return [on.execute(text(query)).scalar_one() for query in SETTINGS[kind]]


def interrupted(call: Callable[[], object], at: int, files: Collection[str] | None = None) -> bool:
    """Press Ctrl-C at the ``at``-th step of a call, of these ``files`` alone if any are given.

    A step is a line, or the beginning or end of a function. Return whether there was that step.
    """
    steps = 0

    def press(frame: FrameType, event: str, about: object) -> Any:
        nonlocal steps
        if files is not None and frame.f_code.co_filename not in files:
            return None
        steps += 1
        if steps == at:
            raise KeyboardInterrupt
        return press

    tracing = sys.gettrace()
    collects = gc.isenabled()
    gc.disable()  # a key that is pressed while garbage is collected is heard by nobody
    sys.settrace(press)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(tracing)
        if collects:
            gc.enable()
    return False
