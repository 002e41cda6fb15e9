"""A driver that has a user's transaction: everything in which drivers differ there.

The statements are the same for all drivers of a database. An :class:`.Adapter` is a borrowed driver
too, because a user's transaction may have dblock's own driver.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..protocol.faults import Fault
from .query import Query

if TYPE_CHECKING:
    from sqlalchemy.pool import PoolProxiedConnection


class Opener(Protocol):
    """Begins the transactions of one of the user's connections."""

    @property
    def kinds(self) -> Sequence[Any]:
        """The driver's types of the last answer's columns."""

    def open(self, query: Query[Any]) -> tuple[Sequence[Any], int] | None:
        """Begin a transaction with a statement; return its rows, and how many rows it matched.

        None, and nothing is sent, if the driver has to begin it. Raises the driver's errors.
        """


class BorrowedDriver(ABC):
    """Has no state: each method asks the driver's own connection or error."""

    #: SQLAlchemy's names for the driver, the usual one first.
    drivers: ClassVar[tuple[str, ...]]
    #: The package that it is imported from.
    package: ClassVar[str]
    #: Whether it is for an event loop.
    is_async: ClassVar[bool] = False
    #: Whether its cursor can be used without SQLAlchemy's work around a statement.
    plain_cursor: ClassVar[bool] = True
    #: Whether a savepoint may begin a transaction. Then its release commits the transaction.
    savepoint_begins: ClassVar[bool] = False
    #: The query that returns whether the session is in autocommit mode, for drivers that may be
    #: wrong about it when they say :data:`AUTOCOMMIT`.
    asks_autocommit: ClassVar[Query[bool] | None] = None

    def connection_of(self, lent: PoolProxiedConnection) -> Any:
        """Return the object of SQLAlchemy's connection that the methods below take."""
        return lent.driver_connection

    def written(self, query: Query[Any]) -> tuple[str, Any]:
        """Return a statement and its values in the driver's form; the values are None if there are
        none.

        Positional values belong to a statement that was compiled for this driver.
        """
        return query.sql, query.params or None

    def has_rows(self, cursor: Any) -> bool:
        """Whether the statement that a cursor has run returns rows."""
        return cursor.description is not None

    def opener(self, connection: Any) -> Opener | None:
        """Return the opener that sends this connection's BEGIN and the first statement in one round
        trip; None if the driver begins its transactions itself."""
        return None

    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> contextlib.AbstractContextManager[None]:
        """Limit a borrowed connection's waits that a statement cannot limit itself.

        ``patience`` is the seconds for the lock of the whole database (SQLite), ``within`` the
        seconds for the server's answer.
        """
        return contextlib.nullcontext()

    @abstractmethod
    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        """Say why nothing can be locked in the transaction of this borrowed connection."""

    def has_begun(self, connection: Any) -> bool:
        """Whether the server may have begun the transaction. If not, a rollback loses nothing."""
        return True

    def begins_late(self, connection: Any) -> bool:
        """Whether the driver has not begun the transaction yet, and waits for the first change."""
        return False

    def savepoint_problem(self, connection: Any, *, begun: bool, locking: bool) -> str | None:
        """Say why nothing can be locked within a savepoint of this borrowed connection.

        ``begun`` means that the user's listeners begin its transactions.
        """
        return None

    def raised(self, error: BaseException) -> BaseException:
        """Return the driver's own error, whose message is for people."""
        return error

    def failed_before(self, error: BaseException) -> bool:
        """Whether a statement was refused because the transaction had failed before it.

        For a driver whose connection does not show that to :meth:`transaction_problem`.
        """
        return False

    @abstractmethod
    def classify(self, error: BaseException) -> Fault | None:
        """Classify a driver's error by its code; None for a defect that is no database fault."""

    @abstractmethod
    def timed_out(self, error: BaseException) -> bool:
        """Whether the client gave up on the connection, or on the attempt to connect."""


#: Reasons why nothing can be locked, for several drivers.
CLOSED = "its connection is closed"
AUTOCOMMIT = "its connection is in autocommit mode, so nothing stays locked"
PIPELINE = "its connection is in pipeline mode, where answers come later; end the pipeline first"
FAILED = "its transaction has already failed; roll it back first"
