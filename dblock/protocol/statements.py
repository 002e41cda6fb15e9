"""The port: each statement that the protocol sends, and the type of its reply.

Each method returns a query that knows how to read its own reply. A dialect implements the methods;
see :mod:`dblock.dialects`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ..lock_state import RowLockState, WaiterState
from . import commands
from .commands import Command
from .deadlock import Blocked
from .state import (
    Found,
    Granted,
    LockRow,
    Place,
    Queued,
    Renewal,
    RowOutcome,
    Witness,
)
from .steps import Query
from .timing import Timing

if TYPE_CHECKING:
    from ..policy import Timeouts

R = TypeVar("R")


class Statements(ABC):
    """One database's statements over dblock's tables in ``schema``, and the database's traits."""

    name: ClassVar[str]
    schema: str | None
    prefix: str
    timeouts: Timeouts
    timing: Timing
    #: The command that creates and upgrades the tables, if it is not ``dblock upgrade``.
    upgraded_by: str = ""
    #: The location of the tables, once one of dblock's own connections has read it; and the
    #: location before the tables were recreated or moved.
    place: Place | None = None
    former_place: Place | None = None

    #: A refused row lock still blocks the row for others until its transaction ends. So a separate
    #: statement reads the name before the transaction locks it.
    refusal_holds: ClassVar[bool] = False
    #: The statement that locks a row in a transaction of dblock's own reads the name first itself.
    looks_itself: bool = False
    #: In a borrowed transaction a row lock that never waits costs less than a row lock that may
    #: wait, so dblock tries it first.
    skips_locked: ClassVar[bool] = False
    #: A plain read in a transaction may be older than the row that an update in it has just seen.
    stale_reads: ClassVar[bool] = False
    #: A failed statement undoes its whole transaction, so dblock cannot retry the statement in it.
    failure_aborts: ClassVar[bool] = False
    #: One transaction writes at a time: a row lock blocks every other lock statement, and the
    #: locking transaction itself creates the row of a new name.
    one_writer: ClassVar[bool] = False
    #: Statements that grant, renew or prove a lease check the witness (:mod:`.epoch`). Without a
    #: witness the lock table itself has to survive a crash.
    has_witness: ClassVar[bool] = False
    #: The database notifies a waiter in a name's queue of its turn; without this waiters poll.
    can_notify: ClassVar[bool] = False
    #: One statement can read which transaction has locked a row.
    sees_row_locks: ClassVar[bool] = False
    #: Each name has a user lock, and waiters can wait for the user lock in the server.
    can_wait_in_server: ClassVar[bool] = False

    @property
    def grace(self) -> float:
        """Seconds for which a free name is reserved for each waiter in the queue; see
        :class:`.Timing`."""
        return self.timing.grace

    @property
    def longest_patience(self) -> float | None:
        """The longest time in seconds that one statement may wait before dblock sends it again;
        None for no limit."""
        return None

    @abstractmethod
    def privileges(self, role: str) -> tuple[str, ...]:
        """Return the statements that grant a role its rights, or a sentence that says them."""

    @abstractmethod
    def query(self, command: Command[R]) -> Query[R]:
        """Return the statement that asks this database for a command.

        Raises NotImplementedError if the database does not have the command.
        """

    # --- location of the tables --------------------------------------------------------------

    @abstractmethod
    def look_around(self, *, borrowed: bool = False) -> Query[Found]:
        """Read the location and the version of the tables. With ``borrowed`` the query reads the
        tables that a user's transaction sees."""

    def hidden(self) -> tuple[Query[str | None], ...]:
        """Return one query for each table that a temporary table may hide in a user's session. Its
        reply is the name of the temporary table; None if there is none."""
        return ()

    @abstractmethod
    def settle(self, place: Place | None) -> None:
        """Qualify the tables' names with their place from now on, for every session.

        A statement for a user's transaction matches no row in any other set of tables. With None
        the place is unknown again, and dblock reads it before the next use.
        """

    # --- the lease ---------------------------------------------------------------------------

    @abstractmethod
    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        """Take the name if it is free, and raise its fence. The statement does not wait, and writes
        nothing if the name is not free.

        The caller is not in the queue. A free name is reserved for the waiters in its queue first,
        for the :attr:`grace` of each.

        The statement raises the fence while it has the row locked, so fences grow in the order of
        the grants.
        """

    def grant_known(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        """As :meth:`grant`, and faster: it may refuse a name without a row or with a queue."""
        return self.grant(name, token, owner, ttl)

    @abstractmethod
    def renew(self, asked: Sequence[Renewal]) -> Query[dict[str, int | None]]:
        """Move the expiries of unexpired holds, without waiting; return the token of each renewed
        hold with its fence. The fence may be None if there are several holds.

        If one row is locked, the statement either renews the others or fails.
        """

    @abstractmethod
    def attach(
        self, name: str, token: str, new_token: str, owner: str, ttl: float
    ) -> Query[int | None]:
        """Move an unexpired hold to another token, without waiting; return its fence.

        None when the token does not hold the name, or while a transaction is guarded with it:
        transactions that the previous holder has guarded must end before the next holder goes on.
        """

    @abstractmethod
    def release(self, name: str, token: str) -> Query[int]:
        """Free the name if the token holds it; one row when it did.

        On a database whose releases pass names on, this frees the name only if its queue is empty.
        """

    def pass_on(self, name: str, token: str, passes: bool = True) -> Query[int]:
        """If the token holds the name, grant the name to the first waiter and notify that waiter;
        one row when the token held it. If that is impossible, or ``passes`` is false, free the name
        and notify the first waiter that can be notified."""
        return self.release(name, token)

    @abstractmethod
    def look(self, *names: str) -> Query[list[LockRow]]:
        """Read the rows of names, without waiting."""

    @abstractmethod
    def held(self) -> Query[list[LockRow]]:
        """Read the rows of all names that have a token, an expired one too, or have waiters."""

    # --- waiting -----------------------------------------------------------------------------

    @abstractmethod
    def join(
        self, name: str, token: str, owner: str, ttl: float, ticket: str, *, yields: bool = False
    ) -> Query[Granted | Queued | None]:
        """Put the ticket into the queue, in the position of an earlier ticket of the same token if
        there is one. The statement may wait for the row for a moment. On a database without
        notifications it takes the name if it is the ticket's turn.

        With ``yields`` the ticket does not join while another session waits in the server, since
        the queue does not show that session. The statement then marks the row, so that no other
        waiter begins to wait in the server.
        """

    def take(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        """Take the name if it is the turn of the waiter with the token; this may wait a moment for
        the row."""
        raise NotImplementedError(f"{self.name} takes a name when it is joined for")

    @abstractmethod
    def leave(self, name: str, token: str, ticket: str) -> Query[int]:
        """Remove a waiter from the queue; notify the next waiter if the name is free."""

    @abstractmethod
    def look_queued(self, name: str, token: str, ticket: str) -> Query[Queued | None]:
        """Read a name's row as :meth:`look` does, and the ticket's position in the queue."""

    def wait_in_server(self, name: str, patience: float) -> Query[bool]:
        """Wait up to ``patience`` seconds for the name's user lock; return whether another session
        had it.

        The session then has the user lock. The statement fails if the user lock or the row stayed
        busy, or if the row is marked because readers use the name.
        """
        raise NotImplementedError(f"{self.name} has no user locks")

    def release_and_unlock(self, name: str, token: str) -> Query[int]:
        """Free the name as :meth:`release` does, and release its user lock. The session that has
        the user lock must run this."""
        raise NotImplementedError(f"{self.name} has no user locks")

    def unlock_all(self) -> Query[int]:
        """Release all user locks of the session."""
        raise NotImplementedError(f"{self.name} has no user locks")

    # --- the table of waiters ----------------------------------------------------------------

    @abstractmethod
    def register(
        self,
        id: str,
        name: str,
        *,
        strategy: str,
        owner: str,
        waited: float,
        lasts: float,
        holds: Mapping[str, int | None],
    ) -> Query[int]:
        """Insert a waiter's row, or extend it for ``lasts`` seconds from now."""

    @abstractmethod
    def unregister(self, id: str) -> Query[int]:
        """Delete a waiter's row."""

    @abstractmethod
    def sweep(self) -> Query[int]:
        """Delete the rows of waiters that have expired, without waiting for other sweeps."""

    @abstractmethod
    def waiters(self, name: str | None = None) -> Query[dict[str, tuple[WaiterState, ...]]]:
        """Read the waiters of a name, or of all names."""

    @abstractmethod
    def blocked(self) -> Query[list[Blocked]]:
        """Read all waiters that hold something, each with the fence of the lease it waits for."""

    # --- the row lock and the guard ----------------------------------------------------------

    @abstractmethod
    def create(self, name: str, *, borrowed: bool = False) -> Query[int]:
        """Insert the free row of a name, with the floor's fence; no failure if the row exists.

        Only a database with :attr:`one_writer` creates it in a ``borrowed`` transaction.
        """

    def begin(self, patience: float | None) -> tuple[Query[int], ...]:
        """Begin the row lock's own transaction."""
        return (Query("BEGIN", {}, commands.Begin()),)

    @abstractmethod
    def lock_row(self, name: str, patience: float | None, *, borrowed: bool) -> Query[RowOutcome]:
        """Lock a free name's row until the transaction ends.

        ``patience`` is how many seconds the server may wait for other transactions: 0 not at all,
        None without a limit. In a borrowed transaction no setting outlives the statement. There 0
        is only for :attr:`skips_locked`, and the reply does not say why the row was not locked.
        """

    @abstractmethod
    def guard(self, name: str, token: str, fence: int) -> Query[bool]:
        """Block every grant of the name until the user's transaction ends; renewals still pass.

        True when no later hold has been granted. The statement does not wait: a session that has
        the row locked is taking the name.
        """

    # --- the witness -------------------------------------------------------------------------

    def witness(self) -> Query[Witness | None]:
        """Read the witness."""
        raise NotImplementedError

    def write_witness(self) -> Query[int]:
        """Write a new witness if it is missing; one row when this statement wrote it.

        If the lock table may have lost a lease, the statement begins a new epoch, with a pause of
        the longest TTL. It shortens a pause that is longer than the longest TTL.
        """
        raise NotImplementedError

    def distrust(self, longest: float | None) -> Query[int]:
        """Make the next caller that reads the witness begin a new epoch, with a pause.

        The pause lasts for ``longest`` seconds, or for the longest TTL if that is None.
        """
        raise NotImplementedError

    def announce_ttl(self, ttl: float) -> Query[int]:
        """Write into the epoch's row, which a failover keeps, that leases with TTLs up to ``ttl``
        may be granted."""
        raise NotImplementedError

    def record_ttl(self, ttl: float) -> Query[int]:
        """Allow grants with TTLs up to ``ttl`` from now on, and record that for after a crash.

        The statement does nothing unless a TTL at least as long is announced. Once a day it drops
        the recorded TTLs that no caller has asked for since the last time.
        """
        raise NotImplementedError

    # --- row locks, from outside -------------------------------------------------------------

    def row_locks(self, name: str | None = None) -> Query[dict[str, RowLockState]]:
        """Read which transactions have locked the rows of names that have no lease.

        On a database that locks a file as a whole, this fails as busy while a transaction writes.
        """
        raise NotImplementedError

    # --- notifications -----------------------------------------------------------------------

    def topic(self, name: str) -> str:
        """Return the topic under which the observers of a name are notified."""
        raise NotImplementedError(f"{self.name} notifies nobody: observers of a name poll")
