"""The user's transaction on the driver's own cursor, where nobody watches SQLAlchemy's.

What SQLAlchemy does around a cursor takes longer than the driver itself, and the row is locked
meanwhile. It is needed for those who listen to its events, or have it log: they see each statement
as ever.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .io.borrowed import FAILURES, Borrowed, BorrowedTransaction, cause_of
from .protocol.steps import Query, Reply

if TYPE_CHECKING:
    from sqlalchemy.engine import CursorResult, Dialect
    from sqlalchemy.sql import Executable

    from .compiled import Compiled


class TableTransaction(Borrowed):
    """A user's transaction in which a counter's statements run, over a table of the user's."""

    @property
    @abstractmethod
    def written_for(self) -> Dialect:
        """SQLAlchemy's dialect that the statements are compiled for."""

    @abstractmethod
    def rows(self, compiled: Compiled, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        """Run a query; return its rows."""


class CursorTransaction(BorrowedTransaction, TableTransaction):
    """As SQLAlchemy's connection would run them: begun when need be, and told of failures."""

    @property
    def written_for(self) -> Dialect:
        return self.connection.dialect

    def execute(self, query: Query[Any]) -> Reply:
        if self.watched:
            return super().execute(query)
        sent = self._runtime.now()
        cursor, rows = self._send(query)
        return Reply(rows, cursor.rowcount, sent, self._runtime.now())

    def rows(self, compiled: Compiled, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        if self.watched:
            return self.execute_core(compiled.statement, values).all()
        cursor, rows = self._send(compiled.query(values))
        kinds = [column[1] for column in cursor.description]
        return [compiled.convert(row, kinds, self.written_for) for row in rows]

    def execute_core(self, statement: Executable, values: Any) -> CursorResult[Any]:
        """Run a statement on the user's own tables as SQLAlchemy would."""
        try:
            return self.connection.execute(statement, values)
        except FAILURES as error:
            raise self._told(error) from cause_of(error)

    @property
    def watched(self) -> bool:
        """Whether something is done around each statement, or to be looked at before it."""
        connection = self.connection
        return (
            connection._echo
            or connection._has_events
            or connection.engine._has_events
            or connection.dialect._has_events
            or connection._trans_context_manager not in (None, connection.get_transaction())
            or connection.in_nested_transaction()
        )

    def _send(self, query: Query[Any]) -> tuple[Any, Sequence[Any]]:
        """Return the cursor that ran a statement, and the rows: one for each of the driver's
        connections, for making it takes as long as running does."""
        connection = self.connection
        sql, params = self.driver.written(query)
        if not connection.in_transaction():
            connection.begin()
        cursor = None
        try:
            lent = connection.connection
            cursor = lent.info.get(_CURSOR)
            if cursor is None:
                cursor = lent.info[_CURSOR] = lent.cursor()
            connection.dialect.do_execute(cursor, sql, params)
            return cursor, cursor.fetchall() if cursor.description else ()
        except BaseException as error:
            if cursor is not None:
                lent.info.pop(_CURSOR, None)
            self._failed(error, sql, params, cursor)

    def _failed(self, error: BaseException, sql: str, params: Any, cursor: Any) -> NoReturn:
        """Let SQLAlchemy do what it does about a failure: for one, empty the pool of a server that
        is gone."""
        try:
            self.connection._handle_dbapi_exception(error, sql, params, cursor, None)
        except FAILURES as told:
            raise self._told(told) from cause_of(told)


# In the dictionary that SQLAlchemy keeps with each connection of a pool, until that is closed.
_CURSOR = "dblock cursor"
