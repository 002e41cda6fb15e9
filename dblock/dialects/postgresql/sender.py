"""Statements on dblock's own connections, sent with :mod:`psycopg.pq`, psycopg's binding of libpq.

::

    send ── prepared ────> by its name ──┬── await the answer until the deadline ── rows
      └── not prepared ──> as text ──────┘

psycopg's cursor serves every kind of statement, and takes as long for that as the server takes for
the statement. dblock has a few statements, and sends them over and over.

The name of a prepared statement is a hash of its text and its types. So all clients behind a pooler
give it the same name. If the server no longer has the statement, after a ``DISCARD ALL``, or if it
is stale, after a migration, it is prepared again.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

from ...system import clock
from ..adapter import Answer
from ..query import Query
from . import read_deadline

# Prepared statements on a connection, at most. psycopg's own limit is the same.
MOST = 100
# Seconds for the server to receive a cancellation, and as many for the statement's last reply.
CANCELLING = 5.0

# SQLSTATEs. STALE: the prepared statement does not exist, or a table's columns have changed since.
# _THERE: it exists already.
STALE, _THERE = ("26000", "0A000"), ("42P05",)
_COMMAND_OK, _TUPLES_OK, _SYNCED, _BINARY = 1, 2, 10, 1  # of libpq
IDLE, ACTIVE = 0, 1  # libpq's states of a transaction
_DONE = (_COMMAND_OK, _TUPLES_OK)


class Ready(Protocol):
    """Waits until a connection can be read, or if ``writing`` written to, for ``seconds`` at most;
    returns whether it can.

    ``waits`` is as in :class:`.Send`.
    """

    def __call__(self, seconds: float, *, writing: bool, waits: bool) -> bool: ...


class Sender:
    """Sends one statement at a time on a connection, and awaits its answer."""

    def __init__(self, connection: Any, ready: Ready) -> None:
        from psycopg.adapt import Transformer

        self._connection = connection
        self._pgconn = connection.pgconn
        self._ready = ready
        # Results are binary: the form of a text result depends on the session's settings.
        self._adapt = Transformer(connection)
        self._sent: Counter[_Statement] = Counter()
        self._prepared: dict[_Statement, bytes] = {}
        #: libpq's result of the last statement.
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
        """Prepare a statement that is sent often, and return its name; None to send it as text.

        The connection's ``prepare_threshold`` is how often it is sent as text first; None is to
        prepare nothing.
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
        """Forget all prepared statements, so that each is prepared again for the changed tables."""
        self._prepared.clear()
        self._pgconn.send_query_params(b"DEALLOCATE ALL", None)
        self._answer(within, False)

    def _undone(self, error: Exception, states: tuple[str, ...]) -> bool:
        """Whether the statement did nothing but raise this error, so that it may be sent again."""
        undone: bool = self._pgconn.transaction_status == IDLE
        return undone and getattr(error, "sqlstate", None) in states

    # --- answers -----------------------------------------------------------------------------

    def _answer(self, within: float, waits: bool, piped: bool = False) -> Answer:
        """Await the answer to a statement; return its rows, and how many rows it matched.

        If several statements were ``piped``, that is the answer to the last, or to the first that
        failed. The connection is closed if there is no answer ``within`` that many seconds.
        """
        pgconn = self._pgconn
        result: Any = None
        left, until = within, clock.now() + within
        writing = bool(pgconn.flush())  # the socket has not taken all of it
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
                    # The server said why, and closed the connection then.
                    raise _error(result) from lost
                writing = writing and bool(pgconn.flush())
                left = until - clock.now()
            more = pgconn.get_result()
            if more is None:
                if ended or not piped:
                    break
                ended = True  # of this answer; the next statement's follows, if there is one
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
        """Cancel an interrupted caller's statement on the server, as psycopg does."""
        with contextlib.suppress(Exception):
            self._connection.cancel_safe(timeout=CANCELLING)
            self._answer(min(within, CANCELLING), False, piped)


#: A statement as the server knows it: its text, and its parameters' types.
_Statement = tuple[bytes, tuple[int, ...]]

_PARAMETER = re.compile(r"%(?:%|\(([^)]+)\)s)")


@lru_cache(maxsize=512)
def numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with libpq's numbered parameters, and their names in that order."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        name = found[1]
        return "%" if name is None else f"${names.setdefault(name, len(names) + 1)}"

    return _PARAMETER.sub(number, sql).encode(), tuple(names)


@lru_cache(maxsize=64)
def auto(count: int) -> tuple[Any, ...]:
    """Return ``count`` formats which let psycopg choose how to send a parameter."""
    from psycopg.adapt import PyFormat

    return (PyFormat.AUTO,) * count


def _name(statement: _Statement) -> bytes:
    return f"dblock_{blake2b(repr(statement).encode(), digest_size=16).hexdigest()}".encode()


def _error(result: Any) -> Exception:
    from psycopg.errors import error_from_result

    return error_from_result(result)
