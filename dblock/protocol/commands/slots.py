"""The slots of a semaphore."""

from __future__ import annotations

from ..state import Granted, Slots
from .command import Command, Duration, Name


class GrantSlot(Command[Granted | None]):
    """Take any free slot that has a row, as :class:`.Grant` takes a name; write nothing if no slot
    is free.

    The statement refuses if the stored limit differs from ``limit``. It also refuses if another
    token than ``turnstile`` holds the semaphore's turnstile, or waiters are there. It tries the
    slots in order, from slot ``first + 1`` on, so that callers that begin at different slots do not
    block each other.

    With ``known`` it tries slot ``first + 1`` alone: this process got that slot at its first try
    before, so the slot is likely to be free. This is faster. It may refuse a slot with a queue, and
    fail as busy.
    """

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
