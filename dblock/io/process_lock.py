"""The process-wide lock, for state that both the keeper and the users' threads change."""

from __future__ import annotations

import sys
import threading

from ..system.platform import at_fork

#: It is never held for long. It is reentrant, since a garbage collection can run at any point, and
#: with it a finalizer that needs the lock. The forking thread has it during a fork.
lock = threading.RLock()
#: Notified when a renewal has ended.
settled = threading.Condition(lock)

#: Whether the interpreter ends. By then daemon threads have stopped for good, at any point.
at_the_end = sys.is_finalizing


def take_over() -> None:
    """Free the lock :func:`at_the_end`, if a thread had it when it was stopped.

    Only the thread that runs finalizers is still running then.
    """
    if lock.acquire(blocking=False):
        lock.release()
    else:  # the same reset as in a forked child, which has no other threads either
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # not in the types


at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
