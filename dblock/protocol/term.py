"""The arithmetic of a lease's term. The caller passes the time in."""

from __future__ import annotations

from dataclasses import dataclass, field

MARGIN_SHARE = 0.1
MARGIN_MAX = 5.0  # seconds
#: Seconds: the first term of a hold that a release has passed on, unless its TTL is shorter. The
#: holder's first renewal extends it soon; a waiter that does not answer delays the others no more
#: than this.
FIRST_TERM = 2.0


def margin(ttl: float) -> float:
    """Return how many seconds before the end of a TTL the holder's own deadline is."""
    return min(ttl * MARGIN_SHARE, MARGIN_MAX)


@dataclass(frozen=True, slots=True, init=False)
class Term:
    """One granted or renewed TTL, seen from the holder.

    ``start`` is the holder's monotonic clock *before* the request was sent, so the database's
    expiry, which counts from when the statement ran, is never earlier than ``start + ttl``. The
    holder's own deadline is shorter by a margin, for clocks that run at different rates and for
    the time between reading the clock and acting on it. Kubernetes' renew deadline is shorter than
    its lease duration for the same reason.
    """

    start: float
    ttl: float
    deadline: float = field(init=False, repr=False, compare=False)

    def __init__(self, start: float, ttl: float) -> None:
        put = object.__setattr__  # the class is frozen, and created often
        put(self, "start", start)
        put(self, "ttl", ttl)
        put(self, "deadline", start + ttl - margin(ttl))

    @property
    def margin(self) -> float:
        return margin(self.ttl)

    def remaining(self, now: float) -> float:
        """Return the seconds for which the holder may still act, 0 after the deadline."""
        return max(0.0, self.deadline - now)

    def over(self, now: float) -> bool:
        return now >= self.deadline
