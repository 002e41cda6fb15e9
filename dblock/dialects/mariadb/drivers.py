"""mysqlclient, MySQL Connector/Python and aiomysql, which a user's transaction may have."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from ...protocol.faults import Fault
from ..answer_deadline import ended_after, in_loop, shut_down_after
from ..borrowed_driver import AUTOCOMMIT, CLOSED, BorrowedDriver
from ..query import Query, any_row
from .errors import fault_of

#: If the server's preset of autocommit is off, its greeting says nevertheless that it is on. These
#: drivers believe the greeting until the mode is changed.
ASK_AUTOCOMMIT: Query[bool] = Query("SELECT 1 FROM DUAL WHERE @@autocommit", {}, read=any_row)


def problem_of(connection: Any, is_open: bool, locking: bool) -> str | None:
    """Say why nothing can be locked in a transaction, for any driver that has PyMySQL's methods."""
    if not is_open:
        return CLOSED
    if locking and connection.get_autocommit():
        return AUTOCOMMIT
    return None


class MySQLdb(BorrowedDriver):
    """mysqlclient. It waits within a C library, where no Python code can give up."""

    drivers: ClassVar[tuple[str, ...]] = ("mysqldb",)
    package = "MySQLdb"
    asks_autocommit = ASK_AUTOCOMMIT

    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> contextlib.AbstractContextManager[None]:
        return shut_down_after(within, connection)

    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        return problem_of(connection, bool(connection.open), locking)

    def classify(self, error: BaseException) -> Fault | None:
        return fault_of(error, self.package)

    def timed_out(self, error: BaseException) -> bool:
        return False


class MySQLConnector(BorrowedDriver):
    """MySQL Connector/Python. Its connections are written in Python, or over a C library. The
    second shows no socket, so nothing but its own ``read_timeout`` limits its waits."""

    drivers: ClassVar[tuple[str, ...]] = ("mysqlconnector",)
    package = "mysql"
    asks_autocommit = ASK_AUTOCOMMIT

    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> contextlib.AbstractContextManager[None]:
        if hasattr(connection, "_cmysql"):
            return contextlib.nullcontext()
        return shut_down_after(within, connection._socket.sock)

    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        # Its public is_connected() and autocommit ask the server.
        if hasattr(connection, "_cmysql"):
            is_open = connection._cmysql is not None and connection._cmysql.connected()
        else:
            is_open = connection._socket is not None and connection._socket.sock.fileno() >= 0
        if not is_open:
            return CLOSED
        # It does not see a mode that a statement has set. In that mode no statement begins a
        # transaction. After a deadlock it believes that there is one still.
        suspicious = connection._autocommit or not connection.in_transaction
        return AUTOCOMMIT if locking and suspicious else None

    def classify(self, error: BaseException) -> Fault | None:
        # These two have the code of a statement that the server has ended, and the connection is
        # closed. A lost connection may have no code (-1).
        name, code = type(error).__name__, error.args[0] if error.args else None
        if self.timed_out(error) or (name == "OperationalError" and code == -1):
            return Fault.DISCONNECTED
        return fault_of(error, self.package)

    def timed_out(self, error: BaseException) -> bool:
        return type(error).__name__ in ("ReadTimeoutError", "WriteTimeoutError")


class AioMySQL(BorrowedDriver):
    """aiomysql. It is built on PyMySQL, and raises its errors."""

    drivers: ClassVar[tuple[str, ...]] = ("aiomysql",)
    package = "aiomysql"
    is_async = True
    asks_autocommit = ASK_AUTOCOMMIT

    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> contextlib.AbstractContextManager[None]:
        return ended_after(within, connection.close, in_loop)

    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        return problem_of(connection, not connection.closed, locking)

    def classify(self, error: BaseException) -> Fault | None:
        return fault_of(error, "pymysql")

    def timed_out(self, error: BaseException) -> bool:
        return False
