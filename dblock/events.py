"""Events of locks: dblock logs each event, and calls the functions that listen.

The logger is ``dblock.events``. Losses and unknown outcomes are errors, danger is a warning,
refusals, missed renewals and conflicts are INFO, the rest is DEBUG. A handle that is refused again
for the same hold logs that as DEBUG. If you have not set up logging, Python prints nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from .errors import Conflict, DBLockError, DeadlockDetected, NotAcquired, OutcomeUnknown
from .lock_state import printable

__all__ = ["Kind", "LockEvent", "listen"]

logger = logging.getLogger("dblock.events")
logger.addHandler(logging.NullHandler())


class Kind(StrEnum):
    """The kind of an event, and the meaning of its seconds."""

    #: How an attempt to acquire ended. Seconds: how long it took.
    ACQUIRED = "acquired"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FAILED = "failed"
    #: Another transaction came first, or a deadlock was broken: the work has to be run again.
    #: Seconds: since the first try began.
    CONFLICT = "conflict"
    #: dblock renewed a lease. Seconds: how long after the renewal was due.
    RENEWED = "renewed"
    #: A renewal failed, and dblock tries again. Seconds: how long after it was due.
    MISSED = "missed"
    #: dblock did not renew a lease in time. Seconds: for how long the holder may still act.
    ENDANGERED = "endangered"
    #: How a hold ended. Seconds: how long it lasted.
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
    """An event of a lock.

    ``strategy`` is "lease", "shared", "row" or "optimistic". ``name`` is the lock's name, or names
    the work that met a conflict. The meaning of ``seconds`` depends on the ``kind``. ``error`` is
    the error behind the event, or None.
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
    """Call a function with every :class:`LockEvent` of this process from now on.

    Return a function that stops the calls. dblock calls ``hook`` in the thread in which the event
    happens, which is one of dblock's own threads for the keeper's events. So ``hook`` should not
    block. dblock logs its exceptions.
    """
    _hooks.append(hook)

    def end() -> None:
        if hook in _hooks:
            _hooks.remove(hook)

    return end


def wanted(kind: Kind) -> bool:
    """Whether the log or a hook wants events of this kind."""
    return bool(_hooks) or logger.isEnabledFor(_LEVELS.get(kind, logging.DEBUG))


def tell(
    kind: Kind,
    strategy: str,
    name: str,
    seconds: float,
    error: Exception | None = None,
    *,
    again: bool = False,
) -> None:
    """Log an event and call the hooks. If it is the same ``again``, the log has it as DEBUG."""
    if not wanted(kind):
        return
    event = LockEvent(kind, strategy, name, seconds, error)
    level = logging.DEBUG if again else _LEVELS.get(kind, logging.DEBUG)
    logger.log(level, "%s", event)
    for hook in tuple(_hooks):
        try:
            hook(event)
        except Exception:
            logger.exception("a hook failed")


def outcome(error: DBLockError) -> Kind:
    """Return the kind of event for an error of an attempt to acquire."""
    if isinstance(error, NotAcquired):
        return Kind.REFUSED
    if isinstance(error, OutcomeUnknown):
        return Kind.UNKNOWN
    return Kind.CONFLICT if isinstance(error, Conflict | DeadlockDetected) else Kind.FAILED
