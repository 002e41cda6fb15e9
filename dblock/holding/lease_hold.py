"""A granted lease, as this process keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..errors import LockLost
from ..io.process_lock import lock
from ..protocol.lease import Held
from ..protocol.observer import Belief, Change
from ..protocol.term import Term
from ..protocol.tokens import STRATEGY
from .holds import Hold

if TYPE_CHECKING:
    from ..io.user_locks import UserLock
    from ..policy import Timeouts
    from ..protocol.renew import Asked, Renewed
    from ..protocol.schedule import Danger, RenewalSchedule


class Renewer(Protocol):
    """A database, as the keeper of its leases needs it."""

    @property
    def timeouts(self) -> Timeouts: ...

    def renew_all(self, asked: Sequence[Asked], within: float) -> Sequence[Renewed]:
        """Renew many holds at once, awaiting each answer for ``within`` seconds; return each hold's
        outcome."""


class Callbacks(NamedTuple):
    """The user's callbacks about a hold; see :meth:`.Locks.lease`."""

    on_danger: Callable[[Danger], None] | None = None
    on_lost: Callable[[LockLost], None] | None = None


NO_CALLBACKS = Callbacks()


@dataclass(slots=True, eq=False, kw_only=True)
class LeaseHold(Hold):
    """A granted lease."""

    lease: Held
    token: str = field(repr=False)
    schedule: RenewalSchedule
    database: Renewer
    callbacks: Callbacks = NO_CALLBACKS
    #: The reader's own token, if it shares the hold with other readers.
    reader: str | None = field(default=None, repr=False)
    user_lock: UserLock | None = None
    #: Whether a transaction was guarded with it, which may still be open.
    guarded: bool = False
    #: Whether the outcome of a release is unknown, so that it may have been executed.
    in_doubt: bool = False

    @property
    def alive(self) -> bool:
        return not self.inherited and self.keepable(self.runtime.now())

    @property
    def fence(self) -> int | None:
        return self.lease.fence

    @property
    def belief(self) -> Belief:
        token = self.reader or self.token
        return Belief(self.strategy, self.name, token, self.lease.fence, self.lease.term)

    @property
    def strategy(self) -> str:
        return "lease" if self.reader is None else STRATEGY

    def keepable(self, now: float) -> bool:
        """Whether there is a lease to renew: not released, not lost, not expired."""
        return not self.ended and self.loss is None and not self.lease.term.over(now)

    def begin(self, term: Term) -> None:
        """Begin a new term."""
        self.lease = self.lease._replace(term=term)
        self.tell(Change.RENEWED)
        self._leave_user_lock()  # its waiters have joined the row's queue by the first renewal

    def lose(self, loss: LockLost) -> bool:
        with lock:
            self._leave_user_lock()
            return Hold.lose(self, loss)

    def _leave_user_lock(self) -> None:
        """Release the user lock, under the process-wide lock, unless a release of the lease has
        begun: that releases the user lock itself."""
        if self.user_lock is not None and not self.ended:
            self.user_lock.drop()

    def ran_out(self) -> LockLost:
        """Return the loss of a lease whose term is over."""
        return self.schedule.loss(self.name, self.lease.term, asking=self.renewing)

    def end(self, patience: float, now: float) -> None:
        """Stop its renewals. Wait for a renewal under way, for ``patience`` seconds or the rest of
        the term, whichever is less.

        A renewal that takes longer finds no hold of its token once the lease is released.
        """
        with lock:
            self.ended = True
        if self.renewing:
            patience = min(patience, self.lease.term.remaining(now))
            with self.runtime.settled(lambda: not self.renewing, patience):
                pass
