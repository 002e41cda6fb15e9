"""What dblock keeps with each connection of the user's pool, and the watch on its savepoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from sqlalchemy import event
from sqlalchemy.engine import Connection

from ..dialects.borrowed_driver import BorrowedDriver, Opener

if TYPE_CHECKING:
    from sqlalchemy.engine import RootTransaction

    from ..dialects import Adapter, Dialect
    from .borrowed import Root

# The key in the dictionary that SQLAlchemy keeps with each pooled connection until it is closed.
_CACHED = "dblock"


@dataclass(slots=True)
class UserConnection:
    """A connection of the user's pool, and what dblock keeps with it until it is closed.

    Finding or making any of it takes as long as a statement.
    """

    adapter: Adapter
    driver: BorrowedDriver
    #: The driver's connection, as the driver wants it.
    connection: Any
    opener: Opener | None
    cursor: Any = None
    #: A transaction that began before any savepoint in it. Kept only for drivers for which that
    #: makes a difference.
    begun: ref[RootTransaction] | None = None

    def note_begun(self, connection: Connection) -> None:
        """Remember a transaction that has begun, and in which no savepoint is open."""
        root = connection.get_transaction()
        if root is not None and self.driver.has_begun(self.connection):
            self.begun = ref(root)

    def has_begun(self, connection: Connection) -> bool:
        """Whether it is known that the transaction had begun before any savepoint in it."""
        return self.begun is not None and self.begun() is connection.get_transaction()


class Savepoints:
    """Calls functions when one of the savepoints around them is rolled back.

    Each connection that needs one has one, and it is never removed: once a connection has had a
    listener, SQLAlchemy sends its statements through its events for good.
    """

    def __init__(self) -> None:
        self._root: ref[Root] | None = None
        #: They get the transaction as an argument: a function that referred to it would keep it
        #: alive.
        self._functions: list[tuple[set[str], Callable[[Root], None]]] = []

    def add(self, root: Root, around: set[str], function: Callable[[Root], None]) -> None:
        # The functions of an earlier transaction ended with it.
        if self._root is None or self._root() is not root:
            self._root = ref(root)
            self._functions = []
        self._functions.append((around, function))

    def rolled_back(self, connection: Connection, name: str, context: None) -> None:
        root = connection.get_transaction()
        if root is None or self._root is None or self._root() is not root:
            return
        for around, function in self._functions:
            if name in around:
                function(root)
        self._functions = [one for one in self._functions if name not in one[0]]


_savepoints: WeakKeyDictionary[Connection, Savepoints] = WeakKeyDictionary()


def savepoints_of(connection: Connection) -> Savepoints:
    """Return what watches a connection's savepoints, from the first call on."""
    found = _savepoints.get(connection)
    if found is None:
        found = _savepoints[connection] = Savepoints()
        event.listen(connection, "rollback_savepoint", found.rolled_back)
    return found


def user_connection(connection: Connection, dialect: Dialect) -> UserConnection:
    """Return what dblock keeps with the pooled connection behind a user's connection."""
    lent = connection.connection
    found: UserConnection | None = lent.info.get(_CACHED)
    if found is None or found.adapter is not dialect.adapter:
        driver = _driver_of(connection, dialect)
        there = driver.connection_of(lent)
        if there is None:  # the connection is detached from its pool
            assert lent.dbapi_connection is not None
            there = connection.dialect.get_driver_connection(lent.dbapi_connection)
        # The opener, with its prepared statements, and the begun transaction are valid for every
        # Locks, not only for this adapter's.
        opener = driver.opener(there) if found is None else found.opener
        begun = None if found is None else found.begun
        found = UserConnection(dialect.adapter, driver, there, opener, begun=begun)
        lent.info[_CACHED] = found
    return found


def _driver_of(connection: Connection, dialect: Dialect) -> BorrowedDriver:
    """Return the driver of a user's connection. Raises ValueError if dblock does not know it."""
    there, adapter = connection.dialect, dialect.adapter
    package = getattr(there.dbapi, "__name__", "").partition(".")[0]
    found = adapter.borrowed(package, there.driver)
    if found is not None and there.is_async == adapter.is_async:
        return found
    names = ", ".join(driver.drivers[0] for driver in adapter.borrowable)
    raise ValueError(
        f"dblock cannot join a transaction of the driver {there.driver}; in {dialect.name} use "
        f"{names}"
    )
