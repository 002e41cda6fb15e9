"""SQLite 3.35 or newer, through the standard library."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

from ..protocol import commands
from ..protocol.faults import Fault
from ..protocol.state import Granted, Renewal
from ..protocol.steps import Query, Reply
from ..timeouts import Timeouts
from .base import TICKET, Dialect, Session

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

# Seconds that a lease's statement waits for the file's writer. One commit is done by then; longer
# waits are the protocol's, which knows the caller's deadline.
_TURN = 0.05

_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL

_NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
_SHIFTED = "strftime('%Y-%m-%d %H:%M:%f', 'now', {})"
_LATER = _SHIFTED.format(":ttl")
_FREE = f"(token IS NULL OR expires_at <= {_NOW})"
_REMAINING = "(julianday(expires_at) - julianday('now')) * 86400.0"

# Tickets are all as long, with commas between. How many there are; those behind the ticket.
_LAST = f"ifnull((length(waiters) + 1) / {TICKET + 1}, 0)"
_REST = f"""iif(instr(waiters, :ticket),
    nullif(substr(waiters, instr(waiters, :ticket) + {TICKET + 1}), ''), NULL)"""


class SQLite(Dialect):
    """One writer at a time for the whole file, so a row lock is a write transaction: coarser than
    a row, still exclusive. Times are UTC text to the millisecond, as SQLAlchemy stores them.

    WAL with ``synchronous=NORMAL`` may lose the last commits in a power cut, not in a crash of a
    process. All holders live on the file's machine, so the cut ended them too.
    """

    name = "sqlite"
    backends: ClassVar[tuple[str, ...]] = ("sqlite",)
    drivers: ClassVar[tuple[str, ...]] = ("pysqlite",)
    recognised = True  # a library, nobody else's
    refusal_holds = True  # a write transaction keeps all other writers out
    one_writer = True
    dynamic_types = True
    looks_itself = True
    name_parameter = ":name"
    patience = _TURN
    remaining = _REMAINING
    later = _SHIFTED
    clock = _NOW
    ago = "strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :age || ' seconds')"

    def shift(self, seconds: float) -> object:
        return _modifier(seconds)

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
        self.ask(connection, Query(_busy_timeout(_TURN), {}))
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
        self.ask(connection, Query(_busy_timeout(patience), {}))
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
        params = {"name": name, "token": token, "owner": owner, "ttl": _modifier(ttl)}
        return Query(self._grant, params, commands.Grant(name, token, owner, ttl), self.patience)

    # The two of every pair are put together once.

    @cached_property
    def _grant(self) -> str:
        return f"""INSERT INTO {self.lock_table}
                (lock_name, fence, token, owner, acquired_at, expires_at)
            VALUES (:name, 1, :token, :owner, {_NOW}, {_LATER})
            ON CONFLICT (lock_name) DO UPDATE SET fence = fence + 1, token = excluded.token,
                owner = excluded.owner, acquired_at = {_NOW}, expires_at = {_LATER}, waiters = NULL
            WHERE {self.turn(_LAST)}
            RETURNING fence, {_REMAINING}"""

    @cached_property
    def _release(self) -> str:
        return f"""UPDATE {self.lock_table} SET token = NULL, expires_at = {_NOW}
            WHERE lock_name = :name AND token = :token"""

    def join(self, name: str, token: str, owner: str, ttl: float, ticket: str) -> Query:
        params = {"name": name, "token": token, "owner": owner, "ttl": _modifier(ttl)}
        free = self.turn(self.before)
        return Query(
            f"""INSERT INTO {self.lock_table}
                (lock_name, fence, token, owner, acquired_at, expires_at)
            VALUES (:name, 1, :token, :owner, {_NOW}, {_LATER})
            ON CONFLICT (lock_name) DO UPDATE SET
                fence = fence + {free},
                token = iif({free}, excluded.token, token),
                owner = iif({free}, excluded.owner, owner),
                acquired_at = iif({free}, {_NOW}, acquired_at),
                expires_at = iif({free}, {_LATER}, expires_at),
                waiters = iif({free}, {_REST}, ifnull(waiters || ',', '') || :ticket)
            WHERE {free} OR NOT {self.standing}
            RETURNING iif(token = :token, fence, NULL), {_REMAINING}, NULL, {self._columns()},
                iif({self.standing}, {self.before}, NULL), {free}""",
            params | {"ticket": ticket},
            commands.Join(name, token, owner, ttl, ticket),
            self.patience,
        )

    def leave(self, name: str, token: str, ticket: str) -> Query:
        return Query(
            f"""UPDATE {self.lock_table} SET waiters = nullif(
                trim(replace(',' || waiters || ',', ',' || :ticket || ',', ','), ','), '')
            WHERE lock_name = :name AND {self.standing}""",
            {"name": name, "ticket": ticket},
            commands.Leave(name, token, ticket),
            self.patience,
        )

    @property
    def before(self) -> str:
        place = f"(instr(waiters, :ticket) - 1) / {TICKET + 1}"
        return f"iif({self.standing}, {place}, {_LAST})"

    @property
    def standing(self) -> str:
        return "(ifnull(instr(waiters, :ticket), 0) > 0)"

    def turn(self, before: str) -> str:
        ago = f"printf('-%.3f seconds', {before} * {self.grace})"
        return (
            f"(expires_at IS NULL OR token IS NULL AND expires_at > {_NOW} "
            f"OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', {ago}))"
        )

    def granted(self, reply: Reply, token: str) -> Granted | None:
        if not reply.rows or reply.rows[0][0] is None:
            return None
        return Granted(reply.rows[0][0], reply.rows[0][1])

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
            commands.Renew(tuple(asked)),
            self.patience,
        )

    def release(self, name: str, token: str) -> Query:
        params = {"name": name, "token": token}
        return Query(self._release, params, commands.Release(name, token), self.patience)

    def create(self, name: str) -> Query:
        return Query(
            f"""INSERT INTO {self.lock_table} (lock_name, fence) VALUES (:name, 0)
            ON CONFLICT (lock_name) DO NOTHING""",
            {"name": name},
            commands.Create(name),
        )

    def begin(self, patience: float | None) -> tuple[Query, ...]:
        limit = self.timeouts.query if patience is None else patience
        return (
            Query(_busy_timeout(limit), {}),
            # A deferred transaction that had read first could not become a writer later.
            Query("BEGIN IMMEDIATE", {}, commands.Begin(), limit),
        )

    def lock_row(self, name: str, patience: float | None, *, borrowed: bool) -> Query:
        if not borrowed:  # BEGIN IMMEDIATE has the lock already
            return Query(
                f"SELECT fence FROM {self.lock_table} WHERE lock_name = :name AND {_FREE}",
                {"name": name},
                commands.LockRow(name, borrowed),
            )
        return Query(
            f"""UPDATE {self.lock_table} SET fence = fence
            WHERE lock_name = :name AND {_FREE} RETURNING fence""",
            {"name": name},
            commands.LockRow(name, borrowed),
        )

    def guard(self, name: str, token: str, fence: int) -> Query:
        return Query(
            f"""UPDATE {self.lock_table} SET fence = fence
            WHERE lock_name = :name AND fence = :fence AND token = :token RETURNING fence""",
            {"name": name, "fence": fence, "token": token},
            commands.Guard(name, token, fence),
        )

    def apply(self, key: str) -> Query:
        return Query(
            f"""INSERT INTO {self.applied_table} (idempotency_key, applied_at)
            VALUES (:key, {_NOW}) ON CONFLICT (idempotency_key) DO NOTHING""",
            {"key": key},
            commands.Apply(key),
        )

    def unapply(self, key: str) -> Query:
        return Query(
            f"DELETE FROM {self.applied_table} WHERE idempotency_key = :key",
            {"key": key},
            commands.Unapply(key),
        )


def _busy_timeout(seconds: float) -> str:
    return f"PRAGMA busy_timeout = {math.floor(seconds * 1000)}"


def _modifier(seconds: float) -> str:
    return f"{seconds:+.3f} seconds"
