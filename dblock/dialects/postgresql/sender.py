"""Statements on a connection of dblock's own, through psycopg's way into libpq, :mod:`psycopg.pq`.

::

    send ── prepared by now ──> by its name ──┬── await the answer, so long ── rows
      └── not, or no more ────> as it is ─────┘

psycopg's cursor does the same for any statement of anybody, which takes as long again as the server
does. dblock has a few statements, sent over and over.

A prepared statement's name says what it is. So it is the same whoever has prepared it, behind a
pooler too. One that is gone, after a ``DISCARD ALL``, or stale, after a migration, is prepared
anew.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

from ...protocol.steps import Query
from ...system import clock
from ..adapter import Answer
from . import read_deadline

# So many statements of a connection are prepared, as of psycopg's own.
MOST = 100
# Seconds for the server to hear that nobody wants an answer any more, and for its last word.
CANCELLING = 5.0

# A prepared statement does not exist, or a table's columns have changed since; it exists already.
STALE, _THERE = ("26000", "0A000"), ("42P05",)
_COMMAND_OK, _TUPLES_OK, _SYNCED, _BINARY = 1, 2, 10, 1  # of libpq
IDLE, ACTIVE = 0, 1  # of its transactions
_DONE = (_COMMAND_OK, _TUPLES_OK)


class Ready(Protocol):
    """Waits until a connection can be read, or ``writing`` written to, so long; returns whether.

    ``waits`` is as with :class:`.Send`.
    """

    def __call__(self, seconds: float, *, writing: bool, waits: bool) -> bool: ...


class Sender:
    """Sends one statement after the other, and awaits each one's answer."""

    def __init__(self, connection: Any, ready: Ready) -> None:
        from psycopg.adapt import Transformer

        self._connection = connection
        self._pgconn = connection.pgconn
        self._ready = ready
        # Results are binary: as text they would come as the session's settings have it.
        self._adapt = Transformer(connection)
        self._sent: Counter[_Statement] = Counter()
        self._prepared: dict[_Statement, bytes] = {}
        #: The last answer as libpq has it.
        self._result: Any = None

    def send(self, query: Query[Any], within: float, waits: bool = False) -> Answer:
        """Return a statement's answer, awaited for ``within`` seconds.

        Raises psycopg's errors.
        """
        sql, names = numbered(query.sql)
        adapt = self._adapt
        params: Any = query.params
        values = adapt.dump_sequence(tuple(map(params.__getitem__, names)), auto(len(names)))
        types, formats = adapt.types or (), adapt.formats or []
        statement = sql, types
        try:
            name = self._prepared.get(statement) or self._prepare(statement, within, waits)
            if name is not None:
                self._pgconn.send_query_prepared(name, values, formats, _BINARY)
                try:
                    return self._answer(within, waits)
                except Exception as error:
                    if not self._undone(error, STALE):
                        raise
                self._forget_prepared(within)
            self._pgconn.send_query_params(sql, values, types, formats, _BINARY)
            return self._answer(within, waits)
        except KeyboardInterrupt:
            self.cancel(within)
            raise

    # --- prepared statements -----------------------------------------------------------------

    def _prepare(self, statement: _Statement, within: float, waits: bool) -> bytes | None:
        """Return the name of a statement that is worth it; None for what is sent as it is.

        How often it is sent before is the connection's ``prepare_threshold``, None for ever.
        """
        threshold, often = self._connection.prepare_threshold, self._sent[statement]
        if threshold is None or often < threshold or len(self._prepared) >= MOST:
            self._sent[statement] = often + 1
            return None
        name, (sql, types) = _name(statement), statement
        self._pgconn.send_prepare(name, sql, types)
        try:
            self._answer(within, waits)
        except Exception as error:
            if not self._undone(error, _THERE):
                raise
        self._prepared[statement] = name
        return name

    def _forget_prepared(self, within: float) -> None:
        """Let each statement be prepared anew, as the tables are now."""
        self._prepared.clear()
        self._pgconn.send_query_params(b"DEALLOCATE ALL", None)
        self._answer(within, False)

    def _undone(self, error: Exception, states: tuple[str, ...]) -> bool:
        """Whether nothing came of it but this error, so that the statement may be sent again."""
        undone: bool = self._pgconn.transaction_status == IDLE
        return undone and getattr(error, "sqlstate", None) in states

    # --- answers -----------------------------------------------------------------------------

    def _answer(self, within: float, waits: bool, piped: bool = False) -> Answer:
        """Await the answer to what was sent; return its rows, and how many it was about. That to
        the last statement, or to the first that failed, if several were ``piped``.

        The connection is closed if that takes too long.
        """
        pgconn = self._pgconn
        result: Any = None
        left, until = within, clock.now() + within
        writing = bool(pgconn.flush())  # it is longer than the socket takes at once
        ended = False
        while True:
            while writing or pgconn.is_busy():
                if left <= 0 or not self._ready(left, writing=writing, waits=waits):
                    raise read_deadline.give_up(self._connection, within)
                try:
                    pgconn.consume_input()
                except Exception as lost:
                    if result is None or result.status in _DONE:
                        raise
                    # The server has said why before it closed the connection.
                    raise _error(result) from lost
                writing = writing and bool(pgconn.flush())
                left = until - clock.now()
            more = pgconn.get_result()
            if more is None:
                if ended or not piped:
                    break
                ended = True  # and the next statement's answer follows, unless there is no other
                continue
            ended = False
            if more.status == _SYNCED:
                break
            if result is None or result.status in _DONE:
                result = more
        self._result = result
        if result.status == _TUPLES_OK:
            self._adapt.set_pgresult(result)
            return self._adapt.load_rows(0, result.ntuples, tuple), result.ntuples
        if result.status == _COMMAND_OK:
            matched = result.command_tuples
            return (), -1 if matched is None else matched
        raise _error(result)

    def cancel(self, within: float, piped: bool = False) -> None:
        """Let the server do nothing any more for who was interrupted, as psycopg does."""
        with contextlib.suppress(Exception):
            self._connection.cancel_safe(timeout=CANCELLING)
            self._answer(min(within, CANCELLING), False, piped)


#: A statement as the server knows it: its text, and its parameters' types.
_Statement = tuple[bytes, tuple[int, ...]]

_PARAMETER = re.compile(r"%(?:%|\(([^)]+)\)s)")


@lru_cache(maxsize=512)
def numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with libpq's parameters, and the names of those in their order."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        name = found[1]
        return "%" if name is None else f"${names.setdefault(name, len(names) + 1)}"

    return _PARAMETER.sub(number, sql).encode(), tuple(names)


@lru_cache(maxsize=64)
def auto(count: int) -> tuple[Any, ...]:
    """Return so many times that a parameter's format is psycopg's to choose."""
    from psycopg.adapt import PyFormat

    return (PyFormat.AUTO,) * count


def _name(statement: _Statement) -> bytes:
    return f"dblock_{blake2b(repr(statement).encode(), digest_size=16).hexdigest()}".encode()


def _error(result: Any) -> Exception:
    from psycopg.errors import error_from_result

    return error_from_result(result)
