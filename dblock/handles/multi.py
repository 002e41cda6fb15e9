"""Several locks at once: in one order, all or nothing, under one deadline."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..arguments import Seconds
from ..errors import DBLockError, LockLost, NotAcquired, Unsupported
from .base import Handle
from .held import AcquirableLease
from .row import RowLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..holding.database import Database


class MultiLock(Handle):
    """Several locks that you take as one, made by :meth:`Locks.all` and
    :meth:`Quorum.all`.

    dblock takes them in the order of their names, so that no two callers wait for each other, and
    releases them in reverse. If one is refused, dblock releases the locks that it has already
    taken. Row locks in your own transaction stay until that transaction ends.
    """

    def __init__(
        self, locks: Sequence[AcquirableLease | RowLock], wait: Seconds | None, database: Database
    ) -> None:
        super().__init__(wait, database)
        for lock in locks:
            if not isinstance(lock, AcquirableLease | RowLock):
                raise TypeError(f"all() takes leases and row locks, not {type(lock).__name__}")
        names = [lock.name for lock in locks]
        if not names:
            raise ValueError("all() needs at least one lock")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is given twice: it would wait for itself")
        rows = [lock for lock in locks if isinstance(lock, RowLock)]
        if len(names) > 1 and any(row._excludes_all for row in rows):
            raise Unsupported(
                "on this database a row lock locks everything, so you cannot take it together "
                "with other locks; take one row lock, or leases"
            )
        self.locks = tuple(sorted(locks, key=lambda lock: lock.name))

    def __repr__(self) -> str:
        return f"<MultiLock {', '.join(repr(lock.name) for lock in self.locks)}>"

    def _acquire(self, wait: float | None) -> NotAcquired | None:
        """Take all the locks, waiting up to ``wait`` seconds for them together, or none.

        The single locks' own ``wait`` does not count here.
        """
        deadline = None if wait is None else self._database.runtime.now() + wait
        while True:
            refusal = self._take_all(deadline)
            try:
                if refusal is not None or self._last():
                    return refusal
            except BaseException:
                with contextlib.suppress(DBLockError):
                    self.release()
                raise
            # A lease expired during the wait for the other locks. The caller gets all or none, so
            # release all and try again.
            with contextlib.suppress(DBLockError):
                self.release()

    def _take_all(self, deadline: float | None) -> NotAcquired | None:
        with contextlib.ExitStack() as undo:
            for lock in self.locks:
                now = self._database.runtime.now()
                left = None if deadline is None else max(0.0, deadline - now)
                refusal = lock._acquire(left)
                if refusal is not None:
                    return refusal
                undo.callback(_let_go, lock)
            undo.pop_all()
        return None

    def _last(self) -> bool:
        """Renew the leases that waited for the others; return whether all are held now."""
        try:
            for lock in self.locks:
                if isinstance(lock, AcquirableLease) and _overdue(lock):
                    lock.renew()
        except LockLost:
            return False
        return self.held

    def release(self) -> None:
        """Release all the locks, in reverse. If one fails, dblock still tries the others."""
        with contextlib.ExitStack() as stack:
            for lock in self.locks:
                stack.callback(lock._leave)

    @property
    def held(self) -> bool:
        """Whether you hold every one of the locks."""
        return all(lock.held for lock in self.locks)


def _overdue(lease: AcquirableLease) -> bool:
    return lease.ttl - lease.margin - lease.remaining > lease.renew_every


def _let_go(lock: AcquirableLease | RowLock) -> None:
    """Release one lock because another was refused; its own loss does not matter any more."""
    with contextlib.suppress(LockLost):
        lock._leave()
