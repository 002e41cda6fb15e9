"""Who would wait for itself: what each thread, or task, of this process holds."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ..errors import DeadlockDetected, NotAcquired

if TYPE_CHECKING:
    from ..io.borrowed import Root
    from .holds import Hold


class CallerHolds:
    """The holds of one caller, only weakly: a handle that is dropped takes its holds along, and a
    transaction its row locks."""

    def __init__(self) -> None:
        self.own: weakref.WeakValueDictionary[str, Hold] = weakref.WeakValueDictionary()
        self.rows: weakref.WeakSet[Hold] = weakref.WeakSet()  # those in transactions of dblock's
        self.borrowed: weakref.WeakKeyDictionary[Root, set[str]] = weakref.WeakKeyDictionary()


class CallerRegistry(ABC):
    """What the caller holds, so that it does not wait for itself."""

    #: A caller's name for people.
    caller: ClassVar[str]

    @abstractmethod
    def mine(self) -> CallerHolds:
        """Return those of the caller."""

    def find(self, name: str) -> Hold | None:
        """Return the live hold that the caller has on a name, through any handle."""
        hold = self.mine().own.get(name)
        return hold if hold is not None and hold.alive else None

    def held(self) -> dict[str, int | None]:
        """Return the names that the caller holds, with the fences of those that are leases."""
        mine = self.mine()
        found: dict[str, int | None] = {}
        for root, names in list(mine.borrowed.items()):
            if root.is_active:
                found |= dict.fromkeys(names)
        found |= {hold.name: hold.fence for hold in list(mine.own.values()) if hold.alive}
        return found

    def add_borrowed(self, root: Root, name: str) -> None:
        self.mine().borrowed.setdefault(root, set()).add(name)

    def refuse_self_wait(
        self, name: str, wait: float | None, *, one_writer: bool, within: object = None
    ) -> NotAcquired | None:
        """Return the refusal if the caller has the name itself and does not want to wait.

        Raises DeadlockDetected if it wants to. ``one_writer`` tells that a row lock keeps every
        other lock statement out; ``within`` is the transaction that the lock is wanted in.
        """
        if self.find(name) is not None or self.has_row(within, None if one_writer else name):
            if wait == 0:
                return NotAcquired(f"{name!r} is held up by this very {self.caller}", name=name)
            what = (
                f"this {self.caller} holds a row lock, which on this database is the lock of "
                f"everything, so it would wait for itself to get {name!r}; take leases before "
                "row locks"
                if self.find(name) is None and one_writer
                else f"this {self.caller} holds {name!r} already and would wait for itself; "
                "release it first, or share one lease made with reentrant=True"
            )
            raise DeadlockDetected(what, name=name)
        return None

    def refuse_as_writer(self, name: str, doing: str) -> None:
        """Raise DeadlockDetected if the caller itself keeps every writer out of the database."""
        if self.has_row(None, None):
            raise DeadlockDetected(
                f"{name!r} cannot be {doing} while a transaction of this {self.caller}, with a row "
                "lock or a guard in it, is the one writer of this database; end that first",
                name=name,
            )

    def has_row(self, within: object, name: str | None) -> bool:
        """Whether the caller has the row of ``name`` locked, or any row if that is None."""
        mine = self.mine()
        # Asked each time a lease is taken, and mostly there is none of either.
        if name is None and mine.rows and any(hold.alive for hold in mine.rows):
            return True
        return bool(mine.borrowed) and any(
            root.is_active and root is not within and (name is None or name in names)
            for root, names in mine.borrowed.items()
        )


class ThreadHolds(threading.local, CallerRegistry):
    """Those of a thread."""

    caller = "thread"

    def __init__(self) -> None:
        self._mine = CallerHolds()

    def mine(self) -> CallerHolds:
        return self._mine
