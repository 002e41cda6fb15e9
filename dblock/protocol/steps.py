"""The steps a procedure can ask for, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from .commands import Command, word

R = TypeVar("R")


class Reply(NamedTuple):
    """What a step came to.

    ``matched`` is the number of rows it was about. Times are monotonic seconds; ``sent`` is read
    before the request goes out. ``server`` is the identity of who answered, where it is known.
    """

    rows: Sequence[Sequence[Any]]
    matched: int
    sent: float
    now: float
    server: str | None = None


def count(reply: Reply) -> int:
    """Read how many rows a statement was about."""
    return reply.matched


def any_row(reply: Reply) -> bool:
    """Read whether a row came back."""
    return bool(reply.rows)


class Query(NamedTuple, Generic[R]):
    """A statement in the driver's own parameter style.

    ``command`` is what it asks for, None outside of the procedures: to make a connection ready, in
    the user's own tables. ``patience`` is for how many seconds the server waits for others' locks,
    None for as long as the session lets it. ``durable`` says that all it did is on disk before it
    is told, or as the server's commits are by default; otherwise a crash may undo it, but for a
    grant, which is durable in any case. ``read`` understands its reply.
    """

    sql: str
    params: Mapping[str, Any] | tuple[Any, ...]
    command: Command | None = None
    patience: float | None = None
    durable: bool = True
    read: Callable[[Reply], R] = count  # type: ignore[assignment] # of a Query[int]: a test compares

    @property
    def kind(self) -> str:
        """The word for its command: ``"grant"``, ``"lock_row"``; ``"other"`` where it has none."""
        return "other" if self.command is None else word(type(self.command).__name__)

    def __repr__(self) -> str:
        return f"<Query {self.sql!r}>"  # a token may be among the parameters, and aiosqlite logs it


class Execute(NamedTuple):
    """Execute one statement on a connection of dblock's own, in a transaction of its own.

    ``within`` bounds, in seconds, how long an answer is waited for; None for ``Timeouts.socket``.
    """

    query: Query[Any]
    within: float | None = None


class ExecuteInTransaction(NamedTuple):
    """Execute one statement in the transaction that is to hold the row lock.

    ``patience`` is how long a database that locks as a whole may wait to begin it; None for its
    own limit. ``within`` is for the answer as with :class:`Execute`, but None is what the user's
    own connection has. With ``keep`` a failure is undone, by a savepoint if need be, and leaves the
    transaction usable; and so is a reply it says no to: rows locked for that are let go.
    """

    query: Query[Any]
    patience: float | None = None
    within: float | None = None
    keep: Callable[[Reply], bool] | None = None


class ForgetTransaction(NamedTuple):
    """Give up what the row lock's own transaction holds; the next statement in it begins anew."""


class Sleep(NamedTuple):
    """Let time pass."""

    seconds: float


ANY_SERVER = ""


class WaitTurn(NamedTuple):
    """Wait for the first place in one of this process's lines, ``seconds`` long.

    Once it is ours the reply has a row with the ticket for the database's queue, or None, and
    whether that can be called; before, it has none, and the place is kept. It is left, and the
    ticket void, when the protocol ends. ``matched`` is 1 when one before it found that the
    database is away. ``server`` is the one to be called by, None for none; ``look`` allows for a
    ticket that cannot be called, where that is not to be had. With :data:`ANY_SERVER` there is a
    ticket if some server can call already. With a ``topic`` the ticket is called with that.
    """

    line: Hashable
    seconds: float | None
    server: str | None
    look: bool
    topic: str | None = None


class WaitNotification(NamedTuple):
    """Wait ``seconds`` for the ticket to be called; ``matched`` is 1 when it was.

    It is also when nobody can call any more: then :class:`WaitTurn` has another ticket. Where the
    name was passed on, the reply has the row of a :class:`.Passed`.
    """

    seconds: float


class Disown(NamedTuple):
    """Let nobody be taken to wait with these tickets, although they may stand in the queue.

    The connection that listens for them is closed; others who wait by it get new tickets.
    """

    tickets: Sequence[str]


class ExecuteOnSession(NamedTuple):
    """Execute one statement on the connection that is kept for the name's user lock.

    ``first`` waits for it, and where that is in vain the connection is not kept. ``last`` lets the
    user lock go, and so does this step if that found no row.
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
