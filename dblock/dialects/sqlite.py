"""SQLite 3.35 or newer, through the standard library."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ..protocol.faults import Fault
from ..protocol.state import Grant, Renewal
from ..protocol.steps import Query, Reply
from ..timeouts import Timeouts
from .base import Dialect, Session

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

# Milliseconds that a lease's statement waits for the file's writer. One commit is done by then;
# longer waits are the protocol's, which knows the caller's deadline.
_TURN = 50

_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL

_NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
_LATER = "strftime('%Y-%m-%d %H:%M:%f', 'now', :ttl)"
_FREE = f"(token IS NULL OR expires_at <= {_NOW})"
_REMAINING = "(julianday(expires_at) - julianday('now')) * 86400.0"


class SQLite(Dialect):
    """One writer at a time for the whole file, so a row lock is a write transaction: coarser than
    a row, still exclusive. Times are UTC text to the millisecond, as SQLAlchemy stores them.

    WAL with ``synchronous=NORMAL`` may lose the last commits in a power cut, not in a crash of a
    process. All holders live on the file's machine, so the cut ended them too.
    """

    name = "sqlite"
    backends: ClassVar[tuple[str, ...]] = ("sqlite",)
    drivers: ClassVar[tuple[str, ...]] = ("pysqlite",)
    refusal_holds = True  # a write transaction keeps all other writers out
    one_writer = True
    name_parameter = ":name"
    remaining = _REMAINING
    clock = _NOW
    ago = "strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds')"

    def connect_args(self, timeouts: Timeouts) -> dict[str, Any]:
        return {"timeout": timeouts.query}

    def bound_reads(self, connection: Any, seconds: float) -> None:
        pass  # no network: a wait is for the file's writer, and that has its own limit

    def set_autocommit(self, connection: Any) -> None:
        connection.isolation_level = None
        if getattr(connection, "autocommit", _LEGACY) != _LEGACY:
            connection.autocommit = True  # asked for otherwise, on Python 3.12 or newer

    def prepare_connection(self, connection: Any) -> Session:
        self.set_autocommit(connection)
        self.ask(connection, Query(f"PRAGMA busy_timeout = {_TURN}", {}))
        (mode,) = self.ask(connection, Query("PRAGMA journal_mode", {}))
        if mode == "wal":  # with a rollback journal NORMAL could corrupt the file
            self.ask(connection, Query("PRAGMA synchronous = NORMAL", {}))
        return Session()

    def timed_out(self, error: BaseException) -> bool:
        return False

    def is_usable(self, connection: Any) -> bool:
        return True

    @contextlib.contextmanager
    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> Iterator[None]:
        if patience is None:
            yield
            return
        (before,) = self.ask(connection, Query("PRAGMA busy_timeout", {}))
        self.ask(connection, Query(f"PRAGMA busy_timeout = {math.floor(patience * 1000)}", {}))
        try:
            yield
        finally:
            self.ask(connection, Query(f"PRAGMA busy_timeout = {before}", {}))

    def transaction_trouble(self, connection: Any, locking: bool) -> str | None:
        try:
            connection.total_changes  # noqa: B018 - raises when the connection is closed
        except sqlite3.ProgrammingError:
            return "its connection is closed"
        if locking and connection.isolation_level is None and not connection.in_transaction:
            return "its connection is in autocommit mode, so nothing stays locked"
        return None

    def classify(self, error: BaseException) -> Fault | None:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            return None
        if code in _EXTENDED:
            return _EXTENDED[code]
        if code == sqlite3.SQLITE_ERROR:
            # The one code for all errors in a statement. Ours are fixed and tested, so what is
            # wrong with one of them at run time is a table or column that is not there.
            return Fault.SCHEMA
        return _PRIMARY.get(code & 0xFF)

    def privileges(self) -> str:
        return "write access to the file and to its directory"

    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query:
        return Query(
            f"""INSERT INTO {self.lock_table}
                (lock_name, fence, token, owner, acquired_at, expires_at)
            VALUES (:name, 1, :token, :owner, {_NOW}, {_LATER})
            ON CONFLICT (lock_name) DO UPDATE SET fence = fence + 1, token = excluded.token,
                owner = excluded.owner, acquired_at = {_NOW}, expires_at = {_LATER}
            WHERE {_FREE}
            RETURNING fence, {_REMAINING}""",
            {"name": name, "token": token, "owner": owner, "ttl": _modifier(ttl)},
        )

    def granted(self, reply: Reply, token: str) -> Grant | None:
        return Grant(reply.rows[0][0], reply.rows[0][1]) if reply.rows else None

    def renew(self, asked: Sequence[Renewal]) -> Query:
        rows = json.dumps([(name, token, _modifier(ttl)) for name, token, ttl in asked])
        return Query(
            f"""UPDATE {self.lock_table} AS l
            SET expires_at = {_LATER.replace(":ttl", "json_extract(asked.value, '$[2]')")}
            FROM json_each(:asked) AS asked
            WHERE l.lock_name = json_extract(asked.value, '$[0]')
                AND l.token = json_extract(asked.value, '$[1]')
                AND l.expires_at > {_NOW}
            RETURNING token""",
            {"asked": rows},
        )

    def release(self, name: str, token: str) -> Query:
        return Query(
            f"UPDATE {self.lock_table} SET token = NULL WHERE lock_name = :name AND token = :token",
            {"name": name, "token": token},
        )

    def create(self, name: str) -> Query:
        return Query(
            f"""INSERT INTO {self.lock_table} (lock_name, fence) VALUES (:name, 0)
            ON CONFLICT (lock_name) DO NOTHING""",
            {"name": name},
        )

    def begin(self, patience: float | None) -> tuple[Query, ...]:
        limit = self.timeouts.query if patience is None else patience
        return (
            Query(f"PRAGMA busy_timeout = {math.floor(limit * 1000)}", {}),
            # A deferred transaction that had read first could not become a writer later.
            Query("BEGIN IMMEDIATE", {}),
        )

    def lock_row(self, name: str, patience: float | None, *, borrowed: bool) -> Query:
        if not borrowed:  # BEGIN IMMEDIATE has the lock already
            return Query(
                f"SELECT fence FROM {self.lock_table} WHERE lock_name = :name AND {_FREE}",
                {"name": name},
            )
        return Query(
            f"""UPDATE {self.lock_table} SET fence = fence
            WHERE lock_name = :name AND {_FREE} RETURNING fence""",
            {"name": name},
        )

    def guard(self, name: str, token: str, fence: int) -> Query:
        return Query(
            f"""UPDATE {self.lock_table} SET fence = fence
            WHERE lock_name = :name AND fence = :fence AND token = :token RETURNING fence""",
            {"name": name, "fence": fence, "token": token},
        )

    def apply(self, key: str) -> Query:
        return Query(
            f"""INSERT INTO {self.applied_table} (idempotency_key, applied_at)
            VALUES (:key, {_NOW}) ON CONFLICT (idempotency_key) DO NOTHING""",
            {"key": key},
        )

    def unapply(self, key: str) -> Query:
        return Query(f"DELETE FROM {self.applied_table} WHERE idempotency_key = :key", {"key": key})


def _modifier(ttl: float) -> str:
    return f"+{ttl:.3f} seconds"
