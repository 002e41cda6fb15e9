"""How one driver is spoken to: connections made ready, statements sent, errors understood.

A dialect has the statements, an adapter sends them. Drivers of event loops have adapters of their
own, for the same statements; see :mod:`dblock.aio.adapters`.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, Protocol

from ..policy import Timeouts
from ..protocol.state import Passed
from ..protocol.steps import Query
from .borrowed_driver import BorrowedDriver
from .look_alikes import recognise, refusal
from .values import text

#: A statement's rows, and how many rows it was about.
Answer = tuple[Sequence[Sequence[Any]], int]


class Send(Protocol):
    """Runs one statement on a connection. Raises the driver's errors.

    An answer is awaited for ``within`` seconds, then the connection is ended. ``waits`` tells that
    it may wait for others, so that there is no use in waiting for it when nobody wants its answer
    any more.
    """

    def __call__(self, query: Query[Any], within: float, waits: bool = False) -> Answer: ...


@dataclass(frozen=True, slots=True)
class ServerSession:
    """How the server knows one connection of dblock's own.

    ``server`` is the same for two connections only if they reached the same server, in the same
    history of it. ``end`` ends the session, whatever it is at, and returns a row for as long as it
    is there. Both are None where that cannot be told, behind a pooler for one. ``doubts`` gets what
    the server says while it answers that makes an answer no proof.
    """

    server: str | None = None
    end: Query[bool] | None = None
    doubts: list[str] = field(default_factory=list, compare=False)


#: Translates the arguments of another driver's connections to those of dblock's own driver.
Carry = Callable[[Mapping[str, Any]], dict[str, Any]]


def same(given: Mapping[str, Any]) -> dict[str, Any]:
    """That of a driver with the same arguments, and the same URLs."""
    return dict(given)


class Adapter(BorrowedDriver):
    """The driver of dblock's own connections to one database. What they are only it knows."""

    #: dblock's extra that installs it.
    extra: ClassVar[str | None] = None
    #: The other drivers that may have a user's transaction, those of event loops among them.
    others: ClassVar[tuple[type[BorrowedDriver], ...]] = ()
    #: By all of SQLAlchemy's names for drivers of this database: how what they connect with is
    #: written for this one.
    carried: ClassVar[Mapping[str, Carry]] = {}
    #: The longest one statement may wait before it is sent again, in seconds; None for no limit.
    longest_wait: ClassVar[float | None] = None

    #: What the real server calls itself, and the statement that asks.
    real: ClassVar[str]
    named: ClassVar[Query[Any]]
    #: Whether it is known what the server is.
    recognised: bool = False
    #: Whether the server that was connected to last is a node of a cluster whose nodes lock no rows
    #: on each other.
    clustered: bool = False

    def __init__(self, timeouts: Timeouts, trust_server: bool = False) -> None:
        self.timeouts = timeouts
        #: Whether a server that only speaks the protocol is used all the same.
        self.trust_server = trust_server

    def check_process(self) -> None:
        """Raise Unavailable in a process that cannot use the database at all."""

    # --- a user's transaction ----------------------------------------------------------------

    @cached_property
    def borrowable(self) -> tuple[BorrowedDriver, ...]:
        """The drivers that may have a user's transaction here."""
        return self, *(kind() for kind in self.others if kind.is_async == self.is_async)

    def borrowed(self, package: str, name: str = "") -> BorrowedDriver | None:
        """Return the driver of a user's transaction; None for one that is not known.

        By the package that it is imported from, for PyMySQL may be there under mysqlclient's name.
        Where there is none, by SQLAlchemy's name for it.
        """
        for driver in self.borrowable:
            if driver.package == package or (not package and name in driver.drivers):
                return driver
        return None

    # --- connections -------------------------------------------------------------------------

    @abstractmethod
    def connect_args(self) -> dict[str, Any]:
        """Return the driver's arguments that carry out the timeouts."""

    def bound_connecting(self, engine: Any) -> None:
        """Let an engine of dblock's own give up in time what its driver would go on waiting for."""

    def plain(self, url: str) -> Callable[[], Any] | None:
        """Return what connects to a URL as SQLAlchemy does, where it takes no more than a call."""
        return None

    def unbounded(self, connection: Any) -> list[str]:
        """Name the driver's arguments whose lack lets a connection of a lent engine hang."""
        return []

    @abstractmethod
    def prepare_connection(self, connection: Any) -> ServerSession:
        """Make a fresh connection of dblock's own ready: autocommit, and what the session needs."""

    def prepare_migrator(self, connection: Any) -> None:
        """Make a connection ready that holds the lock of migrations, idle for hours perhaps."""
        self.prepare_connection(connection)

    def set_autocommit(self, connection: Any) -> None:
        """Let each statement be a transaction."""
        connection.autocommit(True)

    @abstractmethod
    def is_usable(self, connection: Any) -> bool:
        """Return whether a connection is open, without asking the server."""

    def close(self, connection: Any) -> None:
        """Close a connection, whatever state it is in."""
        connection.close()

    def misconfigured(self, error: BaseException) -> bool:
        """Return whether a failure to connect lasts until somebody changes the URL, the account or
        the server, by what the driver raised."""
        return False

    # --- statements --------------------------------------------------------------------------

    def sender(self, connection: Any) -> Send:
        """Return how statements are sent on a connection that is ready."""
        return partial(self.send, connection)

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer:
        """Run one statement on a driver's connection; see :class:`Send`.

        Without ``within`` it is one that is being made.
        """
        if within is not None:
            self.bound_reads(connection, within)
        cursor = connection.cursor()
        try:
            cursor.execute(query.sql, query.params)
            rows = cursor.fetchall() if cursor.description else self.told(cursor)
            matched = cursor.rowcount
            cursor.close()  # PyMySQL reads here what else the reply has in it
        except BaseException:
            with contextlib.suppress(Exception):
                cursor.close()  # or SQLite keeps the statement, and with it the file
            raise
        return rows, matched

    def told(self, cursor: Any) -> Sequence[Sequence[Any]]:
        """Return what a statement that has no rows tells its client, as a row; or none."""
        return ()

    def ask(self, connection: Any, query: Query[Any]) -> Sequence[Any]:
        """Run a statement that is part of making a connection ready; return its first row."""
        rows, _ = self.send(connection, query)
        return rows[0] if rows else ()

    @abstractmethod
    def bound_reads(self, connection: Any, seconds: float) -> None:
        """Let the client wait no longer for an answer from now on; then it ends the connection."""

    # --- notifications -----------------------------------------------------------------------

    def listen(
        self,
        connection: Any,
        session: ServerSession,
        token: Callable[[int], str],
        *,
        observes: bool = False,
    ) -> str | None:
        """Let a connection hear of tickets that begin with what is returned, and of no others; if
        it ``observes``, also of all topics.

        None where it cannot. As long as it is open such tickets are taken to be waited with.
        ``token`` draws so many bytes, in hexadecimal.
        """
        return None

    def called(self, connection: Any) -> list[tuple[str, Passed | None]]:
        """Return the tickets called since, for a connection that can be read, and what was passed
        on to them."""
        raise NotImplementedError

    # --- the server --------------------------------------------------------------------------

    def recognise(self, said: str | bytes, comment: str | bytes = "") -> bool:
        """Return whether the server is the real one, by what it says of itself.

        Raises Unsupported for one that is not, unless it is trusted.
        """
        other = recognise(text(said), self.real, text(comment))
        if other is not None and not self.trust_server:
            raise refusal(other)
        self.recognised = True
        return other is None

    def precedes(self, server: str, other: str) -> bool:
        """Whether a failover led from one server to the other, or would have."""
        return False
