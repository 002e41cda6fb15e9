"""The user's own transactions: their statements are requests over a :class:`.transport.Link` too.

SQLAlchemy gets a connection of the driver's whose cursors send what they are given, and which
knows what belongs to whom: dblock never ends a transaction that is not its own (promise 12).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine, ExceptionContext
from sqlalchemy.pool import NullPool

from dblock.dialects.adapter import Answer
from tests.simulation.errors import Lost, TimedOut
from tests.simulation.loop import Violation
from tests.simulation.tables import USERS
from tests.simulation.transport import LOCKING, READING, Link, connecting

if TYPE_CHECKING:
    from tests.simulation.store import Store

_COMMENT = re.compile(r"/\*.*?\*/")
# Nobody but the user may say these in the user's transaction.
_ENDS = ("commit", "rollback", "begin", "set")
# What dblock says for a statement of its own, before it and, where that is undone, behind it.
_FOR_ITSELF = re.compile(r"(/\*.*?\*/ )?SET (STATEMENT|@dblock_|\w+ = @dblock_)")
# What locks nothing in it.
_HARMLESS = READING.union(_ENDS)


@dataclass(slots=True)
class Statement:
    """One statement in a user's transaction, in the driver's own parameter style.

    The store that carries it out fills in what the columns are called.
    """

    sql: str
    params: Any
    kind: str
    description: Any = None


class LentConnection:
    """A driver's connection in the hands of the user, or of dblock at the user's request."""

    def __init__(self, store: Store, link: Link, driver: Any) -> None:
        self._store = store
        self._link = link
        self._driver = driver
        link.bound, link.lent = math.inf, True
        #: dblock uses it just now.
        self.lent = False
        #: The user has said something in the transaction.
        self._used = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    @property
    def link(self) -> Link:
        return self._link

    @property
    def closed(self) -> bool:
        """As psycopg says it."""
        return self._link.broken

    @property
    def open(self) -> bool:
        """As PyMySQL says it."""
        return not self._link.broken

    def cursor(self, *args: Any, **kwargs: Any) -> LentCursor:
        return LentCursor(self)

    def settings(self) -> object:
        """Return what the user may have set on it."""
        return self._store.settings(self._driver)

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def close(self) -> None:
        self._link.close()

    def _end(self, sql: str) -> None:
        if self._store.loop.over or not self._store.in_transaction(self._driver):
            return
        self.send(Statement(sql, (), sql.lower()))

    def send(self, statement: Statement) -> Answer:
        for_itself = _FOR_ITSELF.match(statement.sql)
        lost = self._used or statement.kind != "rollback"
        if self.lent and statement.kind in _ENDS and not for_itself and lost:
            raise Violation(f"dblock says {statement.sql!r} in a transaction of the user's")
        if statement.kind in ("commit", "rollback", "begin"):
            self._used = False
        elif not self.lent:
            self._used = True
        self._link.locks = self._link.locks or statement.kind not in _HARMLESS
        try:
            return self._link.send(statement)  # type: ignore[arg-type]
        except Lost as lost:
            raise self._store.lost(type(lost))(str(lost)) from None


class LentCursor:
    """A cursor as PEP 249 has it, as far as SQLAlchemy needs it."""

    arraysize = 1
    lastrowid = None

    def __init__(self, connection: LentConnection) -> None:
        self.connection = connection
        self.description: Any = None
        self.rowcount = -1
        self._rows: Iterator[Any] = iter(())

    def execute(self, sql: str, params: Any = ()) -> None:
        words = _COMMENT.sub("", sql).split(None, 1)
        kind = "savepoint" if "SAVEPOINT" in sql else words[0].lower()
        if kind == "select" and ("FOR UPDATE" in sql or "SHARE" in sql):
            kind = LOCKING
        statement = Statement(sql, params or (), kind)
        rows, self.rowcount = self.connection.send(statement)
        self.description = statement.description
        self._rows = iter(rows)

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def fetchmany(self, size: int = arraysize) -> list[Any]:
        return [row for _, row in zip(range(size), self._rows, strict=False)]

    def close(self) -> None:
        self._rows = iter(())


def lending_engine(store: Store, url: str, first: Callable[[], Any] | None = None) -> Engine:
    """Return the engine of the users' own transactions.

    What it asks of its first connection, of which another may be made than those of the
    simulation, is asked here, so that all runs are the same. The users' tables are made.
    """

    def creator() -> Any:
        return connecting(store, lent=True) if ready else (first or store.open_lent)()

    ready = False
    engine = create_engine(url, creator=creator, poolclass=NullPool)

    @event.listens_for(engine, "handle_error")
    def broken(context: ExceptionContext) -> None:
        if isinstance(context.original_exception, Lost):
            context.is_disconnect = True

    USERS.create_all(engine)
    ready = True
    return engine


class Catalogue:
    """What SQLAlchemy asks about the users' tables: the same at any time, and in any session."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._known: dict[tuple[str, str], tuple[Answer, Any]] = {}

    def answer(self, statement: Statement) -> Answer:
        key = statement.sql, repr(statement.params)
        if key not in self._known:
            with self._connection.cursor() as cursor:
                cursor.execute(statement.sql, statement.params)
                self._known[key] = (cursor.fetchall(), cursor.rowcount), cursor.description
        answer, statement.description = self._known[key]
        return answer


def lost_errors(driver: Any) -> dict[type[Lost], type[Exception]]:
    """Return what a driver's module is to raise where a connection is lost."""

    class DriverLost(Lost, driver.OperationalError):  # type: ignore[misc]
        pass

    class DriverTimedOut(TimedOut, driver.OperationalError):  # type: ignore[misc]
        pass

    return {Lost: DriverLost, TimedOut: DriverTimedOut}


@contextmanager
def lent(connection: Any) -> Iterator[None]:
    """dblock is called with an SQLAlchemy connection; it has to be as it was afterwards."""
    driver = connection.connection.driver_connection
    before = driver.settings()
    driver.lent = True
    try:
        yield
    finally:
        driver.lent = False
        if not driver.link.broken and driver.settings() != before:
            raise Violation("dblock leaves a setting behind in the user's transaction")
