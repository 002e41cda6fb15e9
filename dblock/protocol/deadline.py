"""How long one call waits for a lock, and how long it tries to reach the database meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Deadline:
    """The end of one call's patience, by its holder's monotonic clock, in seconds.

    ``wait`` is how long from ``start`` a lock is waited for, None for ever. ``timeout`` bounds how
    long a database that is away is tried, and how long an attempt whose reply was lost is looked
    for. ``now`` is the time as it was last told.
    """

    start: float
    wait: float | None
    timeout: float
    now: float
    #: The truth about an attempt comes before the deadline.
    settling: bool = False

    @property
    def left(self) -> float | None:
        """The seconds until it is over, below 0 when it is; None when it never is."""
        return None if self.wait is None else self.start + self.wait - self.now

    @property
    def over(self) -> bool:
        return self.wait is not None and self.start + self.wait <= self.now

    @property
    def elapsed(self) -> float:
        return self.now - self.start

    @property
    def reach(self) -> float:
        """How long to try to get an answer at all."""
        if self.wait is None or self.settling:
            return self.timeout
        return max(0.0, min(self.timeout, self.start + self.wait - self.now))

    def within(self, seconds: float) -> float:
        """Return so many seconds, or those that are left if they are fewer."""
        return seconds if self.wait is None else max(0.0, min(seconds, self.left or 0.0))
