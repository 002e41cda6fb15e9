"""When a lease's renewal, its warning and its loss are due. The caller passes the time in.

::

    start          1/3           2/3              deadline      expiry, on the database's clock
      ├─────────────┼─────────────┼──────────────────┼───────────┤
                 renewal        danger              lost
                 (a little earlier, at random)

A successful renewal begins a new term. A failed renewal is repeated soon, until the term is over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import LockLost
from ..lock_state import counted
from .inspect import expired
from .renew import RenewalFailed, unreachable
from .term import FIRST_TERM, Term, margin

if TYPE_CHECKING:
    from .lease import Held

RENEWAL_SHARE = 1 / 3
DANGER_SHARE = 2 / 3
# A renewal comes earlier by up to this share of the interval, at random, so that processes that
# began together do not renew at the same moments.
JITTER_SHARE = 0.1
# The pause before a failed renewal is repeated: a share of the TTL, at most AGAIN_MAX seconds, and
# up to half of it less at random.
AGAIN_SHARE, AGAIN_MAX = 0.1, 1.0
# The share of a first term after which it is renewed, if a release passed the name on with a term
# that is shorter than planned.
FIRST_SHARE = 1 / 10
# A renewal that is due within JITTER_SHARE of its interval, at most GATHER_MAX seconds, goes along
# with the renewals that are due now.
GATHER_MAX = 1.0

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Danger:
    """The argument of ``on_danger``: dblock did not renew the lease in time, and you still hold it.

    You may still act for ``remaining`` seconds. ``cause`` says why dblock did not renew the lease;
    it is None if that is not known.
    """

    name: str
    fence: int
    remaining: float
    cause: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a lease is renewed: the same for all holds of one handle.

    A hold lasts for ``at_least`` seconds from its start even without renewals.
    """

    ttl: float
    renew: bool = True
    renew_every: float | None = None
    max_renewals: int | None = None
    max_hold: float | None = None
    at_least: float = 0.0
    #: Whether the first term may be a short one, which the first renewal soon extends.
    short: bool = field(init=False, repr=False)
    #: The TTL to acquire with, in seconds.
    first: float = field(init=False, repr=False)
    #: Seconds from the begin of a term to its renewal.
    interval: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        short = self.renew and self.max_renewals is None and self.at_least <= FIRST_TERM
        first = max(self.ttl, self.at_least)
        if self.max_hold is not None:
            first = min(first, self.max_hold)
        object.__setattr__(self, "short", short)
        object.__setattr__(self, "first", first)
        every = self.ttl * RENEWAL_SHARE if self.renew_every is None else self.renew_every
        object.__setattr__(self, "interval", every)


class RenewalSchedule:
    """The progress of one hold in its plan. Only the owner of the process-wide lock changes it.

    The keeper reads ``due`` and ``wake`` without the lock. A stale value costs it one pass, because
    it checks again under the lock before it acts.

    ``due`` is when to renew, :data:`NEVER` if not at all. ``danger`` is when the holder gets a
    warning that its lease was not renewed. ``wake`` is the earliest time at which there is anything
    to do. All are monotonic seconds. ``warned`` says that the holder got the warning in this term.
    """

    __slots__ = (
        "_away",
        "_began",
        "_plan",
        "_stopped",
        "cause",
        "danger",
        "due",
        "renewals",
        "wake",
        "warned",
    )

    def __init__(self, plan: Plan, term: Term, random: float) -> None:
        """``random`` is a number from 0 to 1, here and in the methods."""
        self._plan = plan
        self._began = term.start
        self._stopped: str | None = None
        self.renewals = 0
        self.extended(term, random, planned=True)

    # --- events of the hold ------------------------------------------------------------------

    def extended(self, term: Term, random: float, *, planned: bool = False) -> None:
        """Record that a new term began: ``planned``, or because the user renewed the lease."""
        self.cause: str | None = None
        self._away = False
        self.warned = False
        ttl = min(self._plan.ttl, term.ttl)  # the user may have set the term's own
        # The start of a term of the planned length with the same end. So the next renewal does not
        # shorten a term that the user made longer.
        # Usually the term is as long as the TTL: then this needs no margin.
        begun = term.start if ttl == term.ttl else term.deadline - (ttl - margin(ttl))
        self.danger = begun + ttl * DANGER_SHARE
        self.due = NEVER
        if self._limit(term) is None:
            # In proportion, where the user made the term shorter.
            interval = self._plan.interval * (ttl / self._plan.ttl) * (1 - random * JITTER_SHARE)
            if planned and self.renewals == 0 and term.ttl < self._plan.first:
                interval = min(interval, ttl * FIRST_SHARE)
            # A planned term is longer than the TTL only for `at_least`, which the renewal keeps.
            self.due = (term.start if planned else begun) + interval
        self.wake = min(self.due, self.danger)

    def renewed(self, term: Term, random: float) -> None:
        """Record that a renewal of this plan succeeded."""
        self.renewals += 1
        self.extended(term, random, planned=True)

    def missed(self, missed: RenewalFailed, term: Term, now: float, random: float) -> None:
        """Record that a renewal failed, or that its outcome is unknown."""
        self.cause, self._away = str(missed.failure), missed.away
        if self._limit(term) is None:
            pause = min(self._plan.ttl * AGAIN_SHARE, term.ttl * AGAIN_SHARE, AGAIN_MAX)
            self.due = now + pause * (1 - random / 2)
        self._set_wake(term)

    def told(self, term: Term) -> None:
        """Record that the holder got the warning."""
        self.warned = True
        self._set_wake(term)

    def stop(self, why: str, term: Term) -> None:
        """Stop renewing the lease; only watch its term from now on."""
        self._stopped = why
        self.due = NEVER
        self._set_wake(term)

    # --- times for the keeper ----------------------------------------------------------------

    def gather(self, term: Term) -> float:
        """Return the time from which on this renewal may go along with renewals that are due."""
        if self.cause is not None:
            return self.due
        return self.due - min(self._plan.interval * JITTER_SHARE, GATHER_MAX)

    def length(self, now: float, asked: float | None = None) -> float:
        """Return the TTL to renew with, in seconds: as ``asked`` or planned, within ``max_hold``,
        and not below ``at_least``."""
        length = self._plan.ttl if asked is None else asked
        length = max(length, self._began + self._plan.at_least - now)
        if self._plan.max_hold is None:
            return length
        return min(length, self._began + self._plan.max_hold - now)

    def patience(self, term: Term) -> float:
        """Return how many seconds to wait for a reply, so that time is left for another try."""
        return min(self._plan.ttl, term.ttl) * RENEWAL_SHARE

    # --- messages to the holder --------------------------------------------------------------

    def warning(self, name: str, held: Held, now: float, *, asking: bool) -> Danger:
        """Return the warning for the holder; ``asking`` says that a renewal is under way."""
        cause = self._limit(held.term) or self.cause
        if cause is None and asking:
            cause = "the database has not answered yet"
        return Danger(name, held.fence, held.term.remaining(now), cause)

    def loss(self, name: str, term: Term, *, asking: bool) -> LockLost:
        """Return why the hold is lost now that its term is over."""
        limit = self._limit(term)
        if limit is not None:
            return expired(name, f"as planned: {limit}")
        if self.cause is not None and self._away:
            return unreachable(name, self.cause)
        if self.cause is not None:
            return expired(name, f"without being renewed in time: {self.cause}")
        if asking and self.warned:  # unless the process slept from before the warning until now
            return unreachable(name, "there was no answer")
        return expired(name)

    # --- inside ------------------------------------------------------------------------------

    def _limit(self, term: Term) -> str | None:
        """Return the reason why there is no further renewal; None if there is one."""
        plan = self._plan
        if self._stopped is not None:
            return self._stopped
        if not plan.renew:
            return "it is not renewed (renew=False)"
        if plan.max_renewals is not None and self.renewals >= plan.max_renewals:
            return f"it was renewed {counted(self.renewals, 'time')} (max_renewals)"
        if plan.max_hold is not None and term.start + term.ttl >= self._began + plan.max_hold:
            return f"it was held for {plan.max_hold:g} s (max_hold)"
        return None

    def _set_wake(self, term: Term) -> None:
        # `gather` does not count: another lease's renewal takes this one along.
        self.wake = min(self.due, term.deadline if self.warned else self.danger)
