"""The process-wide lock: for what the keeper and the users' threads both change."""

from __future__ import annotations

import sys
import threading

from ..system.platform import at_fork

#: Never held for long. Reentrant, since a garbage collection, and with it anybody's code, can come
#: anywhere. Nobody else has it while the process forks.
lock = threading.RLock()
#: Notified when a renewal has ended.
settled = threading.Condition(lock)

#: Whether the interpreter ends. Daemon threads have stopped for good then, wherever they were.
at_the_end = sys.is_finalizing


def take_over() -> None:
    """Have the lock free :func:`at_the_end`, when a thread was stopped that had it.

    The thread that runs finalizers is then the only one that goes on.
    """
    if lock.acquire(blocking=False):
        lock.release()
    else:  # as in a forked child, where the other threads are gone as well
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # not in the types


at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
