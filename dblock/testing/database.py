"""The test's database in place of the usual one, also for locks in the user's transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, scoped_session

from ..dialects import ADAPTERS, DIALECTS, Adapter, Dialect
from ..dialects.query import Query
from ..holding.callers import CallerRegistry
from ..holding.database import Database
from ..io.borrowed import Borrowed, Root
from ..io.runtime import Runtime
from ..io.sqlalchemy_transaction import borrow
from ..protocol.commands import Command, Create, Guard, LookAround, SelectForUpdate
from ..protocol.state import RowOutcome
from ..protocol.steps import Execute, ExecuteInTransaction, Procedure, Reply
from .process import Process
from .wire import Unwired, WiredSQLite

R = TypeVar("R")
T = TypeVar("T")


def simulated(
    process: Process, runtime: Runtime, callers: CallerRegistry, usual: Database
) -> Database:
    """Return the test's database as a process sees it, in place of the ``usual`` one."""
    made = Database(
        process.store.engine,
        WiredSQLite(usual.timeouts, process.store, process.wire),
        usual.label,
        lent=False,
        runtime=runtime,
        keeper=lambda: process.keeper,
        callers=callers,
    )
    made.connections.connector.source = usual.connections.connector.source  # for the user
    made.borrower = Borrower(process, usual, made.run)
    return made


class Borrower:
    """Borrows the user's transactions, which are in the ``usual`` database or in another one."""

    def __init__(self, process: Process, usual: Database, run: Callable[[Any], Reply[Any]]) -> None:
        self._process = process
        self._usual = usual
        self._run = run

    def __call__(self, on: Any, dialect: Dialect, runtime: Runtime) -> Borrowed:
        real = borrow(on, self._dialect_of(on), runtime)
        return StandIn(real, self._process, runtime, self._run)

    def _dialect_of(self, on: Any) -> Dialect:
        """Return the usual dialect for the database of a user's transaction."""
        if self._usual.engine is not self._process.store.engine:
            return self._usual.dialect
        found = on() if isinstance(on, scoped_session) else on
        if isinstance(found, Session) and found.is_active:
            found = found.connection()
        spoken = found.dialect if isinstance(found, Connection) else None
        name = getattr(found, "vendor", None) if spoken is None else spoken.name
        adapters, timeouts = _adapters(spoken is not None and spoken.is_async), self._usual.timeouts
        for kind in DIALECTS.values():
            if name in kind.backends:
                return kind(None, "dblock_", timeouts, adapters[kind.name](timeouts))
        return self._usual.dialect


def _adapters(is_async: bool) -> Mapping[str, type[Adapter]]:
    if not is_async:
        return ADAPTERS
    from ..aio.adapters import ASYNC_ADAPTERS

    return ASYNC_ADAPTERS


class StandIn(Borrowed):
    """The user's transaction, in any database.

    dblock's statements for it run in the test's database, and their effect lasts as long as the
    transaction.
    """

    def __init__(
        self, real: Borrowed, process: Process, runtime: Runtime, run: Callable[[Any], Reply[Any]]
    ) -> None:
        super().__init__(real._dialect, real.driver, real.driver_connection, runtime)
        self._real = real
        self._process = process
        self._run = run
        self._proves = False

    @property
    def root(self) -> Root | None:
        # A guard makes the user's transaction no writer here.
        return None if self._proves else self._real.root

    def recognise(self) -> None:
        """Ask nothing: any server will do, because the test's database has the locks."""

    def execute(self, query: Query[R]) -> Reply[R]:
        return self._real.execute(query)

    def savepoint(self) -> Any:
        return self._real.savepoint()

    def undo(self, savepoint: Any) -> None:
        self._real.undo(savepoint)

    def release(self, savepoint: Any) -> None:
        self._real.release(savepoint)

    def start_over(self) -> None:
        self._real.start_over()

    def run(self, step: ExecuteInTransaction) -> Reply[Any]:
        self._real.execute(Query("SELECT 1", {}))  # it begins with its first statement
        command, store = step.command, self._process.store
        refused: RowOutcome | int = RowOutcome(locked=False)
        match command:
            case Guard(name=name):
                self._proves = True
                self._process.wire.guard(name)
                return self._sent(command)
            case LookAround():
                return self._sent(command)
            case SelectForUpdate(name=name):
                root = self.root
            case Create(name=name):
                root, refused = self.root, 0
            case _:
                raise AssertionError("a row is locked or proved in it, and nothing else")
        if store.row_of(name) not in (None, root):
            now = self._runtime.now()
            return Reply(refused, now, now)
        reply = self._sent(command)
        if reply.answer not in (0, RowOutcome(locked=False)) and root is not None:
            store.rows[name] = root
        return reply

    def _sent(self, command: Command[Any]) -> Reply[Any]:
        return self._run(_once(Unwired(command)))


def _once(command: Command[T]) -> Procedure[Reply[T]]:
    return (yield Execute(command))
