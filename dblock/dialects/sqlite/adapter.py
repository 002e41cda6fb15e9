"""The standard library's sqlite3: its connections, and what SQLite's errors mean."""

from __future__ import annotations

import contextlib
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

from ...errors import Unavailable
from ...protocol.faults import Fault
from ...system.platform import at_fork
from ..adapter import Adapter, Answer, Carry, Send, ServerSession, same
from ..borrowed_driver import AUTOCOMMIT, CLOSED
from ..query import Query

# https://www.sqlite.org/rescode.html; extended codes carry their primary code in the low byte.
_EXTENDED = {
    517: Fault.SERIALIZATION,  # SQLITE_BUSY_SNAPSHOT: waiting cannot help
}
_PRIMARY = {
    5: Fault.BUSY,
    6: Fault.BUSY,  # SQLITE_LOCKED
    7: Fault.REFUSED,  # SQLITE_NOMEM
    8: Fault.PRIVILEGE,  # SQLITE_READONLY
    11: Fault.REFUSED,  # SQLITE_CORRUPT
    13: Fault.REFUSED,  # SQLITE_FULL
    3: Fault.PRIVILEGE,  # SQLITE_PERM
    10: Fault.UNREACHABLE,  # SQLITE_IOERR
    14: Fault.UNREACHABLE,  # SQLITE_CANTOPEN
    26: Fault.UNREACHABLE,  # SQLITE_NOTADB
}

# SQLITE_CANTOPEN, for example if the directory does not exist, and SQLITE_NOTADB.
_NO_DATABASE = (14, 26)

# Seconds that a lease's statement waits for the file's writer. A commit takes less; the protocol
# has the longer waits, because it knows the caller's deadline.
TURN = 0.05

_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL

FORKED = (
    "this process was forked while another thread of its parent used SQLite, and SQLite cannot be "
    "used in such a child. Fork before you start threads, or let multiprocessing start processes "
    "with the method 'forkserver' or 'spawn'"
)

SAVEPOINT = (
    "a savepoint is open that may have begun it. Python's sqlite3 begins no transaction for a "
    "savepoint, so the end of such a savepoint commits all that was done. Call dblock before the "
    "savepoint, or, in a Session, first in it. Or let each transaction begin with a BEGIN: from "
    "Python 3.12 on with create_engine(..., connect_args={'autocommit': False}), before that as "
    "SQLAlchemy's page on SQLite says"
)


class Connection(sqlite3.Connection):
    """Closes itself when it is garbage-collected. An exception from a signal handler may come
    before any variable has the connection, and then nothing else can close it."""

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # its __init__ may not have finished
            self.close()


class SQLite3(Adapter):
    """sqlite3. It has no server, and no network."""

    drivers: ClassVar[tuple[str, ...]] = ("pysqlite",)
    package = "sqlite3"
    carried: ClassVar[Mapping[str, Carry]] = dict.fromkeys(("pysqlite", "aiosqlite"), same)
    savepoint_begins = True
    reached = "sqlite"  # it is a library: no other server can answer

    def connect_args(self) -> dict[str, Any]:
        return {"timeout": self.timeouts.query}

    def plain(self, url: str) -> Callable[[], Any] | None:
        found = re.fullmatch(r"sqlite(?:\+pysqlite)?:///(/[^?]+)", url)
        if found is None:
            return None
        return partial(
            sqlite3.connect,
            found[1],
            check_same_thread=False,
            factory=Connection,
            **self.connect_args(),
        )

    def check_process(self) -> None:
        if _forked_meanwhile:
            raise Unavailable(FORKED)

    def prepare_connection(self, connection: Any) -> ServerSession:
        self.set_autocommit(connection)
        self.ask(connection, Query(busy_timeout(TURN), {}))
        (mode,) = self.ask(connection, Query("PRAGMA journal_mode", {}))
        if mode == "wal":  # with a rollback journal NORMAL could corrupt the file
            self.ask(connection, Query("PRAGMA synchronous = NORMAL", {}))
        return ServerSession()

    def set_autocommit(self, connection: Any) -> None:
        connection.isolation_level = None
        if _mode(connection) != _LEGACY:
            connection.autocommit = True  # Python 3.12 or newer, and the other mode was asked for

    def is_usable(self, connection: Any) -> bool:
        return True

    def sender(self, connection: Any) -> Send:
        return FileSender(connection).send

    def bound_reads(self, connection: Any, seconds: float) -> None:
        pass  # no network: a wait is for the file's writer, and that has its own limit

    @contextlib.contextmanager
    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> Iterator[None]:
        if patience is None:
            yield
            return
        (before,) = self.ask(connection, Query("PRAGMA busy_timeout", {}))
        self.ask(connection, Query(busy_timeout(patience), {}))
        try:
            yield
        finally:
            self.ask(connection, Query(f"PRAGMA busy_timeout = {before}", {}))

    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        try:
            connection.total_changes  # noqa: B018 - raises when the connection is closed
        except sqlite3.ProgrammingError:
            return CLOSED
        if locking and _begins_nothing(connection) and not connection.in_transaction:
            return AUTOCOMMIT
        return None

    def plain_of(self, connection: Any) -> Any:
        """Return sqlite3's own connection."""
        return connection

    def has_begun(self, connection: Any) -> bool:
        return bool(self.plain_of(connection).in_transaction)

    def begins_late(self, connection: Any) -> bool:
        return not self.has_begun(connection) and not _begins_nothing(self.plain_of(connection))

    def savepoint_problem(self, connection: Any, *, begun: bool, locking: bool) -> str | None:
        plain = self.plain_of(connection)
        if _begins_nothing(plain):
            return AUTOCOMMIT if locking and not begun else None
        return SAVEPOINT if _mode(plain) == _LEGACY else None

    def classify(self, error: BaseException) -> Fault | None:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            return None
        if code in _EXTENDED:
            return _EXTENDED[code]
        if code == sqlite3.SQLITE_ERROR:
            # SQLite has one code for all errors in a statement. dblock's statements are fixed and
            # tested, so at run time the cause is a missing table or column.
            return Fault.SCHEMA
        return _PRIMARY.get(code & 0xFF)

    def misconfigured(self, error: BaseException) -> bool:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_DATABASE

    def timed_out(self, error: BaseException) -> bool:
        return False


class FileSender:
    """Sends statements on one connection. It sets how long a statement waits for the file's writer
    only when that differs from the statement before."""

    __slots__ = ("_connection", "_patience")

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._patience = TURN

    def send(self, query: Query[Any], within: float | None = None, waits: bool = False) -> Answer:
        cursor, patience = self._connection.cursor(), query.patience
        _under_way.add(self)
        try:
            if patience is not None and patience != self._patience:
                cursor.execute(busy_timeout(patience))
                self._patience = patience
            cursor.execute(query.sql, query.params)
            return cursor.fetchall(), cursor.rowcount
        finally:
            cursor.close()  # an open cursor would keep a failed statement, and the file, in use
            _under_way.discard(self)


#: The senders that are sending a statement now.
_under_way: set[FileSender] = set()
#: Whether this is a forked child whose parent was sending a statement in another thread. The child
#: has SQLite's internal locks as they were then, and no thread releases them: a call would wait
#: forever, or find a file locked that is not.
_forked_meanwhile = False


def _after_fork_in_child() -> None:
    global _forked_meanwhile
    _forked_meanwhile = _forked_meanwhile or bool(_under_way)
    _under_way.clear()


at_fork(after_in_child=_after_fork_in_child)


def _mode(connection: Any) -> int:
    """Return the driver's transaction mode, which can be chosen from Python 3.12 on."""
    return getattr(connection, "autocommit", _LEGACY)


def _begins_nothing(connection: Any) -> bool:
    """Whether the driver leaves each BEGIN to the user."""
    mode = _mode(connection)
    return connection.isolation_level is None if mode == _LEGACY else bool(mode)


def busy_timeout(seconds: float) -> str:
    return f"PRAGMA busy_timeout = {math.floor(seconds * 1000)}"
