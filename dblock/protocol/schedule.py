"""When a held lease is due: for its renewal, for a warning, for being over. It never asks the time.

::

    start          1/3           2/3              deadline      expiry, on the database's clock
      ├─────────────┼─────────────┼──────────────────┼───────────┤
                 renewal        danger              lost
                 (a little earlier, at random)

A good renewal begins a new term. A missed one is repeated soon, until the term is over.
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
# A share of the interval: processes that began together do not stay in step.
JITTER_SHARE = 0.1
# Before a missed renewal is repeated: the shorter of the two, or up to half of it less.
AGAIN_SHARE, AGAIN_MAX = 0.1, 1.0
# Of a term that is shorter than planned, since the name was passed on with it.
FIRST_SHARE = 1 / 10
# A renewal that is due within JITTER_SHARE of its interval, and within these seconds, goes along
# with one that is due now.
GATHER_MAX = 1.0

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Danger:
    """What ``on_danger`` gets: dblock did not renew the lease in time, and you still hold it.

    ``remaining`` is for how many seconds you may still act. ``cause`` says why dblock did not renew
    the lease; it is None if that is not known.
    """

    name: str
    fence: int
    remaining: float
    cause: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a lease is to be kept: the same for all holds of one handle.

    ``at_least`` is for how long from its start a hold lasts although nobody renews it.
    """

    ttl: float
    renew: bool = True
    renew_every: float | None = None
    max_renewals: int | None = None
    max_hold: float | None = None
    at_least: float = 0.0
    #: Whether the first term may be a short one, which a renewal makes longer at once.
    short: bool = field(init=False, repr=False)
    #: The TTL to acquire with.
    first: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        short = self.renew and self.max_renewals is None and self.at_least <= FIRST_TERM
        first = max(self.ttl, self.at_least)
        if self.max_hold is not None:
            first = min(first, self.max_hold)
        object.__setattr__(self, "short", short)
        object.__setattr__(self, "first", first)

    @property
    def interval(self) -> float:
        """The seconds from the begin of a term to its renewal."""
        return self.ttl * RENEWAL_SHARE if self.renew_every is None else self.renew_every


class RenewalSchedule:
    """Where one hold is in its plan. It belongs to whoever holds the process-wide lock.

    ``due`` is when to renew, :data:`NEVER` if not at all; ``danger`` when the holder is to be told
    that its lease was not renewed; ``wake`` when there is first anything to do. ``warned`` tells
    that the holder knows of the danger of this term.
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
        """``random`` is a number from 0 to 1, here and below."""
        self._plan = plan
        self._began = term.start
        self._stopped: str | None = None
        self.renewals = 0
        self.extended(term, random, planned=True)

    # --- what happened -----------------------------------------------------------------------

    def extended(self, term: Term, random: float, *, planned: bool = False) -> None:
        """A new term began: as this plan has it, or as the user asked for it."""
        self.cause: str | None = None
        self._away = False
        self.warned = False
        ttl = self._ttl(term)
        # When a term as planned would have begun that ends with this one. So a term that the user
        # made longer is not cut short by the next renewal.
        begun = term.deadline - (ttl - margin(ttl))
        self.danger = begun + ttl * DANGER_SHARE
        self.due = NEVER
        if self._limit(term) is None:
            interval = self._interval(term) * (1 - random * JITTER_SHARE)
            if planned and self.renewals == 0 and term.ttl < self._plan.first:
                interval = min(interval, ttl * FIRST_SHARE)
            # A term that is longer than the TTL only for `at_least` is not cut short by a renewal.
            self.due = (term.start if planned else begun) + interval
        self._set_wake(term)

    def renewed(self, term: Term, random: float) -> None:
        """A renewal that this plan asked for was good."""
        self.renewals += 1
        self.extended(term, random, planned=True)

    def missed(self, missed: RenewalFailed, term: Term, now: float, random: float) -> None:
        """A renewal failed, or nobody knows."""
        self.cause, self._away = str(missed.failure), missed.away
        if self._limit(term) is None:
            pause = min(self._ttl(term) * AGAIN_SHARE, AGAIN_MAX)
            self.due = now + pause * (1 - random / 2)
        self._set_wake(term)

    def told(self, term: Term) -> None:
        """The holder was told of the danger."""
        self.warned = True
        self._set_wake(term)

    def stop(self, why: str, term: Term) -> None:
        """From now on it is watched, and not renewed."""
        self._stopped = why
        self.due = NEVER
        self._set_wake(term)

    # --- what to do --------------------------------------------------------------------------

    def gather(self, term: Term) -> float:
        """Return from when on a renewal may go along with others that are due."""
        if self.cause is not None:
            return self.due
        return self.due - min(self._interval(term) * JITTER_SHARE, GATHER_MAX)

    def length(self, now: float, asked: float | None = None) -> float:
        """Return the TTL to renew with: as ``asked`` or planned, within the longest hold, and not
        below the shortest."""
        length = self._plan.ttl if asked is None else asked
        length = max(length, self._began + self._plan.at_least - now)
        if self._plan.max_hold is None:
            return length
        return min(length, self._began + self._plan.max_hold - now)

    def patience(self, term: Term) -> float:
        """Return how long an answer may be awaited for there to be time for another try."""
        return self._ttl(term) * RENEWAL_SHARE

    # --- what to tell ------------------------------------------------------------------------

    def warning(self, name: str, held: Held, now: float, *, asking: bool) -> Danger:
        """Return what to tell the holder; ``asking`` says that a renewal is under way."""
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
        if asking and self.warned:  # not so when the process slept, from before to after
            return unreachable(name, "there was no answer")
        return expired(name)

    # --- inside ------------------------------------------------------------------------------

    def _limit(self, term: Term) -> str | None:
        """Say what rules out another renewal, if anything does."""
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

    def _ttl(self, term: Term) -> float:
        """Return the shorter of the planned TTL and the term's own, which the user may have set."""
        return min(self._plan.ttl, term.ttl)

    def _interval(self, term: Term) -> float:
        """Return the plan's interval, or its share of a term that the user made shorter."""
        return self._plan.interval * (self._ttl(term) / self._plan.ttl)

    def _set_wake(self, term: Term) -> None:
        # Not when it may go along: that is another's.
        self.wake = min(self.due, term.deadline if self.warned else self.danger)
