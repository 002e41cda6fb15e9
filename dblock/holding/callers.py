"""Who would wait for itself: what each thread, or task, of this process holds."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ..errors import DeadlockDetected, NotAcquired
from .holds import CallerHolds

if TYPE_CHECKING:
    from ..io.borrowed import Root
    from .holds import Hold


class CallerRegistry(ABC):
    """What the caller holds, so that it does not wait for itself."""

    #: A caller's name for people.
    caller: ClassVar[str]

    @abstractmethod
    def mine(self) -> CallerHolds:
        """Return those of the caller."""

    def find(self, name: str) -> Hold | None:
        """Return the live hold that the caller has on a name, through any handle."""
        return self.mine().find(name)

    def held(self) -> dict[str, int | None]:
        """Return the names that the caller holds, with the fences of those that are leases."""
        mine = self.mine()
        found: dict[str, int | None] = {}
        for root, names in list(mine.borrowed.items()):
            if root.is_active:
                found |= dict.fromkeys(names)
        found |= {hold.name: hold.fence for hold in mine.all()}
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
        mine = self.mine()
        held = mine.find(name)
        if held is not None or mine.has_row(within, None if one_writer else name):
            if wait == 0:
                return NotAcquired(f"{name!r} is held up by this {self.caller} itself", name=name)
            what = (
                f"this {self.caller} holds a row lock, which locks everything on this database, "
                f"so it would wait for itself to get {name!r}; take leases before row locks"
                if held is None and one_writer
                else f"this {self.caller} holds {name!r} already and would wait for itself; "
                "release it first, or share one lease made with reentrant=True"
            )
            raise DeadlockDetected(what, name=name)
        return None

    def refuse_as_writer(self, name: str, doing: str) -> None:
        """Raise DeadlockDetected if the caller itself keeps every writer out of the database."""
        if self.has_row(None, None):
            raise DeadlockDetected(
                f"a transaction of this {self.caller} has a row lock or a guard in it and is the "
                f"one writer of this database, so {name!r} cannot be {doing}; end that transaction "
                "first",
                name=name,
            )

    def has_row(self, within: object, name: str | None) -> bool:
        """Whether the caller has the row of ``name`` locked, or any row if that is None."""
        return self.mine().has_row(within, name)


class ThreadHolds(threading.local, CallerRegistry):
    """Those of a thread."""

    caller = "thread"

    def __init__(self) -> None:
        self._mine = CallerHolds()

    def mine(self) -> CallerHolds:
        return self._mine
