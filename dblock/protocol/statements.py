"""The port: what the protocol asks of a database, and what it understands of the replies.

Each method returns a statement that says how its reply is read. A dialect implements them; see
:mod:`dblock.dialects`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from ..lock_state import Leader, RowLockState, RunState, WaiterState
from . import commands
from .deadlock import Blocked
from .state import (
    Found,
    Granted,
    LockRow,
    NamePage,
    Place,
    Queued,
    Record,
    Renewal,
    RowOutcome,
    Slots,
    Witness,
)
from .steps import Query
from .timing import Timing

if TYPE_CHECKING:
    from ..policy import Timeouts


class Statements(ABC):
    """One database's statements over dblock's tables in ``schema``, and what is special in it."""

    name: ClassVar[str]
    schema: str | None
    prefix: str
    timeouts: Timeouts
    timing: Timing
    #: What creates and upgrades the tables, where it is not ``dblock upgrade``.
    upgraded_by: str = ""
    #: Where the tables are, once one of dblock's own connections has looked; and where that was
    #: before they were made anew.
    place: Place | None = None
    former_place: Place | None = None

    #: A refused row lock still keeps others off the row until its transaction ends, so the name
    #: is looked at from outside before it is locked.
    refusal_holds: ClassVar[bool] = False
    #: The statement that locks a row in a transaction of dblock's own takes that look itself.
    looks_itself: bool = False
    #: A borrowed row lock that waits for nobody is cheaper than one that may, so it is tried first.
    skips_locked: ClassVar[bool] = False
    #: A plain read in a transaction may be older than what an update in it has just seen.
    stale_reads: ClassVar[bool] = False
    #: A failed statement undoes its whole transaction, so that it cannot be tried again in it.
    failure_aborts: ClassVar[bool] = False
    #: One transaction writes at a time: a row lock keeps every other lock statement out, and the
    #: row of a new name is created in the locking transaction itself.
    one_writer: ClassVar[bool] = False
    #: Granting, renewing and proving statements look for the witness (:mod:`.epoch`). Without one
    #: the lock table itself has to outlive a crash.
    has_witness: ClassVar[bool] = False
    #: Who stands in a name's queue is told of its turn; elsewhere it has to look.
    can_notify: ClassVar[bool] = False
    #: It can be asked who has locked a row, in one look.
    sees_row_locks: ClassVar[bool] = False
    #: Names have user locks, which are waited for in the server.
    can_wait_in_server: ClassVar[bool] = False

    @property
    def grace(self) -> float:
        """How long a free name is kept for each one in the queue; see :class:`.Timing`."""
        return self.timing.grace

    @property
    def longest_patience(self) -> float | None:
        """The longest one statement may wait before it is sent again, in seconds; None for no
        limit."""
        return None

    @abstractmethod
    def privileges(self, role: str) -> tuple[str, ...]:
        """Say what gives a role what it needs: statements, or words."""

    # --- where the tables are ----------------------------------------------------------------

    @abstractmethod
    def look_around(self, *, borrowed: bool = False) -> Query[Found]:
        """Look where the tables are, and in which version; or which are where a user's transaction
        is."""

    def hidden(self) -> tuple[Query[str | None], ...]:
        """See which tables a temporary one hides from a user's session, by whatever name."""
        return ()

    @abstractmethod
    def settle(self, place: Place | None) -> None:
        """Name the tables by their place from now on, in whatever session a statement runs.

        Those for users' transactions find nothing in any other tables. None is to look again.
        """

    # --- the lease ---------------------------------------------------------------------------

    @abstractmethod
    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        """Take the name if it is free, raising its fence; without waiting, writing nothing if not.

        It is free for who is not in the queue only when nobody is.

        A free name's fence is raised by this statement while it has the row, so fences grow in
        the order of the grants.
        """

    def grant_known(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        """As :meth:`grant`, in less time: it may refuse a name without a row, or with a queue."""
        return self.grant(name, token, owner, ttl)

    @abstractmethod
    def renew(self, asked: Sequence[Renewal]) -> Query[dict[str, int | None]]:
        """Move the expiries of unexpired holds, waiting for nobody; return the token of each
        with its fence, which may be left out where there are several.

        Where one row is in use the others may be renewed all the same, or the statement fails.
        """

    @abstractmethod
    def attach(
        self, name: str, token: str, new_token: str, owner: str, ttl: float
    ) -> Query[int | None]:
        """Go on with an unexpired hold under another token, waiting for nobody; return its fence.

        None when the token does not hold the name, or a transaction is guarded with it: what the
        holder before has guarded ends before another goes on.
        """

    @abstractmethod
    def release(self, name: str, token: str) -> Query[int]:
        """Free the name if the token holds it; one row when it did.

        Where names are passed on it does so only if nobody waits.
        """

    def pass_on(self, name: str, token: str, passes: bool = True) -> Query[int]:
        """Make the name, if the token holds it, the first waiter's and tell that; one row when it
        did. Where that cannot be, or ``passes`` forbids it, free the name and call who waits."""
        return self.release(name, token)

    @abstractmethod
    def look(self, *names: str) -> Query[list[LockRow]]:
        """Read the rows of names, waiting for nobody."""

    @abstractmethod
    def held(self) -> Query[list[LockRow]]:
        """Read the rows of all names that have a token, expired ones too, or are waited for."""

    # --- readers that share a hold -----------------------------------------------------------

    @abstractmethod
    def join_readers(
        self, name: str, group: str, token: str, ttl: float, *, ticket: str, past: bool
    ) -> Query[int]:
        """Share the hold that has the token ``group``, if it is unexpired; one row when that is so.

        It lasts for ``ttl`` seconds from now, or for as long as it did if that is longer. Nobody
        may be in the queue before the ticket, unless who asks goes ``past`` them; without a ticket
        nobody at all. Where the queue says who is a reader, readers in it are in nobody's way. The
        ticket leaves the queue. This may wait for the row for a moment.
        """

    @abstractmethod
    def leave_readers(self, name: str, group: str, token: str) -> Query[int]:
        """Share the hold no longer; one row when it was shared. The last reader frees the name,
        and calls who waits; it is passed on to nobody, since others may have guarded with it."""

    def call_readers(self, name: str, group: str) -> Query[int]:
        """Call the readers that wait before the first writer, while others have the name."""
        raise NotImplementedError(f"{self.name} calls nobody")

    # --- the slots of a semaphore ------------------------------------------------------------

    @abstractmethod
    def grant_slot(
        self,
        name: str,
        limit: int,
        token: str,
        owner: str,
        ttl: float,
        *,
        turnstile: str,
        first: int,
        known: bool = False,
    ) -> Query[Granted | None]:
        """Take any free slot that has a row, as :meth:`grant` takes a name; writing nothing if it
        does not.

        Only if the semaphore's limit is this, and if nobody has its turnstile or waits for that,
        but who has it with the token ``turnstile``. The slots are tried in their order, beginning
        after ``first`` of them: who asks next for other slots is in nobody's way. ``known`` is to
        try that one alone, in less time; it may refuse one with a queue, and fail as busy.
        """

    @abstractmethod
    def look_at_slots(self, name: str, limit: int) -> Query[Slots]:
        """Read a semaphore's limit, and the rows of its turnstile and of so many slots."""

    @abstractmethod
    def set_limit(self, name: str, limit: int, *, anew: bool) -> Query[int]:
        """Write a semaphore's limit; if not ``anew``, only where it has none."""

    # --- waiting -----------------------------------------------------------------------------

    @abstractmethod
    def join(
        self, name: str, token: str, owner: str, ttl: float, ticket: str, *, yields: bool = False
    ) -> Query[Granted | Queued | None]:
        """Let the ticket stand in the queue, in the place of any other of the same token; this may
        wait for a moment. Where nobody is called, take the name if it is the ticket's turn.

        One that ``yields`` does not stand in it while another waits in the server, and so not in
        the queue: but from then on nobody begins to wait there.
        """

    def take(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        """Take the name if it is the turn of who stands in the queue, which may take a moment."""
        raise NotImplementedError(f"{self.name} takes a name when it is joined for")

    @abstractmethod
    def leave(self, name: str, token: str, ticket: str) -> Query[int]:
        """Take a waiter out of the queue; call the next one if the name is free."""

    @abstractmethod
    def look_queued(self, name: str, token: str, ticket: str) -> Query[Queued | None]:
        """Read a name's row as :meth:`look` does, and where the ticket stands."""

    def wait_in_server(self, name: str, patience: float) -> Query[bool]:
        """Wait for the name's user lock, ``patience`` seconds at most; tell whether others had it.

        The session has it from then on, or this fails: it, or the row, was busy, or readers want
        the name now and then.
        """
        raise NotImplementedError(f"{self.name} has no user locks")

    def release_and_unlock(self, name: str, token: str) -> Query[int]:
        """Free the name, as :meth:`release` does, and its user lock, on the session that has it."""
        raise NotImplementedError(f"{self.name} has no user locks")

    def unlock_all(self) -> Query[int]:
        """Let all user locks of the session go."""
        raise NotImplementedError(f"{self.name} has no user locks")

    # --- those who are seen waiting ----------------------------------------------------------

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
        """Write that a waiter is there, for the first time or again."""

    @abstractmethod
    def unregister(self, id: str) -> Query[int]:
        """Remove a waiter."""

    @abstractmethod
    def sweep(self) -> Query[int]:
        """Remove waiters whose time is over, without waiting for others who do."""

    @abstractmethod
    def waiters(self, name: str | None = None) -> Query[dict[str, tuple[WaiterState, ...]]]:
        """Read who waits for a name, or for any."""

    @abstractmethod
    def blocked(self) -> Query[list[Blocked]]:
        """Read all waiters that hold something, and which lease is on what they wait for."""

    # --- the row lock and the guard ----------------------------------------------------------

    @abstractmethod
    def create(self, name: str, *, borrowed: bool = False) -> Query[int]:
        """Insert the free row of a name, with the floor's fence; no failure when it is there.

        It is ``borrowed`` only where there is :attr:`one_writer`.
        """

    def begin(self, patience: float | None) -> tuple[Query[int], ...]:
        """Begin the row lock's own transaction."""
        return (Query("BEGIN", {}, commands.Begin()),)

    @abstractmethod
    def lock_row(self, name: str, patience: float | None, *, borrowed: bool) -> Query[RowOutcome]:
        """Lock a free name's row until the transaction ends.

        ``patience`` is how long the server may wait for other transactions: 0 not at all, None
        without a limit. In a borrowed transaction no setting outlives the statement; and 0 is only
        for :attr:`skips_locked`, and tells nothing of why a row was not locked.
        """

    @abstractmethod
    def guard(self, name: str, token: str, fence: int) -> Query[bool]:
        """Hold off, in the user's transaction, all who would take the name, not its renewal.

        True when no later hold has been granted. Waits for nobody: whoever is in the way is taking
        the name.
        """

    # --- calls that are made once ------------------------------------------------------------

    @abstractmethod
    def claim_once(
        self,
        key: str,
        token: str,
        fingerprint: str | None,
        keep: float,
        patience: float | None,
    ) -> Query[Record | None]:
        """Record a call, in the user's transaction, where none is on record that is still kept;
        read the record, which is this call's if its token is.

        A record that another transaction has not committed is waited for, ``patience`` as with
        :meth:`lock_row`. None if there came a record meanwhile: ask again.
        """

    @abstractmethod
    def finish_once(self, key: str, token: str, result: str) -> Query[int]:
        """Record the result of a call; no row when its record is gone."""

    @abstractmethod
    def forget_once(self, key: str, token: str) -> Query[int]:
        """Take back the record of a call."""

    # --- the witness -------------------------------------------------------------------------

    def witness(self) -> Query[Witness | None]:
        """Read the witness."""
        raise NotImplementedError

    def write_witness(self) -> Query[int]:
        """Write the witness anew if it is missing; one row when this statement did it.

        Unless the lock table has lost nothing this begins a new epoch, with a pause of the
        longest TTL. A pause that is longer is cut short.
        """
        raise NotImplementedError

    def distrust(self, longest: float | None) -> Query[int]:
        """Have the next caller that reads the witness begin a new epoch, with a pause.

        It lasts for ``longest`` seconds, or if that is None for the longest TTL.
        """
        raise NotImplementedError

    def announce_ttl(self, ttl: float) -> Query[int]:
        """Let it be known, for after a failover, that TTLs as long as this may be granted."""
        raise NotImplementedError

    def record_ttl(self, ttl: float) -> Query[int]:
        """Let it be known, for after a crash, that TTLs as long as this are granted from now on.

        Nothing, unless one as long is announced. Once a day those that nobody has asked for since
        are forgotten.
        """
        raise NotImplementedError

    # --- row locks, from outside -------------------------------------------------------------

    def row_locks(self, name: str | None = None) -> Query[dict[str, RowLockState]]:
        """Read which transactions have locked the rows of names that have no lease.

        Where a file is locked as a whole this fails as busy while somebody writes to it.
        """
        raise NotImplementedError

    # --- the record of jobs' runs ------------------------------------------------------------

    @abstractmethod
    def now(self) -> Query[datetime]:
        """Read the server's clock."""

    @abstractmethod
    def begin_run(self, name: str, slot: str, fence: int, owner: str) -> Query[int]:
        """Record that a run begins, unless one has succeeded in this slot; the empty one is none.

        The recorded run's fence comes back: this run's when it is to begin. A statement that comes
        late, when a later hold's run has begun or this one has ended, changes nothing.
        """

    @abstractmethod
    def end_run(self, name: str, slot: str, fence: int, status: int) -> Query[int]:
        """Record how a run ended; no row when it is not the recorded one any more."""

    @abstractmethod
    def forget_run(self, name: str, slot: str, fence: int) -> Query[int]:
        """Delete the record of a run; no row when it is not the recorded one any more."""

    @abstractmethod
    def runs(self, name: str, limit: int, slot: str | None = None) -> Query[list[RunState]]:
        """Read the runs of a name that are on record, so many, the one that began last first; only
        that of a slot, if one is given."""

    @abstractmethod
    def last_runs(self, limit: int) -> Query[list[RunState]]:
        """Read the last run of each name, so many, the one that began last first."""

    @abstractmethod
    def held_runs(self) -> Query[dict[str, RunState]]:
        """Read the runs under the leases that there are now, by the jobs' names."""

    @abstractmethod
    def prune_applied(self, age: float) -> Query[int]:
        """Delete some of the keys that are older than ``age`` seconds, if there are any."""

    @abstractmethod
    def prune_once(self) -> Query[int]:
        """Delete some of the records of calls that are kept no longer, if there are any."""

    @abstractmethod
    def prune_runs(self, age: float) -> Query[int]:
        """Delete some of the runs that are as old, not the last one of a name."""

    # --- names that are not used any more ----------------------------------------------------

    @abstractmethod
    def look_for_unused(self, after: str, idle: float) -> Query[NamePage | None]:
        """Look at some of the names that follow ``after``, in their order; None if none does.

        A name is unused when it was last held or asked for by a lease ``idle`` seconds ago, and
        nobody stands in its queue; or if only row locks have had it.
        """

    @abstractmethod
    def raise_floor(self, fence: int) -> Query[int]:
        """Raise the floor to a fence, if it is lower: whoever does not see a name's row sees a
        floor that was raised before that was deleted, and gives it a larger fence."""

    @abstractmethod
    def retire(self, after: str, last: str, fence: int, idle: float) -> Query[int]:
        """Delete the rows of names that follow ``after``, up to ``last``, where they are unused
        and have no fence above ``fence``. One that is locked stays: nobody is waited for."""

    @abstractmethod
    def prune_values(self, age: float) -> Query[int]:
        """Delete some of the values that are older than ``age`` seconds, if there are any, and
        whose names have no row."""

    # --- what a leader tells -----------------------------------------------------------------

    @abstractmethod
    def write_value(self, name: str, token: str, fence: int, value: str) -> Query[bool]:
        """Write a name's value if the token holds it, and call who observes the name.

        No value of a later hold is replaced. It waits for no lease.
        """

    @abstractmethod
    def leader(self, name: str) -> Query[Leader | None]:
        """Read who holds a name, and the value that this very hold has written."""

    def topic(self, name: str) -> str:
        """Return what is called out to those who observe a name."""
        raise NotImplementedError(f"{self.name} notifies nobody: observers of a name poll")

    def call_observers(self, name: str) -> Query[int]:
        """Call those who observe a name, for them to look."""
        raise NotImplementedError(f"{self.name} notifies nobody: observers of a name poll")
