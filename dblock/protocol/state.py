"""What the lock table says of a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


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
        return f"{self.owner} for {self.waited:.1f} s ({self.strategy})"


@dataclass(frozen=True, slots=True)
class LockState:
    """A name's row in the lock table at one moment.

    ``remaining`` is in seconds by the database's clock; not above 0 when the lease has expired,
    None when there is none. A row lock leaves no trace here: the database alone knows of it.
    The token proves ownership, so it is not shown. ``waiters`` are those who have waited for a
    moment already, in the order in which they began; only :meth:`Locks.show` and
    :meth:`Locks.list` tell of them.
    """

    name: str
    fence: int
    owner: str | None = None
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    remaining: float | None = None
    token: str | None = field(default=None, repr=False)
    waiters: tuple[WaiterState, ...] = ()

    @property
    def held(self) -> bool:
        """Whether an unexpired lease was on the name."""
        return self.token is not None and self.remaining is not None and self.remaining > 0

    def describe(self) -> str:
        """Say who holds it and until when, in one line for people."""
        if not self.held or self.remaining is None:
            return "free"
        since = f" since {self.acquired_at:%Y-%m-%d %H:%M:%S} UTC" if self.acquired_at else ""
        return (
            f"held by {self.owner or 'an unnamed holder'}{since}, expires in {self.remaining:.1f} s"
        )


class Place(NamedTuple):
    """Where a ticket stands in a name's queue: None if not at all, else how many are before it.

    ``free`` says that it may take the name now.
    """

    before: int | None
    free: bool


class Renewal(NamedTuple):
    """One hold whose expiry is to be moved to ``ttl`` seconds from now."""

    name: str
    token: str
    ttl: float


@dataclass(frozen=True, slots=True)
class Witness:
    """What vouches that the lock table knows every lease there is, and for which of them.

    All fences of the present ``epoch`` are above it; ``cause`` is what ended the one before,
    ``"crash"`` or ``"failover"``. ``pause`` is for how many seconds nothing may be granted yet,
    by the database's clock; not above 0 when it may. No TTL above ``longest_ttl`` was granted.
    """

    epoch: int
    cause: str | None
    pause: float
    longest_ttl: float


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease as the granting statement reported it; ``remaining`` by the database's clock."""

    fence: int
    remaining: float
