"""The adapter of a driver: it prepares connections, sends statements, and classifies errors.

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
from ..protocol.commands import EndSession
from ..protocol.faults import Fault
from ..protocol.state import Passed
from .borrowed_driver import BorrowedDriver
from .look_alikes import recognise, refusal
from .query import Query
from .values import text

#: A statement's rows, and how many rows it matched.
Answer = tuple[Sequence[Sequence[Any]], int]


class Send(Protocol):
    """Runs one statement on a connection. Raises the driver's errors.

    It awaits the answer for ``within`` seconds, then it ends the connection. ``waits`` means that
    the statement may wait for other transactions: a cancelled caller then does not await its end.
    """

    def __call__(self, query: Query[Any], within: float, waits: bool = False) -> Answer: ...


@dataclass(frozen=True, slots=True)
class ServerSession:
    """The server's session of one of dblock's own connections.

    ``server`` is the same for two connections only if they reached the same server, on the same
    timeline. ``end`` ends the session, whatever it is doing, and returns a row for as long as the
    session exists. Both are None if they are unknown, for example behind a pooler. ``doubts``
    collects the server's warnings during a statement, after which its answer proves nothing.
    """

    server: str | None = None
    end: EndSession | None = None
    doubts: list[str] = field(default_factory=list, compare=False)


#: Translates the arguments of another driver's connections to those of dblock's own driver.
Carry = Callable[[Mapping[str, Any]], dict[str, Any]]


def same(given: Mapping[str, Any]) -> dict[str, Any]:
    """The :data:`Carry` of a driver with the same arguments, and the same URLs."""
    return dict(given)


class Adapter(BorrowedDriver):
    """The driver of dblock's own connections to one database. Only it knows their type."""

    #: By SQLAlchemy's names of the databases: dblock's extra that installs it.
    extras: ClassVar[Mapping[str, str]] = {}
    #: The other drivers that a user's transaction may have, including drivers of event loops.
    others: ClassVar[tuple[type[BorrowedDriver], ...]] = ()
    #: By SQLAlchemy's names of this database's drivers: translates their arguments to this one's.
    carried: ClassVar[Mapping[str, Carry]] = {}
    #: The longest one statement may wait before it is sent again, in seconds; None for no limit.
    longest_wait: ClassVar[float | None] = None

    #: The real server's name in its version, and the statement that reads the version.
    real: ClassVar[str]
    named: ClassVar[Query[Any]]
    #: The dialect of the server that was reached last, and recognised as the real one or trusted.
    reached: str | None = None
    #: Whether the last connection reached a node of a cluster whose nodes do not see each other's
    #: row locks.
    clustered: bool = False

    def __init__(self, timeouts: Timeouts, trust_server: bool = False) -> None:
        self.timeouts = timeouts
        #: Whether to use a server anyway that only speaks the protocol.
        self.trust_server = trust_server

    def check_process(self) -> None:
        """Raise Unavailable in a process that cannot use the database at all."""

    # --- a user's transaction ----------------------------------------------------------------

    @cached_property
    def borrowable(self) -> tuple[BorrowedDriver, ...]:
        """The drivers that a user's transaction may have here."""
        return self, *(kind() for kind in self.others if kind.is_async == self.is_async)

    def borrowed(self, package: str, name: str = "") -> BorrowedDriver | None:
        """Return the driver of a user's transaction; None for an unknown one.

        It is found by the package that it is imported from, because PyMySQL may be installed under
        mysqlclient's name. Without a package it is found by SQLAlchemy's name for it.
        """
        for driver in self.borrowable:
            if driver.package == package or (not package and name in driver.drivers):
                return driver
        return None

    def undoes_all(self, ask: Callable[[Query[bool]], bool]) -> bool:
        """Return whether a statement that waits too long in a user's transaction undoes all of it;
        ``ask`` runs a statement there."""
        return False

    def classify_borrowed(self, driver: BorrowedDriver, error: BaseException) -> Fault | None:
        """Classify an error in a user's transaction, of which the server may undo more than usual.

        Like :meth:`classify`, by the ``driver`` that has the transaction.
        """
        return driver.classify(error)

    # --- connections -------------------------------------------------------------------------

    @abstractmethod
    def connect_args(self) -> dict[str, Any]:
        """Return the driver's arguments that enforce the timeouts."""

    def bound_connecting(self, engine: Any) -> None:
        """Make dblock's own engine give up in time where its driver would wait longer to
        connect."""

    def plain(self, url: str) -> Callable[[], Any] | None:
        """Return a function that connects to a URL as SQLAlchemy does, if one call is enough for
        that; else None."""
        return None

    def unbounded(self, connection: Any) -> list[str]:
        """Name the driver's arguments whose lack lets a connection of a lent engine hang."""
        return []

    @abstractmethod
    def prepare_connection(self, connection: Any) -> ServerSession:
        """Prepare a new connection of dblock's own: autocommit, and the session's settings."""

    def prepare_migrator(self, connection: Any) -> None:
        """Prepare a connection that holds the lock of migrations, and may be idle for hours."""
        self.prepare_connection(connection)

    def set_autocommit(self, connection: Any) -> None:
        """Let each statement be a transaction."""
        connection.autocommit(True)

    @abstractmethod
    def is_usable(self, connection: Any) -> bool:
        """Return whether a connection is open, without asking the server."""

    def broken(self, connection: Any) -> Callable[[], object]:
        """Return a function that says whether the connection is broken, as :meth:`is_usable`."""
        return lambda: not self.is_usable(connection)

    def close(self, connection: Any) -> None:
        """Close a connection, whatever state it is in."""
        connection.close()

    def misconfigured(self, error: BaseException) -> bool:
        """Return whether a failure to connect lasts until the URL, the account or the server is
        changed, by the driver's error."""
        return False

    # --- statements --------------------------------------------------------------------------

    def sender(self, connection: Any) -> Send:
        """Return the function that sends statements on a prepared connection."""
        return partial(self.send, connection)

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer:
        """Run one statement on a driver's connection; see :class:`Send`.

        Without ``within`` the connection is still being made.
        """
        if within is not None:
            self.bound_reads(connection, within)
        cursor = connection.cursor()
        try:
            cursor.execute(query.sql, query.params)
            rows = cursor.fetchall() if cursor.description else self.told(cursor)
            matched = cursor.rowcount
            cursor.close()  # PyMySQL reads the rest of the reply here
        except BaseException:
            with contextlib.suppress(Exception):
                cursor.close()  # an open cursor of SQLite would keep the statement and the file
            raise
        return rows, matched

    def told(self, cursor: Any) -> Sequence[Sequence[Any]]:
        """Return the value that a statement without rows has for its client, as a row, if any."""
        return ()

    def ask(self, connection: Any, query: Query[Any]) -> Sequence[Any]:
        """Run a statement while a connection is prepared; return its first row."""
        rows, _ = self.send(connection, query)
        return rows[0] if rows else ()

    @abstractmethod
    def bound_reads(self, connection: Any, seconds: float) -> None:
        """Let the client await each answer for ``seconds`` from now on, then end the connection."""

    # --- notifications -----------------------------------------------------------------------

    def listen(
        self,
        connection: Any,
        session: ServerSession,
        token: Callable[[int], str],
        *,
        observes: bool = False,
    ) -> str | None:
        """Let a connection listen, and return its channel: it receives the notifications of tickets
        that begin with the channel, and if it ``observes``, of all topics.

        None if it cannot listen. While it is open the database takes the waiters with such tickets
        for alive. ``token`` returns random bytes, as many as its argument, in hexadecimal.
        """
        return None

    def called(self, connection: Any) -> list[tuple[str, Passed | None]]:
        """Return the tickets and topics that were notified since the last call, each with the hold
        that was passed on to it. The caller has seen that the connection can be read."""
        raise NotImplementedError

    # --- the server --------------------------------------------------------------------------

    @property
    def recognised(self) -> bool:
        """Whether the server was recognised, as the real one or a trusted one."""
        return self.reached is not None

    def recognise(self, said: str | bytes, comment: str | bytes = "") -> bool:
        """Return whether the server is the real one, by its version and its comment.

        Raises Unsupported for a look-alike, unless it is trusted.
        """
        other = recognise(text(said), self.real, text(comment))
        if other is not None and not self.trust_server:
            raise refusal(other)
        self.reached = self.kind_of(said)
        return other is None

    def kind_of(self, said: str | bytes) -> str:
        """Return the name of the dialect for a server, by its version."""
        return self.real.lower()

    def precedes(self, server: str, other: str) -> bool:
        """Whether ``other`` is a later timeline of the same system as ``server``, as after a
        failover."""
        return False
