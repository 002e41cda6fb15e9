"""The first statement of a user's transaction, sent with its BEGIN: one round trip for the two.

psycopg itself awaits the answer to the BEGIN first. It sends the transaction's later statements.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ...system.platform import poller
from ..query import Query
from . import read_deadline
from .sender import ACTIVE, IDLE, STALE, Sender, auto, numbered

# Seconds, for a connection without a read deadline. poll() refuses a number that is much larger.
_ENDLESS = 1_000_000.0
_TEXT = 0  # as psycopg's cursors ask for it
_PIPELINES = 140000  # the first version of libpq that has a pipeline mode


class Opener(Sender):
    """Begins the transactions of one of the user's connections."""

    @property
    def kinds(self) -> list[int]:
        """The type OIDs of the last answer's columns."""
        result = self._result
        return [result.ftype(column) for column in range(result.nfields)]

    def open(self, query: Query[Any]) -> tuple[Any, int] | None:
        """Begin a transaction with a statement; return its rows, and how many rows it matched.

        None, and nothing is sent, if the driver has to send it: the transaction has begun, or is to
        have other characteristics than the server's default. Raises psycopg's errors.
        """
        connection, pgconn, params = self._connection, self._pgconn, query.params
        if (
            pgconn.transaction_status != IDLE
            or not params
            or not isinstance(params, dict)
            or not query.sql.isascii()
            or connection.autocommit
            or connection.isolation_level is not None
            or connection.read_only is not None
            or connection.deferrable is not None
        ):
            return None
        sql, names = numbered(query.sql)
        # A new one each time, as in psycopg's cursors: the session's encoding or the connection's
        # adapters may have changed since the last statement.
        adapt = self._adapt = type(self._adapt)(connection)
        values = adapt.dump_sequence([params[name] for name in names], auto(len(names)))
        types, formats = adapt.types or (), adapt.formats or []
        within = read_deadline.within(connection) or _ENDLESS
        statement = sql, types
        with connection.lock:
            if pgconn.transaction_status != IDLE:  # another thread was faster
                return None
            name = self._prepared.get(statement) or self._prepare_here(statement, within)
            synced = False
            try:
                pgconn.enter_pipeline_mode()
                pgconn.send_query_params(b"BEGIN", None)
                if name is None:
                    pgconn.send_query_params(sql, values, types, formats, _TEXT)
                else:
                    pgconn.send_query_prepared(name, values, formats, _TEXT)
                pgconn.pipeline_sync()
                synced = True
                return self._answer(within, True, piped=True)
            except KeyboardInterrupt:
                if synced:  # without the sync the server sends no answer to wait for
                    self.cancel(within, piped=True)
                raise
            except Exception as error:
                if name is None or getattr(error, "sqlstate", None) not in STALE:
                    raise
            finally:
                self._leave_pipeline()
                self._hand_on_notifies()
            self._start_over(name, within)
        return None

    def _prepare_here(self, statement: Any, within: float) -> bytes | None:
        """Prepare a statement that is sent often. Close the connection if the caller was
        interrupted before the answer came: the driver would take it for its own."""
        try:
            return self._prepare(statement, within, True)
        except BaseException:
            if self._pgconn.transaction_status == ACTIVE:
                self._pgconn.finish()
            raise

    def _leave_pipeline(self) -> None:
        """Return the connection to the driver's use. Close it if answers are still to come, which
        the driver would take for answers to its own statements."""
        try:
            self._pgconn.exit_pipeline_mode()
        except Exception:
            self._pgconn.finish()

    def _hand_on_notifies(self) -> None:
        """Give the driver the notifications that came meanwhile: it looks on the socket alone."""
        pgconn = self._pgconn
        try:
            while (notify := pgconn.notifies()) is not None:
                if pgconn.notify_handler is not None:
                    pgconn.notify_handler(notify)
        except Exception:  # it is closed
            return

    def _start_over(self, name: bytes, within: float) -> None:
        """Undo a transaction whose prepared statement was gone or stale, and forget the name."""
        self._prepared.clear()
        self._pgconn.send_query_params(b"ROLLBACK", None)
        self._answer(within, False)
        self._pgconn.send_query_params(b'DEALLOCATE "' + name + b'"', None)
        with contextlib.suppress(Exception):  # it is gone
            self._answer(within, False)


def opener(connection: Any) -> Opener | None:
    """Return the :class:`Opener` of a connection; None if only the driver may begin transactions.

    An application that gave the connection its own cursor class expects to see every statement.
    """
    from psycopg import Cursor, pq

    if getattr(connection, "cursor_factory", None) is not Cursor or pq.version() < _PIPELINES:
        return None
    return Opener(connection, poller(connection.fileno()))
