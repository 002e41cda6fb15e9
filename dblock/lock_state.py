"""What anybody may be told of a name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from .printable import printable


class WaiterState(NamedTuple):
    """One who waits for a name; ``waited`` is in seconds by the database's clock.

    Of a process's threads or tasks that wait for one name and hold nothing one is here.
    """

    owner: str
    strategy: str
    since: datetime
    waited: float

    def describe(self) -> str:
        """Say who waits, for what and how long by now, in one line for people."""
        return printable(f"{self.owner} for {self.waited:.1f} s ({self.strategy})")


@dataclass(frozen=True, slots=True)
class LockState:
    """A name's row in the lock table at one moment.

    ``remaining`` is in seconds by the database's clock; not above 0 when the lease has expired,
    None when there is none: the owner and the moments are then those of the last one. A row lock
    leaves no trace here: the database alone knows of it. ``waiters`` are those who have waited for
    a moment already, in the order in which they began; only :meth:`Locks.show` and
    :meth:`Locks.list` tell of them.

    There is no token in it: that proves ownership, so nobody but the holder is given it.
    """

    name: str
    fence: int
    owner: str | None = None
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    remaining: float | None = None
    waiters: tuple[WaiterState, ...] = ()

    @property
    def held(self) -> bool:
        """Whether an unexpired lease was on the name."""
        return self.remaining is not None and self.remaining > 0

    def describe(self) -> str:
        """Say who holds it and until when, in one line for people."""
        if not self.held or self.remaining is None:
            return "free"
        since = f" since {self.acquired_at:%Y-%m-%d %H:%M:%S} UTC" if self.acquired_at else ""
        holder = printable(self.owner or "an unnamed holder")
        return f"held by {holder}{since}, expires in {self.remaining:.1f} s"
