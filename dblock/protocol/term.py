"""The arithmetic of a lease: a value that is told the time and never asks for it."""

from __future__ import annotations

from dataclasses import dataclass

MARGIN_SHARE = 0.1
MARGIN_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Term:
    """One granted or renewed TTL, seen from the holder.

    ``start`` is the holder's monotonic clock *before* the request was sent, so the database's
    expiry, which counts from when the statement ran, is never earlier than ``start + ttl``. The
    holder's own deadline is shorter by a margin, for clocks that run at different rates and for
    the time between looking at the clock and acting on it (the reason behind Kubernetes' renew
    deadline being shorter than its lease duration).
    """

    start: float
    ttl: float

    @property
    def margin(self) -> float:
        return min(self.ttl * MARGIN_SHARE, MARGIN_MAX)

    @property
    def deadline(self) -> float:
        return self.start + self.ttl - self.margin

    def remaining(self, now: float) -> float:
        """Return the seconds for which the holder may still act, 0 when they are over."""
        return max(0.0, self.deadline - now)

    def over(self, now: float) -> bool:
        return now >= self.deadline
