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
from ..packets import CommitFailed, PacketSender
from ..query import Query, all_rows, any_row
from ..values import text
from .arguments import CARRIED
from .deadlines import Reader, connect
from .drivers import ASK_AUTOCOMMIT, AioMySQL, MySQLConnector, MySQLdb, problem_of
from .errors import LOCK_WAIT_TIMEOUT, REFUSALS, code_of, fault_of
from .sender import Sender
from .sessions import MYSQL_SETTINGS, MYSQL_WHO, SETTINGS, WHO


class PyMySQL(Adapter):
    """PyMySQL. Its own read timeout restarts with each part of an answer. A :class:`.Reader` limits
    the whole answer."""

    drivers: ClassVar[tuple[str, ...]] = ("pymysql",)
    package = "pymysql"
    extras: ClassVar[Mapping[str, str]] = {"mariadb": "mariadb", "mysql": "mysql"}
    others: ClassVar[tuple[type[BorrowedDriver], ...]] = (MySQLdb, MySQLConnector, AioMySQL)
    carried: ClassVar[Mapping[str, Carry]] = CARRIED
    #: Whether the server undoes the whole transaction if a statement waits too long for a row.
    undoes_on_timeout: bool = False
    asks_autocommit = ASK_AUTOCOMMIT
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
        kind, limit = self.real.lower(), self.timeouts.query
        if self.real not in connection.get_server_info():
            said, comment = self.ask(connection, self.named)
            self.recognise(said, comment)
            kind = self.kind_of(said)
        if kind == "mysql":
            self.allow_packets(connection)
            settings, limit, who = MYSQL_SETTINGS, round(1000 * limit), MYSQL_WHO
        else:
            settings, who = SETTINGS, WHO
        self.ask(connection, Query(settings, (limit,)))
        said, session, host, server, undoes, clustered = self.ask(connection, Query(who, {}))
        if kind != "mysql":  # MySQL was recognised above, by its version and its comment
            self.recognise(said)
        self.clustered, self.undoes_on_timeout = clustered == "ON", bool(undoes)
        # A restarted server counts its sessions from 1 again. With the client's port the number
        # identifies the session. Without a port, on a Unix socket, it does not.
        end = None if host is None or ":" not in host else EndSession(session, host)
        return ServerSession(server, end)

    def kind_of(self, said: str | bytes) -> str:
        return "mariadb" if self.real in text(said) else "mysql"

    def allow_packets(self, connection: Any) -> None:
        """Let a connection to MySQL send several statements at once. A lent engine's connection was
        not made for that, so the server is asked later."""
        connection._execute_command(SET_OPTION, MULTI_STATEMENTS_ON)
        connection._read_packet()

    def prepare_migrator(self, connection: Any) -> None:
        super().prepare_migrator(connection)
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION wait_timeout = 31536000")

    def is_usable(self, connection: Any) -> bool:
        return bool(connection.open)

    def sender(self, connection: Any) -> Send:
        # By this connection's own greeting: another thread may have reached another server since.
        if self.real in connection.get_server_info():
            return Sender(self, connection).send
        return PacketSender(self, connection).send

    def send_packet(
        self, connection: Any, query: Query[Any], answers: Any, within: float, waits: bool
    ) -> None:
        """Run several statements at once, and collect their ``answers``; the rest is as in
        :meth:`send`."""
        self.bound_reads(connection, within)
        cursor = connection.cursor()
        cursor.execute(query.sql, query.params)
        answers.add(cursor.fetchall(), cursor)
        while cursor.nextset():
            answers.add(cursor.fetchall(), cursor)

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
        if isinstance(error, CommitFailed):
            return Fault.DISCONNECTED
        return fault_of(error, self.package)

    def undoes_all(self, ask: Callable[[Query[bool]], bool]) -> bool:
        setting = "SELECT 1 FROM DUAL WHERE @@innodb_rollback_on_timeout"
        return ask(Query(setting, {}, read=any_row))

    def classify_borrowed(self, driver: BorrowedDriver, error: BaseException) -> Fault | None:
        fault = driver.classify(error)
        if fault is Fault.BUSY and self.undoes_on_timeout and error.args[0] == LOCK_WAIT_TIMEOUT:
            return Fault.DEADLOCK  # to the user it is the same: the transaction is gone
        return fault

    def misconfigured(self, error: BaseException) -> bool:
        return code_of(error, self.package) in REFUSALS

    def timed_out(self, error: BaseException) -> bool:
        # PyMySQL keeps the cause of a failed connect in original_exception. The cause of a failed
        # read is in the context.
        if isinstance(error, CommitFailed) and error.__cause__ is not None:
            error = error.__cause__
        cause = getattr(error, "original_exception", None) or error.__context__
        return isinstance(cause, TimeoutError)


# COMSET_OPTION and its value, by which the client may send several statements at once.
SET_OPTION, MULTI_STATEMENTS_ON = 27, bytes(2)
