"""A driver as it has a user's transaction: all that differs between one driver and another there.

The statements are the same for all drivers of a database. An :class:`.Adapter` is one of these too,
for dblock's own driver can have the user's transaction as well.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..protocol.faults import Fault
from ..protocol.steps import Query

if TYPE_CHECKING:
    from sqlalchemy.pool import PoolProxiedConnection


class Opener(Protocol):
    """Begins transactions of one connection of the user's."""

    @property
    def kinds(self) -> Sequence[Any]:
        """The driver's types of the last answer's columns."""

    def open(self, query: Query[Any]) -> tuple[Sequence[Any], int] | None:
        """Begin a transaction with a statement; return its rows, and how many it was about.

        None, and nothing is done, where the driver has to begin it. Raises the driver's errors.
        """


class BorrowedDriver(ABC):
    """Has no state: it is told by the driver's own connections and errors."""

    #: SQLAlchemy's names for the driver, the usual one first.
    drivers: ClassVar[tuple[str, ...]]
    #: The package that it is imported from.
    package: ClassVar[str]
    #: Whether it is an event loop's.
    is_async: ClassVar[bool] = False
    #: Whether its cursor can be used without what SQLAlchemy does around a statement.
    plain_cursor: ClassVar[bool] = True
    #: Whether a savepoint may be what begins a transaction. Then its release commits that.
    savepoint_begins: ClassVar[bool] = False

    def connection_of(self, lent: PoolProxiedConnection) -> Any:
        """Return what the methods below are given of a connection of SQLAlchemy's."""
        return lent.driver_connection

    def written(self, query: Query[Any]) -> tuple[str, Any]:
        """Return a statement and its values as the driver wants them, None for no values.

        Values by position belong to a statement that was compiled for this driver.
        """
        return query.sql, query.params or None

    def has_rows(self, cursor: Any) -> bool:
        """Whether the statement that a cursor has run returns rows."""
        return cursor.description is not None

    def opener(self, connection: Any) -> Opener | None:
        """Return what begins this connection's transactions each with its first statement, in one
        round trip; None where the driver begins them by itself."""
        return None

    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> contextlib.AbstractContextManager[None]:
        """Bound what a borrowed connection waits for, where no statement can say so itself.

        ``patience`` is for the lock of the whole database, ``within`` for the server's answer.
        """
        return contextlib.nullcontext()

    @abstractmethod
    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        """Say why nothing can be locked in the transaction of this borrowed connection."""

    def has_begun(self, connection: Any) -> bool:
        """Whether the server may know of the transaction. If not, a rollback loses nothing."""
        return True

    def begins_late(self, connection: Any) -> bool:
        """Whether the driver has not begun the transaction yet, and will only with a change."""
        return False

    def savepoint_problem(self, connection: Any, *, begun: bool, locking: bool) -> str | None:
        """Say why nothing can be locked within a savepoint of this borrowed connection.

        ``begun`` says that SQLAlchemy's listeners begin its transactions.
        """
        return None

    def raised(self, error: BaseException) -> BaseException:
        """Return what the driver itself raised, whose words are for people."""
        return error

    def failed_before(self, error: BaseException) -> bool:
        """Whether a statement was refused because the transaction had failed before it.

        For drivers whose connections do not tell that to :meth:`transaction_problem`.
        """
        return False

    @abstractmethod
    def classify(self, error: BaseException) -> Fault | None:
        """Reduce a driver's error to a fault, by its code; None for a defect that is not one."""

    @abstractmethod
    def timed_out(self, error: BaseException) -> bool:
        """Whether it is the client that gave the connection, or the attempt to make one, up."""


#: Why nothing can be locked, as more than one driver has it.
CLOSED = "its connection is closed"
AUTOCOMMIT = "its connection is in autocommit mode, so nothing stays locked"
PIPELINE = "its connection is in pipeline mode, where answers come later; end the pipeline first"
FAILED = "its transaction has already failed; roll it back first"
