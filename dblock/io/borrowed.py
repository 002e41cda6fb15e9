"""The user's transaction: run a statement in it, and leave it as it was."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy.exc import DBAPIError

from ..dialects import meet
from ..dialects.borrowed_driver import AUTOCOMMIT, FAILED, BorrowedDriver
from ..dialects.query import FINALLY, THEN, Query
from ..protocol.explain import explain, transaction_broken
from ..protocol.faults import Fault, StatementError
from ..protocol.steps import ExecuteInTransaction, Reply
from .driver_errors import first_line

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection
    from sqlalchemy.engine import Dialect as SQLAlchemyDialect
    from sqlalchemy.orm import Session, scoped_session

    from ..dialects import Dialect
    from .core_statement import Compiled
    from .runtime import Runtime

    Borrowable = Connection | Session | scoped_session[Any]
    Lender = Callable[[Any, Dialect, Runtime], "Borrowed | None"]

R = TypeVar("R")

#: Functions for the transactions of frameworks that dblock does not import. Each returns None for
#: an object of another framework, and raises ValueError as :func:`.sqlalchemy_transaction.borrow`
#: does.
lenders: list[Lender] = []


class Root(Protocol):
    """A user's transaction, as the key of the row locks in it."""

    @property
    def is_active(self) -> bool: ...


class Borrowed(ABC):
    """A user's transaction, in which dblock runs statements.

    dblock never commits it or changes its settings, and rolls it back only if nothing was done in
    it before.
    """

    def __init__(
        self, dialect: Dialect, driver: BorrowedDriver, driver_connection: Any, runtime: Runtime
    ) -> None:
        self._dialect = dialect
        self.driver = driver
        #: The driver's connection, as the driver wants it.
        self.driver_connection = driver_connection
        self._runtime = runtime

    @property
    @abstractmethod
    def root(self) -> Root | None:
        """The transaction, once it has begun."""

    @property
    def source(self) -> object:
        """The connection's source. Two connections with the same source reach the same server."""
        return self

    @property
    def usable(self) -> bool:
        """Whether it has not failed, as far as its driver knows."""
        problem = self.driver.transaction_problem(self.driver_connection, True)
        return problem is None or (
            problem is AUTOCOMMIT and self.driver.asks_autocommit is not None
        )

    def confirmed(self, problem: str) -> str | None:
        """Return the problem that the driver has told; None if it was wrong about autocommit.

        Raises what :meth:`ask` does.
        """
        query = self.driver.asks_autocommit if problem is AUTOCOMMIT else None
        return problem if query is None or self.ask(query) else None

    def on_undo(self, function: Callable[[Root], None]) -> None:  # noqa: B027 - only SQLAlchemy tells
        """Call a function, with the transaction, if a savepoint that is open now is rolled back."""

    @abstractmethod
    def execute(self, query: Query[R]) -> Reply[R]:
        """Run one statement. Raises StatementError for a fault of the database."""

    def execute_all(self, query: Query[R]) -> Reply[R]:
        """Run a statement, or one after the other the statements that its text consists of.

        The last one with rows answers, or the last one if none has rows.
        """
        if THEN not in query.sql:
            return self.execute(query)
        first, *steps = query.steps()
        restores = steps.pop() if steps[-1].sql.startswith(FINALLY) else None
        replies = [self.execute(first)]
        try:
            replies += [self.execute(step) for step in steps]
        except BaseException:
            if restores is not None:
                with contextlib.suppress(Exception):  # lost, and the setting with it
                    self.execute(restores)
            raise
        if restores is not None:
            self.execute(restores)
        answer = next((one.answer for one in replies[::-1] if one.answer.rows), replies[-1].answer)
        end = replies[-1]
        return Reply(query.read(answer), replies[0].sent, end.now, end.server)

    @abstractmethod
    def savepoint(self) -> Any: ...

    @abstractmethod
    def undo(self, savepoint: Any) -> None: ...

    @abstractmethod
    def release(self, savepoint: Any) -> None: ...

    @abstractmethod
    def start_over(self) -> None:
        """Roll back a transaction in which nothing was done before; the next statement begins it
        again."""

    def begin(self) -> None:  # noqa: B027 - only SQLAlchemy has listeners
        """Begin the transaction for SQLAlchemy, whose listeners run now. So their statements are
        not undone with dblock's."""

    def run(self, step: ExecuteInTransaction) -> Reply[Any]:
        query = self._dialect.query(step.command)
        with self.driver.bounded(self.driver_connection, step.patience, step.within):
            # A savepoint, only on a database where a failure undoes more than its statement. SQLite
            # must not have one: if it began the transaction, its release would commit that.
            if step.keep is None or not self._dialect.traits.failure_aborts:
                return self.execute_all(query)
            self.begin()
            if not self.driver.has_begun(self.driver_connection):  # saves two round trips
                return self._execute_or_undo(query, step.keep, self.start_over)
            savepoint = self.savepoint()
            reply = self._execute_or_undo(query, step.keep, partial(self.undo, savepoint))
            self.release(savepoint)
            return reply

    def _execute_or_undo(
        self, query: Query[R], keep: Callable[[R], bool], undo: Callable[[], None]
    ) -> Reply[R]:
        """Run a statement, and undo what it did if it fails or is not to be kept."""
        try:
            reply = self.execute(query)
        except StatementError:
            try:
                undo()
            except StatementError as failure:
                # The connection broke only now. The first error would let the caller try again on
                # it.
                if failure.fault is Fault.DISCONNECTED:
                    raise
            except DBAPIError:
                pass  # the whole transaction is gone, as the first error says
            raise
        if not keep(reply.answer):
            undo()
        return reply

    def forget(self) -> None:
        raise AssertionError("the user's transaction is not ours to end")

    def recognise(self) -> None:
        """Ask the server what it is, unless it is known. Raises Unsupported for a look-alike."""
        adapter = self._dialect.adapter
        if adapter.reached == self._dialect.name:
            return
        if not adapter.recognised:  # else another thread has asked, and not come to meet() yet
            adapter.recognise(*self.ask(adapter.named)[0])
        meet(self._dialect)

    def ask(self, query: Query[R]) -> R:
        """Return the answer to a query. Raises DBLockError for a fault of the database."""
        try:
            with self.driver.bounded(self.driver_connection, None, self._dialect.timeouts.socket):
                return self.execute(query).answer
        except StatementError as failure:
            if failure.fault is Fault.DISCONNECTED:
                raise transaction_broken(failure) from failure.__cause__
            raise explain(self._dialect, failure) from failure.__cause__

    def fault(self, cause: BaseException) -> Exception | None:
        """Return the fault that the driver's error means, or None if it means none."""
        if self.driver.failed_before(cause):
            return ValueError(unusable(FAILED))
        fault = self._dialect.adapter.classify_borrowed(self.driver, cause)
        if fault is None:
            return None
        timed_out = fault is Fault.DISCONNECTED and self.driver.timed_out(cause)
        return StatementError(fault, first_line(self.driver.raised(cause)), timed_out=timed_out)


class TableTransaction(Borrowed):
    """A transaction that also runs statements over a user's own table, such as a counter's."""

    @property
    @abstractmethod
    def written_for(self) -> SQLAlchemyDialect:
        """SQLAlchemy's dialect that the statements are compiled for."""

    @property
    def schemas(self) -> Mapping[str | None, str | None] | None:
        """The schemas with which the user has replaced the tables' own, if any."""
        return None

    @abstractmethod
    def rows(self, compiled: Compiled, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        """Run a query; return its rows."""


def unusable(problem: str) -> str:
    """Say that a transaction cannot be used."""
    return f"nothing can be locked in this transaction: {problem}"


def of_another_kind(dialect: Dialect, backend: str) -> ValueError:
    """Return the error for a transaction in another kind of database than the locks'."""
    # Before the first connection, MariaDB and MySQL are not told apart.
    return ValueError(
        f"these locks are in {' or '.join(dialect.backends)}, the transaction is in {backend}: "
        "a row lock lives in the database of its transaction"
    )
