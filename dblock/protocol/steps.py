"""The steps that a procedure can ask for, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from .commands import Command

R = TypeVar("R")


class Reply(NamedTuple):
    """The reply to a step.

    ``matched`` is the number of rows that the statement matched. ``sent`` and ``now`` are monotonic
    seconds; ``sent`` is read before the request goes out. ``server`` identifies the server that
    answered, if that is known.
    """

    rows: Sequence[Sequence[Any]]
    matched: int
    sent: float
    now: float
    server: str | None = None


def count(reply: Reply) -> int:
    """Read how many rows a statement matched."""
    return reply.matched


def any_row(reply: Reply) -> bool:
    """Read whether the reply has a row."""
    return bool(reply.rows)


class Query(NamedTuple, Generic[R]):
    """A statement in the driver's own parameter style.

    ``command`` is what the statement asks for; None for statements outside of the procedures, which
    prepare a connection or use the user's own tables. ``patience`` is how many seconds the server
    may wait for other transactions' locks; None for the session's own limit. With ``durable`` the
    reply comes after the changes are on disk, or as durable as the server's commits are by default.
    Without it a crash may undo the changes, except a grant, which is always durable. ``read`` reads
    the reply.
    """

    sql: str
    params: Mapping[str, Any] | tuple[Any, ...]
    command: Command[Any] | None = None
    patience: float | None = None
    durable: bool = True
    read: Callable[[Reply], R] = count  # type: ignore[assignment] # fits Query[int] alone: tested

    @property
    def kind(self) -> str:
        """The word for its command: ``"grant"``, ``"lock_row"``; ``"other"`` without a command."""
        return "other" if self.command is None else self.command.word

    def __repr__(self) -> str:
        return f"<Query {self.sql!r}>"  # a token may be among the parameters, and aiosqlite logs it


class Execute(NamedTuple):
    """Execute one statement on a connection of dblock's own, in a transaction of its own.

    The client waits up to ``within`` seconds for the reply; None for ``Timeouts.socket``.
    """

    query: Query[Any]
    within: float | None = None


class ExecuteInTransaction(NamedTuple):
    """Execute one statement in the transaction that is to hold the row lock.

    ``patience`` is how many seconds a database with :attr:`~.Statements.one_writer` may wait to
    begin the transaction; None for its own limit. ``within`` bounds the wait for the reply as with
    :class:`Execute`; None leaves the limit of the user's own connection. With ``keep`` a failed
    statement is undone, by a savepoint if necessary, so that the transaction stays usable. If
    ``keep(reply)`` is false the statement is undone too, which releases the rows that it locked.
    """

    query: Query[Any]
    patience: float | None = None
    within: float | None = None
    keep: Callable[[Reply], bool] | None = None


class ForgetTransaction(NamedTuple):
    """End the row lock's own transaction; the next statement in it begins a new transaction."""


class Sleep(NamedTuple):
    """Sleep for some seconds. With 0 the reply only reads the clock."""

    seconds: float


ANY_SERVER = ""


class WaitTurn(NamedTuple):
    """Wait up to ``seconds`` for the first position in this process's queue with the key ``line``.

    At the first position the reply has one row: the ticket for the database's queue, or None, and
    whether notifications can reach that ticket. Further back the reply has no row, and the position
    is kept. When the procedure ends, it leaves the local queue, and the ticket is void. ``matched``
    is 1 when another waiter in the local queue found that the database is away.

    ``server`` is the server that is to notify; None for no notifications. With :data:`ANY_SERVER`
    there is a ticket only if this process is already listening on a server. If no server can
    notify, ``look`` allows a ticket for a waiter that polls. With a ``topic``, notifications of
    the topic reach the ticket too.
    """

    line: Hashable
    seconds: float | None
    server: str | None
    look: bool
    topic: str | None = None


class WaitNotification(NamedTuple):
    """Wait up to ``seconds`` for a notification of the ticket; ``matched`` is 1 when one came.

    ``matched`` is 1 too when notifications can no longer arrive: then :class:`WaitTurn` returns
    another ticket. If a release passed the name on, the reply has the row of a :class:`.Passed`.
    """

    seconds: float


class Disown(NamedTuple):
    """Make these tickets count as dead, although they may stay in the database's queue.

    The connection that listens for them is closed; other waiters on it get new tickets.
    """

    tickets: Sequence[str]


class ExecuteOnSession(NamedTuple):
    """Execute one statement on the connection that is kept for the name's user lock.

    The ``first`` statement waits for the user lock; if it fails, the connection is not kept. The
    ``last`` statement releases the user lock; if it matched no row, this step releases it.
    """

    query: Query[Any]
    first: bool = False
    last: bool = False


Step = (
    Execute
    | ExecuteInTransaction
    | ExecuteOnSession
    | ForgetTransaction
    | Sleep
    | WaitTurn
    | WaitNotification
    | Disown
)
T = TypeVar("T")
Procedure = Generator[Step, Reply, T]
