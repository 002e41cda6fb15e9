"""Row locks and guards in ``transaction.atomic()``: on Django's own cursor and savepoints, so that
Django's state of the transaction, its query log and its execute wrappers stay right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler
from django.utils.connection import ConnectionProxy

from ...dialects import Dialect
from ...dialects.borrowed_driver import BorrowedDriver
from ...dialects.query import Query, Result
from ...io.borrowed import Borrowed, lenders, of_another_kind, unusable
from ...io.runtime import Runtime
from ...protocol.steps import Reply
from .drivers import driver_of

R = TypeVar("R")


class OutermostAtomic:
    """An outermost atomic block. Django has no object for one. But it drops the block's hooks at
    its end, commit or rollback, and a savepoint's hooks when that is rolled back."""

    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self._wrapper = wrapper

    @classmethod
    def of(cls, wrapper: BaseDatabaseWrapper) -> OutermostAtomic:
        for _, hook, *_ in wrapper.run_on_commit:
            owner = getattr(hook, "__self__", None)
            if isinstance(owner, OutermostAtomic):
                return owner
        made = cls(wrapper)
        wrapper.on_commit(made.is_over)
        return made

    def is_over(self) -> None:
        """The hook. It does nothing: Django drops it when the block is over."""

    @property
    def is_active(self) -> bool:
        return any(
            getattr(hook, "__self__", None) is self for _, hook, *_ in self._wrapper.run_on_commit
        )


class AtomicBlock(Borrowed):
    """The atomic block that a Django connection is in."""

    def __init__(
        self,
        wrapper: BaseDatabaseWrapper,
        dialect: Dialect,
        driver: BorrowedDriver,
        runtime: Runtime,
    ) -> None:
        super().__init__(dialect, driver, wrapper.connection, runtime)
        self._wrapper = wrapper

    @property
    def root(self) -> OutermostAtomic:
        return OutermostAtomic.of(self._wrapper)

    @property
    def source(self) -> object:
        return self._wrapper

    @property
    def usable(self) -> bool:
        return not self._wrapper.needs_rollback and super().usable

    def execute(self, query: Query[R]) -> Reply[R]:
        sent = self._runtime.now()
        rows, count, _ = self.send(query)
        return Reply(query.read(Result(rows, count)), sent, self._runtime.now())

    def send(self, query: Query[Any]) -> tuple[Sequence[Any], int, Sequence[Any]]:
        """Run one statement; return its rows, how many rows it matched, and the driver's types of
        the columns."""
        sql, params = self.driver.written(query)
        if params and self._wrapper.vendor == "sqlite":
            # Django's cursor translates the parameters of other styles, and reads every % as one.
            sql = sql.replace("%", "%%")
        try:
            with self._wrapper.cursor() as cursor:
                cursor.execute(sql, params)
                columns = cursor.description or ()
                rows = cursor.fetchall() if columns else ()
                return rows, cursor.rowcount, [column[1] for column in columns]
        except Error as error:
            raise self.failure(error) from error.__cause__

    def savepoint(self) -> Any:
        try:
            return self._wrapper.savepoint()
        except Error as error:
            raise self.failure(error) from error.__cause__

    def undo(self, savepoint: Any) -> None:
        try:
            self._wrapper.savepoint_rollback(savepoint)
        except Error as error:
            raise self.failure(error) from error.__cause__

    def release(self, savepoint: Any) -> None:
        try:
            self._wrapper.savepoint_commit(savepoint)
        except Error as error:
            raise self.failure(error) from error.__cause__

    def start_over(self) -> None:
        try:
            with self._wrapper.wrap_database_errors:
                self._wrapper.connection.rollback()
        except Error as error:
            raise self.failure(error) from error.__cause__

    def failure(self, error: Error) -> Exception:
        """Return the fault that the driver's error means; Django's own error if it means none."""
        cause = error.__cause__
        return error if cause is None else self.fault(cause) or error


def lend(on: object, dialect: Dialect, runtime: Runtime) -> AtomicBlock | None:
    """Return the atomic block of a Django connection; None if ``on`` is no such connection.

    Raises ValueError if nothing can be locked: outside a block, in a block that has failed, or in
    another kind of database.
    """
    if isinstance(on, ConnectionProxy):
        handler: ConnectionHandler = on._connections
        on = handler[on._alias]
    if not isinstance(on, BaseDatabaseWrapper):
        return None
    if on.vendor not in dialect.backends:
        raise of_another_kind(dialect, on.vendor)
    if not on.in_atomic_block:
        raise ValueError(
            "nothing would stay locked: this connection is in no transaction.atomic() block"
        )
    if on.needs_rollback:
        raise ValueError("nothing can be locked in this atomic block: it has already failed")
    driver = driver_of(on, dialect.adapter)
    block = AtomicBlock(on, dialect, driver, runtime)
    problem = driver.transaction_problem(on.connection, True)
    if problem is not None:
        problem = block.confirmed(problem)
    if driver.savepoint_begins and any(on.savepoint_ids):
        # Outside of autocommit an atomic block is no more than a savepoint.
        found = driver.savepoint_problem(on.connection, begun=True, locking=True)
        problem = problem if found is None else _SAVEPOINT
    if problem is not None:
        raise ValueError(unusable(problem))
    return block


lenders.append(lend)


def unfinished() -> BaseDatabaseWrapper | None:
    """Return a connection of this thread in an atomic block of the application's own.

    The block of a ``TestCase`` around a whole test does not count: it is never committed.
    """
    for wrapper in connections.all(initialized_only=True):
        if any(not getattr(block, "_from_testcase", False) for block in wrapper.atomic_blocks):
            return wrapper
    return None


# Why nothing can be locked outside of Django's autocommit mode.
_SAVEPOINT = (
    "this connection is not in autocommit mode, where transaction.atomic() is a savepoint on "
    "SQLite, whose end may commit the transaction. Leave Django its autocommit mode, without "
    "set_autocommit(False): then atomic() begins a transaction"
)
