"""Several locks at once: in one order, all or nothing, under one deadline."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import TYPE_CHECKING

from .arguments import Seconds, check_acquire, check_wait
from .errors import DBLockError, NotAcquired
from .lease import Lease
from .row import RowLock

if TYPE_CHECKING:
    from collections.abc import Sequence


class Together:
    """Locks taken as one, made by :meth:`Locks.all`.

    They are taken in the order of their names, so that no two callers wait for each other, and
    given back in reverse. When one is refused those before it are given back; row locks in a
    transaction of the user's stay until that ends.
    """

    def __init__(self, locks: Sequence[Lease | RowLock], wait: Seconds | None) -> None:
        for lock in locks:
            if not isinstance(lock, Lease | RowLock):
                raise TypeError(f"all() takes leases and row locks, not {type(lock).__name__}")
        names = [lock.name for lock in locks]
        if not names:
            raise ValueError("all() needs at least one lock")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is given twice: it would wait for itself")
        self.locks = tuple(sorted(locks, key=lambda lock: lock.name))
        self.wait = check_wait(wait)

    def __repr__(self) -> str:
        return f"<Together {', '.join(repr(lock.name) for lock in self.locks)}>"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take all the locks; True when all are held now, False when none is.

        ``timeout`` bounds all of them together; -1 means the ``wait`` given to ``all``. The
        single locks' own ``wait`` does not count here.
        """
        return self._acquire(check_acquire(blocking, timeout, self.wait)) is None

    def _acquire(self, wait: float | None) -> NotAcquired | None:
        deadline = None if wait is None else time.monotonic() + wait
        with contextlib.ExitStack() as undo:
            for lock in self.locks:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                refusal = lock._acquire(left)
                if refusal is not None:
                    return refusal
                undo.callback(_release, lock)
            undo.pop_all()
        return None

    def release(self) -> None:
        """Give all the locks back, in reverse. Every one is tried; the first error is raised."""
        with contextlib.ExitStack() as stack:
            for lock in self.locks:
                stack.callback(_release, lock)

    @property
    def held(self) -> bool:
        """Whether every one of the locks is held."""
        return all(lock.held for lock in self.locks)

    def __enter__(self) -> Together:
        refusal = self._acquire(self.wait)
        if refusal is not None:
            raise refusal
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except DBLockError as trouble:
            if error is None:
                raise
            error.add_note(f"{type(trouble).__name__} at the end of the locks: {trouble}")


def _release(lock: Lease | RowLock) -> None:
    if not (isinstance(lock, RowLock) and lock.borrowed):
        lock.release()
