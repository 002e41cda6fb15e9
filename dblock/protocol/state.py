"""What the lock table says of a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class LockState:
    """A name's row in the lock table at one moment.

    ``remaining`` is in seconds by the database's clock; not above 0 when the lease has expired,
    None when there is none. A row lock leaves no trace here: the database alone knows of it.
    The token proves ownership, so it is not shown.
    """

    name: str
    fence: int
    owner: str | None = None
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    remaining: float | None = None
    token: str | None = field(default=None, repr=False)

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


@dataclass(frozen=True, slots=True)
class RunState:
    """A run of a job, as it is on record.

    ``slot`` is what it was the run of, with ``once_per``; empty without. ``ended_at`` and
    ``exit_status`` are None while it runs, and for ever if nobody was left to record its end.
    """

    name: str
    slot: str
    owner: str | None
    started_at: datetime | None
    ended_at: datetime | None
    exit_status: int | None


class Pruned(NamedTuple):
    """How many records were deleted."""

    keys: int
    runs: int


class Renewal(NamedTuple):
    """One hold whose expiry is to be moved to ``ttl`` seconds from now."""

    name: str
    token: str
    ttl: float


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease as the granting statement reported it; ``remaining`` by the database's clock."""

    fence: int
    remaining: float
