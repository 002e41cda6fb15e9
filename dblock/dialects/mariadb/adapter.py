"""PyMySQL: how its connections are made ready for dblock, and what MariaDB's errors mean."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from ...protocol.commands import EndSession
from ...protocol.faults import Fault
from ..adapter import Adapter, Carry, Send, ServerSession
from ..borrowed_driver import BorrowedDriver
from ..query import Query, all_rows
from .arguments import CARRIED
from .deadlines import Reader, connect
from .drivers import AioMySQL, MySQLdb, problem_of
from .errors import REFUSALS, code_of, fault_of
from .sender import Sender


class PyMySQL(Adapter):
    """PyMySQL. Its own read timeout restarts with each part of an answer. A :class:`.Reader` limits
    the whole answer."""

    drivers: ClassVar[tuple[str, ...]] = ("pymysql",)
    package = "pymysql"
    extra = "mariadb"
    others: ClassVar[tuple[type[BorrowedDriver], ...]] = (MySQLdb, AioMySQL)
    carried: ClassVar[Mapping[str, Carry]] = CARRIED
    real = "MariaDB"
    named = Query("SELECT VERSION(), @@version_comment", {}, read=all_rows)

    def connect_args(self) -> dict[str, Any]:
        return {
            "connect_timeout": math.ceil(self.timeouts.connect),
            "read_timeout": math.ceil(self.timeouts.socket),
            "write_timeout": math.ceil(self.timeouts.socket),
            "program_name": "dblock",
        }

    def bound_connecting(self, engine: Any) -> None:
        # Not by an event: the application's listeners of do_connect have to run first, since they
        # may have a newer password.
        engine.dialect.connect = partial(self.connect_in_time, engine.dialect.connect)

    def connect_in_time(self, make: Callable[..., Any], *args: Any, **params: Any) -> Any:
        """Return the connection from ``make``, connected within its ``connect_timeout``."""
        connection = make(*args, **(params | {"defer_connect": True}))
        connect(connection, connection.connect_timeout or self.timeouts.connect)
        return connection

    def unbounded(self, connection: Any) -> list[str]:
        return [] if connection._read_timeout else ["read_timeout", "write_timeout"]

    def prepare_connection(self, connection: Any) -> ServerSession:
        self.set_autocommit(connection)
        # The greeting decides first, since MySQL lacks some of these settings. A proxy may have
        # sent it, so the server is asked for its version as well.
        if self.real not in connection.get_server_info():
            self.recognise(*self.ask(connection, self.named))
        self.ask(connection, Query(_SETTINGS, (self.timeouts.query,)))
        said, session, host, server, clustered = self.ask(connection, Query(_WHO, {}))
        self.recognise(said)
        self.clustered = clustered == "ON"
        # A restarted server counts its sessions from 1 again. With the client's port the number
        # identifies the session. Without a port, on a Unix socket, it does not.
        end = None if ":" not in host else EndSession(session, host)
        return ServerSession(server, end)

    def prepare_migrator(self, connection: Any) -> None:
        super().prepare_migrator(connection)
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION wait_timeout = 31536000")

    def is_usable(self, connection: Any) -> bool:
        return bool(connection.open)

    def sender(self, connection: Any) -> Send:
        return Sender(self, connection).send

    def told(self, cursor: Any) -> Sequence[Sequence[Any]]:
        return [(cursor.lastrowid,)] if cursor.lastrowid else ()  # LAST_INSERT_ID(x)

    def bound_reads(self, connection: Any, seconds: float) -> None:
        # PyMySQL has no public way to set it on a connection.
        connection._read_timeout = connection._write_timeout = seconds
        reader = connection._rfile
        if type(reader) is not Reader:
            if reader is None:  # the connection is closed
                return
            reader = connection._rfile = Reader(connection)
        reader.bound(seconds)

    @contextlib.contextmanager
    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> Iterator[None]:
        before = connection._read_timeout, connection._write_timeout
        if within is not None:
            self.bound_reads(connection, within)
        try:
            yield
        finally:
            connection._read_timeout, connection._write_timeout = before
            if type(connection._rfile) is Reader:  # the user's own reads have no such deadline
                connection._rfile = connection._rfile.file

    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        return problem_of(connection, self.is_usable(connection), locking)

    def classify(self, error: BaseException) -> Fault | None:
        return fault_of(error, self.package)

    def misconfigured(self, error: BaseException) -> bool:
        return code_of(error, self.package) in REFUSALS

    def timed_out(self, error: BaseException) -> bool:
        # PyMySQL keeps the cause of a failed connect in original_exception. The cause of a failed
        # read is in the context.
        cause = getattr(error, "original_exception", None) or error.__context__
        return isinstance(cause, TimeoutError)


# They replace the server's presets. A lease statement never waits for a row lock: the session that
# has it is taking the name. An idle row lock is not a forgotten client, so wait_timeout is at least
# eight hours, the usual default. tx_read_only stays: an operator may have set it on a server that
# is no longer the primary.
_SETTINGS = """SET SESSION innodb_lock_wait_timeout = 0, tx_isolation = 'READ-COMMITTED',
    completion_type = 'NO_CHAIN', time_zone = '+00:00', max_statement_time = %s,
    sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0,
    sql_select_limit = 18446744073709551615, sql_big_selects = 1,
    idle_transaction_timeout = 0, idle_write_transaction_timeout = 0,
    idle_readonly_transaction_timeout = 0, wait_timeout = GREATEST(@@wait_timeout, 28800)"""

# WSREP_ON is read from a table, because not every build of the server has the variable.
_WHO = """SELECT VERSION(), id, host, CONCAT_WS('/', @@server_id, @@hostname, @@port), (
        SELECT variable_value FROM information_schema.global_variables
        WHERE variable_name = 'WSREP_ON'
    )
    FROM information_schema.processlist WHERE id = CONNECTION_ID()"""
