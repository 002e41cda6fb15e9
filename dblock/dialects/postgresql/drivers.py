"""psycopg2 and asyncpg, which a user's transaction may have."""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from ...protocol.faults import Fault
from ..answer_deadline import ended_after, in_loop, shut_down_after
from ..borrowed_driver import AUTOCOMMIT, CLOSED, FAILED, BorrowedDriver
from ..query import Query
from .errors import IN_FAILED_TRANSACTION, fault_of

if TYPE_CHECKING:
    from sqlalchemy.pool import PoolProxiedConnection


def problem_of(connection: Any, locking: bool, status: int) -> str | None:
    """Say why nothing can be locked in a transaction of a driver that uses libpq.

    ``status`` is libpq's status of the transaction.
    """
    if connection.closed:
        return CLOSED
    if locking and connection.autocommit:
        return AUTOCOMMIT
    return FAILED if status == _IN_ERROR else None


def raised_in(error: BaseException) -> str | None:
    """Return the server's function that raised an error, for a driver that uses libpq."""
    return getattr(getattr(error, "diag", None), "source_function", None)


class Psycopg2(BorrowedDriver):
    """psycopg2. It waits within libpq, where no Python code can give up."""

    drivers: ClassVar[tuple[str, ...]] = ("psycopg2",)
    package = "psycopg2"

    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> contextlib.AbstractContextManager[None]:
        return shut_down_after(within, connection)

    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        if connection.closed:  # then it has no status
            return CLOSED
        return problem_of(connection, locking, connection.info.transaction_status)

    def has_begun(self, connection: Any) -> bool:
        return bool(connection.info.transaction_status != IDLE)

    def classify(self, error: BaseException) -> Fault | None:
        state = getattr(error, "pgcode", None)
        if state is not None:
            return fault_of(state, raised_in(error))
        kind = type(error).__name__
        # Without a state the error is libpq's own, and the connection is broken.
        broken = kind in ("OperationalError", "DatabaseError")
        if broken or (kind == "InterfaceError" and "already closed" in str(error)):
            return Fault.DISCONNECTED
        return None

    def timed_out(self, error: BaseException) -> bool:
        return False


class Asyncpg(BorrowedDriver):
    """asyncpg under SQLAlchemy's adapter, which begins transactions and translates errors."""

    drivers: ClassVar[tuple[str, ...]] = ("asyncpg",)
    package = "asyncpg"
    is_async = True
    plain_cursor = False  # SQLAlchemy prepares a statement again that a migration has made stale

    def connection_of(self, lent: PoolProxiedConnection) -> Any:
        return lent.dbapi_connection  # the adapter has an autocommit mode, asyncpg itself has none

    def written(self, query: Query[Any]) -> tuple[str, Any]:
        if not query.params or not isinstance(query.params, dict):
            return super().written(query)
        sql, order = _numbered(query.sql)
        return sql, tuple(query.params[name] for name in order)

    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> contextlib.AbstractContextManager[None]:
        return ended_after(within, connection.driver_connection.terminate, in_loop)

    def has_begun(self, connection: Any) -> bool:
        return bool(connection.driver_connection.is_in_transaction())

    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        if connection.driver_connection.is_closed():
            return CLOSED
        if locking and connection.autocommit:
            return AUTOCOMMIT
        return None

    def raised(self, error: BaseException) -> BaseException:
        translated = type(error).__module__.startswith("sqlalchemy.")
        return (error.__cause__ or error) if translated else error

    def failed_before(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) == IN_FAILED_TRANSACTION

    def classify(self, error: BaseException) -> Fault | None:
        kind = type(error).__name__
        if kind == "InvalidCachedStatementError":
            # The same as _STALE_PLAN in fault_of. SQLAlchemy prepares the statement again for the
            # next transaction.
            return Fault.ALTERED
        if isinstance(error, OSError):  # SQLAlchemy drops the connection, and raises it unchanged
            return Fault.DISCONNECTED
        state = getattr(error, "sqlstate", None)
        if state is not None:
            return fault_of(state)
        broken = kind == "InterfaceError" and "connection is closed" in str(error)
        return Fault.DISCONNECTED if broken else None

    def timed_out(self, error: BaseException) -> bool:
        return isinstance(error, TimeoutError)  # asyncpg's command_timeout


IDLE, _IN_ERROR = 0, 3  # libpq's PQTRANS_IDLE and PQTRANS_INERROR


@lru_cache(maxsize=64)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with PostgreSQL's numbered parameters, and their names in that order."""
    order: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return "%"
        if name not in order:
            order.append(name)
        return f"${order.index(name) + 1}"

    return re.sub(r"%\((?P<name>\w+)\)s|%%", number, sql), tuple(order)
