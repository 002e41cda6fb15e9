"""A granted lease, as this process keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

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
    """The database of some leases, as who keeps them needs it."""

    @property
    def timeouts(self) -> Timeouts: ...

    def renew_all(self, asked: Sequence[Asked], within: float) -> Sequence[Renewed]:
        """Renew many holds at once, each answer awaited for so long; return what became of each."""


@dataclass(slots=True, eq=False, kw_only=True)
class LeaseHold(Hold):
    """A granted lease."""

    lease: Held
    token: str = field(repr=False)
    schedule: RenewalSchedule
    database: Renewer
    on_danger: Callable[[Danger], None] | None = None
    on_lost: Callable[[LockLost], None] | None = None
    #: The own token of a reader, who shares the hold.
    reader: str | None = field(default=None, repr=False)
    user_lock: UserLock | None = None
    #: A transaction was guarded with it, and may be open yet.
    guarded: bool = False
    #: A release may have been carried out: its outcome is unknown.
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
        """Whether there is a lease to renew: not given back, not lost, not over."""
        return not self.ended and self.loss is None and not self.lease.term.over(now)

    def begin(self, term: Term) -> None:
        """Begin a new term."""
        self.lease = self.lease._replace(term=term)
        self.tell(Change.RENEWED)
        self._leave_user_lock()  # nobody waits for it any more

    def lose(self, loss: LockLost) -> bool:
        with lock:
            self._leave_user_lock()
            return Hold.lose(self, loss)

    def _leave_user_lock(self) -> None:
        """Let the user lock go, under the lock; but a release that has begun does so itself."""
        if self.user_lock is not None and not self.ended:
            self.user_lock.drop()

    def ran_out(self) -> LockLost:
        """Return the loss for when the term is over."""
        return self.schedule.loss(self.name, self.lease.term, asking=self.renewing)

    def end(self, patience: float, now: float) -> None:
        """Have it renewed no more, and wait for a renewal that is under way: so long, or as long as
        there is a lease.

        One that lasts longer finds the hold given back, by its token.
        """
        with lock:
            self.ended = True
        if self.renewing:
            patience = min(patience, self.lease.term.remaining(now))
            with self.runtime.settled(lambda: not self.renewing, patience):
                pass
