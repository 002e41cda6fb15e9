"""What happens to locks, told to the log and to whoever listens.

Logger ``dblock.events``: losses and unknown outcomes as errors, danger as a warning, refusals and
conflicts as INFO, the rest as DEBUG. Without logging set up nothing is printed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from .errors import Conflict, DBLockError, DeadlockDetected, NotAcquired, OutcomeUnknown
from .printable import printable

__all__ = ["Kind", "LockEvent", "listen"]

logger = logging.getLogger("dblock.events")
logger.addHandler(logging.NullHandler())


class Kind(StrEnum):
    """What happened; and what the seconds of the event are."""

    #: How an attempt to acquire ended, and how long it took.
    ACQUIRED = "acquired"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FAILED = "failed"
    #: Another transaction came first, or a deadlock was broken: it is to be run again.
    CONFLICT = "conflict"
    #: A renewal was good, so long after it was due.
    RENEWED = "renewed"
    #: One failed, so long after it was due, and is tried again.
    MISSED = "missed"
    #: It was not renewed in time, and the holder may act for so long.
    ENDANGERED = "endangered"
    #: How a hold ended, and how long it was.
    LOST = "lost"
    RELEASED = "released"


_LEVELS = {
    Kind.REFUSED: logging.INFO,
    Kind.UNKNOWN: logging.ERROR,
    Kind.CONFLICT: logging.INFO,
    Kind.MISSED: logging.INFO,
    Kind.ENDANGERED: logging.WARNING,
    Kind.LOST: logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class LockEvent:
    """Something that happened to a lock.

    ``strategy`` is "lease", "row" or "optimistic"; ``name`` is the lock's, or what met a conflict.
    """

    kind: Kind
    strategy: str
    name: str
    seconds: float
    error: Exception | None = None

    def __str__(self) -> str:
        why = "" if self.error is None else f": {self.error}"
        return printable(f"{self.kind} {self.strategy} {self.name!r} ({self.seconds:.3f} s){why}")


Hook = Callable[[LockEvent], object]
_hooks: list[Hook] = []


def listen(hook: Hook) -> Callable[[], None]:
    """Have a function called with every :class:`LockEvent` of this process from now on.

    Return what ends that. It is called where the event happens, in a thread of dblock's for what
    its keeper finds out, so it had better not wait. What it raises is logged.
    """
    _hooks.append(hook)

    def end() -> None:
        if hook in _hooks:
            _hooks.remove(hook)

    return end


def wanted(kind: Kind) -> bool:
    """Whether anybody is to be told."""
    return bool(_hooks) or logger.isEnabledFor(_LEVELS.get(kind, logging.DEBUG))


def tell(
    kind: Kind, strategy: str, name: str, seconds: float, error: Exception | None = None
) -> None:
    """Log an event and call the hooks."""
    if not wanted(kind):
        return
    event = LockEvent(kind, strategy, name, seconds, error)
    logger.log(_LEVELS.get(kind, logging.DEBUG), "%s", event)
    for hook in tuple(_hooks):
        try:
            hook(event)
        except Exception:
            logger.exception("a hook failed")


def outcome(error: DBLockError) -> Kind:
    """Return what an attempt to acquire that raised an error came to."""
    if isinstance(error, NotAcquired):
        return Kind.REFUSED
    if isinstance(error, OutcomeUnknown):
        return Kind.UNKNOWN
    return Kind.CONFLICT if isinstance(error, Conflict | DeadlockDetected) else Kind.FAILED
