"""How long one call waits for a lock, and how long it tries to reach the database meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Deadline:
    """The time limits of one call, in seconds of its process's monotonic clock.

    The call waits for the lock up to ``wait`` seconds from ``start``; None for ever. ``timeout``
    bounds how long it retries to reach the database, and how long it settles a lost reply. ``now``
    is the time of the last reply.
    """

    start: float
    wait: float | None
    timeout: float
    now: float
    #: While the call settles a lost reply, ``wait`` does not apply.
    settling: bool = False

    @property
    def left(self) -> float | None:
        """The seconds until the wait is over, negative afterwards; None for an endless wait."""
        return None if self.wait is None else self.start + self.wait - self.now

    @property
    def over(self) -> bool:
        return self.wait is not None and self.start + self.wait <= self.now

    @property
    def elapsed(self) -> float:
        return self.now - self.start

    @property
    def reach(self) -> float:
        """Seconds to retry until the database answers."""
        if self.wait is None or self.settling:
            return self.timeout
        return max(0.0, min(self.timeout, self.start + self.wait - self.now))

    def within(self, seconds: float) -> float:
        """Return ``seconds``, or the seconds that are left if they are fewer."""
        return seconds if self.wait is None else max(0.0, min(seconds, self.left or 0.0))
