"""The steps that a procedure can ask for, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from .commands import Command

R_co = TypeVar("R_co", covariant=True)


class Reply(NamedTuple, Generic[R_co]):
    """The reply to a step.

    ``answer`` is the command's answer, or the one that the step describes. ``sent`` and ``now`` are
    monotonic seconds; ``sent`` is read before the request goes out. ``server`` identifies the
    server that answered, if that is known.
    """

    answer: R_co
    sent: float
    now: float
    server: str | None = None


class Execute(NamedTuple):
    """Execute one command on a connection of dblock's own, in a transaction of its own.

    The client waits up to ``within`` seconds for the reply; None for ``Timeouts.socket``.
    """

    command: Command[Any]
    within: float | None = None


class ExecuteInTransaction(NamedTuple):
    """Execute one command in the transaction that is to hold the row lock.

    ``patience`` is how many seconds a database with :attr:`~.Traits.one_writer` may wait to
    begin the transaction; None for its own limit. ``within`` bounds the wait for the reply as with
    :class:`Execute`; None leaves the limit of the user's own connection. With ``keep`` a failed
    statement is undone, by a savepoint if necessary, so that the transaction stays usable. If
    ``keep(answer)`` is false the statement is undone too, which releases the rows that it locked.
    """

    command: Command[Any]
    patience: float | None = None
    within: float | None = None
    keep: Callable[[Any], bool] | None = None


class ForgetTransaction(NamedTuple):
    """End the row lock's own transaction; the next statement in it begins a new transaction."""


class Sleep(NamedTuple):
    """Sleep for some seconds. With 0 the reply only reads the clock."""

    seconds: float


ANY_SERVER = ""


class Turn(NamedTuple):
    """A waiter's turn in its process's local queue.

    ``first`` says that it is at the first position. Then ``ticket`` is its ticket for the
    database's queue, if there is one. ``listens`` says that this process listens for the ticket's
    notification. ``alarmed`` says that another waiter in the local queue found that the database is
    away.
    """

    first: bool = True
    ticket: str | None = None
    listens: bool = False
    alarmed: bool = False


class WaitTurn(NamedTuple):
    """Wait up to ``seconds`` for the first position in this process's queue with the key ``line``.

    The answer is a :class:`Turn`, or None behind the first position, which is kept. When the
    procedure ends, it leaves the local queue, and the ticket is void.

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
    """Wait up to ``seconds`` for a notification of the ticket; return whether one came.

    The answer is true too when notifications can no longer arrive: then :class:`WaitTurn` returns
    another ticket. If a release passed the name on, it is a :class:`.Passed`.
    """

    seconds: float


class Disown(NamedTuple):
    """Make these tickets count as dead, although they may stay in the database's queue.

    The connection that listens for them is closed; other waiters on it get new tickets.
    """

    tickets: Sequence[str]


class ExecuteOnSession(NamedTuple):
    """Execute one command on the connection that is kept for the name's user lock.

    The ``first`` statement waits for the user lock; if it fails, the connection is not kept. The
    ``last`` statement releases the user lock; if its answer is not 1, this step releases it.
    """

    command: Command[Any]
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
Procedure = Generator[Step, Reply[Any], T]
