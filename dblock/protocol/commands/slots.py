"""The slots of a semaphore."""

from __future__ import annotations

from ..state import Granted, Slots
from .command import Command, Duration, Name


class GrantSlot(Command[Granted | None]):
    """Take any free slot of a semaphore, unless the stored limit differs or another token than
    ``turnstile`` holds the turnstile or waits for it. The slots are tried from slot ``first + 1``
    on. With ``known`` that slot alone is tried: this process got it at its first try before, so it
    is likely to be free."""

    name: Name
    limit: int
    token: str
    owner: str
    ttl: Duration
    turnstile: str
    first: int
    known: bool = False


class LookAtSlots(Command[Slots]):
    """Read the limit of a semaphore, and the rows of its turnstile and of ``limit`` slots."""

    name: Name
    limit: int


class SetLimit(Command[int]):
    """Write the limit of a semaphore. Unless ``anew``, keep the limit that is stored already."""

    name: Name
    limit: int
    anew: bool
