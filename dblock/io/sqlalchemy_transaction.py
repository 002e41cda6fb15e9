"""SQLAlchemy's transactions: find the one of a Connection or Session, and run statements in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sqlalchemy import inspect
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.exc import StatementError as FailedStatement

from ..dialects.query import Query, Result
from ..protocol import commands
from ..protocol.faults import Fault, StatementError
from ..protocol.steps import Reply
from .borrowed import TableTransaction, lenders, of_another_kind, unusable
from .user_connection import UserConnection, savepoints_of, user_connection

if TYPE_CHECKING:
    from sqlalchemy.engine import CursorResult
    from sqlalchemy.engine import Dialect as SQLAlchemyDialect
    from sqlalchemy.orm import Session
    from sqlalchemy.schema import Table
    from sqlalchemy.sql import Executable
    from sqlalchemy.types import TypeEngine

    from ..dialects import Dialect
    from .borrowed import Borrowable, Borrowed, Root
    from .core_statement import Compiled
    from .runtime import Runtime


R = TypeVar("R")


def borrow(
    on: Borrowable,
    dialect: Dialect,
    runtime: Runtime,
    *,
    locking: bool = True,
    changing: bool = True,
) -> Borrowed:
    """Return the transaction of ``on``: a framework's, if one of the ``lenders`` knows it, else
    SQLAlchemy's. If there is none, SQLAlchemy begins one.

    ``locking`` says that something has to stay locked in it. Autocommit cannot do that.
    ``changing`` says that something is to be changed in it, and undone if it is rolled back.

    Raises TypeError if ``on`` is not a Connection or Session. Raises ValueError if it cannot hold
    a lock: it is closed, failed, in autocommit mode, or of another kind of database.
    """
    for lender in lenders:
        lent = lender(on, dialect, runtime)
        if lent is not None:
            return lent
    found = _found(on)
    if isinstance(found, Connection):
        connection = found
    else:
        if changing and dialect.adapter.savepoint_begins:
            _begin_before_savepoints(found, dialect)
        connection = found.connection()
    if connection.closed or connection.invalidated:
        raise ValueError("nothing can be locked on this connection: it is closed")
    if connection.dialect.name not in dialect.backends:
        raise of_another_kind(dialect, connection.dialect.name)
    cached = user_connection(connection, dialect)
    root = connection.get_transaction()
    if root is not None and not root.is_active:
        raise ValueError(
            "nothing can be locked on this connection: its transaction has already failed; "
            "roll it back first"
        )
    transaction = BorrowedTransaction(connection, dialect, cached, runtime)
    problem = cached.driver.transaction_problem(cached.connection, locking)
    if problem is not None:
        problem = transaction.confirmed(problem)
    if problem is None and changing and cached.driver.savepoint_begins:
        problem = _savepoint_problem(connection, cached, locking)
    if problem is not None:
        raise ValueError(unusable(problem))
    return transaction


def backend_of(on: Borrowable) -> str:
    """Return the name of SQLAlchemy's dialect for ``on``. Raises as :func:`borrow` does."""
    found = _found(on)
    return (found if isinstance(found, Connection) else found.get_bind()).dialect.name


def _found(on: Borrowable) -> Connection | Session:
    """Return the Connection or Session that ``on`` is.

    Raises TypeError if it is none, and ValueError for a Session that has failed.
    """
    from sqlalchemy.orm import Session, scoped_session

    if isinstance(on, Connection):
        return on
    if type(on).__name__.startswith("Async"):  # importing these types needs greenlet
        raise TypeError(f"give a sync Connection or Session here, not {type(on).__name__}")
    found = on() if isinstance(on, scoped_session) else on
    if not isinstance(found, Session):
        raise TypeError(
            "give an SQLAlchemy Connection, Session or scoped_session, which has the transaction, "
            f"not {type(found).__name__}: {found!r}"
        )
    if not found.is_active:
        raise ValueError(
            "nothing can be locked in this session: its transaction has already failed; "
            "roll it back first"
        )
    return found


def _begin_before_savepoints(session: Session, dialect: Dialect) -> None:
    """Begin a Session's transaction if the driver would let a savepoint begin it.

    A Session sets its savepoints when it is asked for its connection. The caller has not asked yet.
    """
    bind, root = session.bind, session.get_transaction()
    if isinstance(bind, Connection) and bind.in_transaction():
        connection = bind  # the Session may join this transaction by a savepoint
    elif root is not None and session.in_nested_transaction():
        connection = root.connection(None)
    else:
        return
    if connection.dialect.name in dialect.backends and not connection.in_nested_transaction():
        cached = user_connection(connection, dialect)
        if cached.driver.begins_late(cached.connection):
            connection.exec_driver_sql("BEGIN")
        cached.note_begun(connection)


def _savepoint_problem(connection: Connection, cached: UserConnection, locking: bool) -> str | None:
    """Say why nothing can be locked within the savepoints that are open, if there are any."""
    if not connection.in_nested_transaction():
        cached.note_begun(connection)
        return None
    if cached.has_begun(connection):
        return None
    watched = connection._has_events or connection.engine._has_events
    begun = watched and bool(connection.dispatch.begin)
    return cached.driver.savepoint_problem(cached.connection, begun=begun, locking=locking)


class BorrowedTransaction(TableTransaction):
    """A transaction of SQLAlchemy's.

    dblock runs its statements on the driver's own cursor, because SQLAlchemy's work around a
    statement takes longer than the driver. It sends the first one with the BEGIN if the driver can
    do that. If SQLAlchemy's events have listeners, or SQLAlchemy logs, the statements go through
    it. In both cases SQLAlchemy handles failures, and empties the pool of a server that is gone.
    """

    def __init__(
        self, connection: Connection, dialect: Dialect, cached: UserConnection, runtime: Runtime
    ) -> None:
        super().__init__(dialect, cached.driver, cached.connection, runtime)
        self.connection = connection
        self._cached = cached
        #: Whether nothing was done in the transaction before :meth:`note_whether_fresh`: then it
        #: can be started over.
        self.fresh = False

    @property
    def root(self) -> Root | None:
        return self.connection.get_transaction()

    @property
    def source(self) -> object:
        return self.connection.dialect  # an engine and its copies with other options share it

    def begin(self) -> None:
        if not self.connection.in_transaction():
            self.connection.begin()

    def on_undo(self, function: Callable[[Root], None]) -> None:
        around, savepoint = set[str](), self.connection.get_nested_transaction()
        while savepoint is not None:
            around.add(savepoint._savepoint)
            savepoint = savepoint._previous_nested
        if not around:
            return
        root = self.root
        assert root is not None  # a savepoint is in a transaction
        savepoints_of(self.connection).add(root, around, function)

    def savepoint(self) -> None:
        self.execute(_SAVEPOINT)

    def undo(self, savepoint: None) -> None:
        if not self.connection.invalidated:
            self.execute(_UNDO)

    def release(self, savepoint: None) -> None:
        self.execute(_RELEASE)

    def note_whether_fresh(self) -> None:
        self.begin()
        self.fresh = not self.driver.has_begun(self.driver_connection)

    def start_over(self) -> None:
        connection = self.connection
        if connection.invalidated:
            return
        try:
            connection.dialect.do_rollback(connection.connection)
        except Exception as error:
            self._failed(error, "ROLLBACK", None, None)

    def execute(self, query: Query[R]) -> Reply[R]:
        sent = self._runtime.now()
        if self.watched:
            try:
                result = self.connection.exec_driver_sql(*self.driver.written(query))
                rows = result.fetchall() if result.returns_rows else ()
                self._note_begun()
                matched = result.rowcount
            except FAILURES as error:
                raise self._told(error) from cause_of(error)
        else:
            rows, matched, _ = self._send(query)
        return Reply(query.read(Result(rows, matched)), sent, self._runtime.now())

    @property
    def written_for(self) -> SQLAlchemyDialect:
        return self.connection.dialect

    @property
    def schemas(self) -> Mapping[str | None, str | None] | None:
        found: Mapping[str | None, str | None] | None
        found = self.connection.get_execution_options().get("schema_translate_map")
        return found

    def rows(self, compiled: Compiled, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        query = compiled.query(values)
        if self.watched:
            rows, kinds = self._listened(query)
        else:
            rows, _, kinds = self._send(query, typed=True)
        return [compiled.convert(row, kinds, self.written_for) for row in rows]

    def _listened(self, query: Query[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Run a query through SQLAlchemy; return its rows, and the driver's types."""
        try:
            result = self.connection.exec_driver_sql(*self.driver.written(query))
            kinds = [column[1] for column in result.cursor.description]
            return result.fetchall(), kinds
        except FAILURES as error:
            raise self._told(error) from cause_of(error)

    def execute_core(self, statement: Executable, values: Any) -> CursorResult[Any]:
        """Run a statement on the user's own tables as SQLAlchemy would."""
        try:
            result = self.connection.execute(statement, values)
        except FAILURES as error:
            raise self._told(error) from cause_of(error)
        self._note_begun()
        return result

    def _note_begun(self) -> None:
        if self.driver.savepoint_begins and not self.connection.in_nested_transaction():
            self._cached.note_begun(self.connection)

    @property
    def watched(self) -> bool:
        """Whether statements have to go through SQLAlchemy: it has listeners or logs, a savepoint
        is open, or the driver needs it."""
        connection = self.connection
        return (
            not self.driver.plain_cursor
            or connection._echo
            or connection._has_events
            or connection.engine._has_events
            or connection.dialect._has_events
            or connection._trans_context_manager not in (None, connection.get_transaction())
            or connection.in_nested_transaction()
        )

    def _send(
        self, query: Query[Any], *, typed: bool = False
    ) -> tuple[Sequence[Any], int, Sequence[Any]]:
        """Run a statement; return its rows, how many rows it matched, and, if ``typed``, the
        driver's types of the columns."""
        connection, cached = self.connection, self._cached
        self.begin()
        opener, cursor = cached.opener, None
        try:
            if opener is not None:
                opened = opener.open(query)
                if opened is not None:
                    return *opened, opener.kinds if typed else ()
            sql, params = self.driver.written(query)
            cursor = cached.cursor
            if cursor is None:
                cursor = cached.cursor = connection.connection.cursor()
            if params is None:
                connection.dialect.do_execute_no_params(cursor, sql)
            else:
                connection.dialect.do_execute(cursor, sql, params)
            rows = cursor.fetchall() if self.driver.has_rows(cursor) else ()
            kinds = [column[1] for column in cursor.description] if typed else ()
            if self.driver.savepoint_begins:  # no savepoint is open here
                cached.note_begun(connection)
            return rows, cursor.rowcount, kinds
        except BaseException as error:
            cached.cursor = None
            self._failed(error, *self.driver.written(query), cursor)

    def _failed(self, error: BaseException, sql: str, params: Any, cursor: Any) -> NoReturn:
        """Let SQLAlchemy do what it does about a failure."""
        try:
            self.connection._handle_dbapi_exception(error, sql, params, cursor, None)
        except FAILURES as told:
            raise self._told(told) from cause_of(told)

    def types(self, table: Table) -> dict[str, TypeEngine[Any]]:
        """Return the types of a table's columns; none if the database does not show them."""
        try:
            schema = (self.schemas or {}).get(table.schema, table.schema)
            columns = inspect(self.connection).get_columns(table.name, schema=schema)
        except NoSuchTableError:
            return {}
        except DBAPIError as error:
            fault = self._told(error)
            lacking = isinstance(fault, StatementError) and fault.fault is Fault.PRIVILEGE
            if lacking and not self._dialect.traits.failure_aborts:  # on a view, or some columns
                return {}
            raise fault from error.orig
        return {column["name"]: column["type"] for column in columns}

    def _told(self, error: Exception) -> Exception:
        """Return the fault that an error means, or the error itself if it means none.

        SQLAlchemy does not know every error of a broken connection, and would send a ROLLBACK over
        it, whose error would hide this one.
        """
        cause = cause_of(error)
        fault = self.fault(cause)
        if isinstance(fault, StatementError) and fault.fault is Fault.DISCONNECTED:
            self.connection.invalidate(cause)
        if fault is None and isinstance(error, FailedStatement):
            error.hide_parameters = True  # a token may be among them
        return fault or error


#: The errors that a statement raises through SQLAlchemy: the driver's errors that it wraps, and
#: errors of sockets, which some drivers let through.
FAILURES = (FailedStatement, OSError)


def cause_of(error: Exception) -> BaseException:
    """Return the error that was raised below SQLAlchemy."""
    orig = error.orig if isinstance(error, FailedStatement) else None
    return error if orig is None else orig


_SAVEPOINT: Query[int] = Query("SAVEPOINT dblock", {}, commands.Savepoint())
_UNDO: Query[int] = Query("ROLLBACK TO SAVEPOINT dblock", {}, commands.UndoSavepoint())
_RELEASE: Query[int] = Query("RELEASE SAVEPOINT dblock", {}, commands.EndSavepoint())
