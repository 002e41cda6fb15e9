"""One process of a PostgreSQL server, which runs when the simulation says so.

A statement that waits for others is stopped, with SIGSTOP, so that nothing happens in the server
but one thing at a time: who is in nobody's way any more goes on when it is told to.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
from collections.abc import Callable, Generator
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import QueryCanceled

from dblock.dialects.adapter import Answer
from tests.simulation.stores.postgresql_server import BEGAN, SimulatedServer

# psycopg's generators ask for this, and are told so.
_READ, _WRITE = 1, 2
# Milliseconds for an answer before it is asked whether the statement waits.
_PROMPT = 1
_MESSAGE = pq.DiagnosticField.MESSAGE_PRIMARY
_ADVISORY = re.compile(r"pg_(try_)?advisory_lock\(")

#: What a process waits for, as the server tells it.
Cause = tuple[Any, ...]


class Waits(Exception):
    """The statement waits for others."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause


class Backend:
    """A real session, used for one simulated session after the other."""

    def __init__(
        self, server: SimulatedServer, database: str, cause: Callable[[int], Cause | None]
    ) -> None:
        self.connection = server.connect(database, simulated=True)
        self.connection.prepared_max = None
        #: What the last statement was, as the server says.
        self.status: str | None = None
        self.pid = self.connection.info.backend_pid
        #: What it has said besides, since somebody looked.
        self.said: list[list[str]] = []
        self._pgconn = self.connection.pgconn
        self._pgconn.notice_handler = self._hear
        self._cause = cause
        self._cursor = self.connection.cursor(binary=True)
        self._ready = select.poll()
        self._ready.register(self._pgconn.socket, select.POLLIN)
        self._statement: Generator[Any, Any, None] | None = None
        self._dirty = False

    @property
    def transaction(self) -> pq.TransactionStatus:
        """Whether it is in a transaction, and one that has failed."""
        return pq.TransactionStatus(self._pgconn.transaction_status)

    @property
    def description(self) -> Any:
        """The columns of the last answer."""
        return self._cursor.description

    def begin(self, moment: str, *, snapshot: bool) -> None:
        """Begin a transaction, which sees what there is when it first looks, or what is newest."""
        level = "REPEATABLE READ" if snapshot else "READ COMMITTED"
        begin = f"BEGIN ISOLATION LEVEL {level}; SET LOCAL {BEGAN} = '{moment}'"
        self._pgconn.exec_(begin.encode())

    def execute(self, sql: str, params: Any, *, binary: bool = True) -> Answer:
        """Carry a statement out. Raises Waits."""
        assert self._statement is None, "a session has one statement at a time"
        if sql == "ROLLBACK":  # psycopg would have all statements prepared anew
            self._pgconn.exec_(b"ROLLBACK")
            self.status = sql
            return (), -1
        self._dirty = self._dirty or _ADVISORY.search(sql) is not None
        statement = self._cursor._execute_gen(sql, params, binary=binary)
        return self._run(statement, next(statement))

    def go_on(self) -> Answer:
        """Let the statement go on that has waited. Raises Waits where it does again."""
        statement = self._statement
        assert statement is not None
        os.kill(self.pid, signal.SIGCONT)
        return self._run(statement, _READ)

    def cancel(self) -> None:
        """End the statement that waits: before it goes on, even if it could."""
        assert self._statement is not None
        os.kill(self.pid, signal.SIGINT)
        os.kill(self.pid, signal.SIGCONT)
        try:
            self.connection.wait(self._statement)
        except QueryCanceled:
            return
        finally:
            self._statement = None
        raise AssertionError("it had not waited")

    def rest(self) -> None:
        """End whatever it is at, and have nothing of the session left."""
        if self._statement is not None:
            self.cancel()
        if self.transaction != pq.TransactionStatus.IDLE:
            self._pgconn.exec_(b"ROLLBACK")
        if self._dirty:
            self._pgconn.exec_(b"SELECT pg_advisory_unlock_all()")
            self._dirty = False
        if self._pgconn.parameter_status(b"client_encoding") != b"UTF8":
            self._pgconn.exec_(b"SET client_encoding TO 'UTF8'")
        self.said.clear()

    def _run(self, statement: Generator[Any, Any, None], wanted: int) -> Answer:
        self._statement = statement
        try:
            while True:
                ready = _WRITE
                if wanted == _READ:
                    ready = _READ
                    while not self._ready.poll(_PROMPT):
                        cause = self._cause(self.pid)
                        if cause is not None:
                            os.kill(self.pid, signal.SIGSTOP)
                            while self._ready.poll(0):  # what it has said since
                                statement.send(ready)
                            raise Waits(cause)
                wanted = statement.send(ready)
        except StopIteration:
            pass
        except Waits:
            raise
        except BaseException:
            self._statement = None
            raise
        self._statement = None
        cursor = self._cursor
        assert cursor.pgresult is not None
        self.status = cursor.statusmessage
        return cursor.fetchall() if cursor.pgresult.nfields else (), cursor.rowcount

    def _hear(self, notice: pq.abc.PGresult) -> None:
        self.said.append(json.loads(notice.error_field(_MESSAGE) or b"[]"))


class Overseer:
    """What the server says of its processes, in a session beside the simulation."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._cursor = connection.cursor()

    def cause(self, pid: int) -> Cause | None:
        """Return what a process waits for; None where it waits for nobody."""
        self._cursor.execute(_CAUSE, (pid,))
        return self._cursor.fetchone()

    def locked(self, name: str) -> bool:
        """Return whether a name's row cannot be taken just now, because of a lock."""
        self._cursor.execute(_IS_LOCKED, {"name": name})
        return self._cursor.fetchone() == (True,)

    def in_cycle(self, pid: int) -> bool:
        """Return whether a process waits for itself, over others."""
        seen: set[int] = set()
        todo = [pid]
        while todo:
            self._cursor.execute("SELECT unnest(pg_blocking_pids(%s))", (todo.pop(),))
            blocking = {row[0] for row in self._cursor}
            if pid in blocking:
                return True
            todo += blocking - seen
            seen |= blocking
        return False


_IS_LOCKED = """WITH taken AS MATERIALIZED (
        SELECT FROM dblock_lock WHERE lock_name = %(name)s FOR UPDATE SKIP LOCKED
    )
    SELECT EXISTS (SELECT FROM dblock_lock WHERE lock_name = %(name)s)
        AND NOT EXISTS (TABLE taken)"""

_CAUSE = """SELECT locktype, relation, page, tuple, virtualxid, transactionid::text, classid, objid,
    objsubid, mode FROM pg_locks WHERE pid = %s AND NOT granted"""
