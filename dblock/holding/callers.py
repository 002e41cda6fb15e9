"""The holds of each caller, a thread or a task, so that it does not wait for itself."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ..errors import DeadlockDetected, NotAcquired
from ..protocol.tokens import STRATEGY
from .holds import CallerHolds

if TYPE_CHECKING:
    from ..io.borrowed import Root
    from .holds import Hold


class CallerRegistry(ABC):
    """Finds the holds of the current caller, and refuses a wait for one of them."""

    #: The word for a caller in messages.
    caller: ClassVar[str]

    @abstractmethod
    def mine(self) -> CallerHolds:
        """Return the caller's holds."""

    def find(self, name: str) -> Hold | None:
        """Return the live hold that the caller has on a name, through any handle."""
        return self.mine().find(name)

    def held(self) -> dict[str, int | None]:
        """Return the names that the caller holds, with the fence of each lease."""
        return self.mine().held()

    def add_borrowed(self, root: Root, name: str) -> None:
        self.mine().add_borrowed(root, name)

    def refuse_self_wait(
        self,
        name: str,
        wait: float | None,
        *,
        one_writer: bool,
        within: object = None,
        shares: bool = False,
    ) -> NotAcquired | None:
        """Return the refusal if the caller holds the name itself and does not want to wait.

        Raises DeadlockDetected if it wants to wait. ``one_writer`` means that a row lock blocks
        every other lock statement; ``within`` is the transaction that the lock is to be in;
        ``shares`` means that the caller wants a shared lease.
        """
        mine = self.mine()
        held = mine.find(name)
        if held is None and not (
            mine.has_rows and mine.has_row(within, None if one_writer else name)
        ):
            return None
        shared = held is not None and held.strategy == STRATEGY
        if shared and not shares:
            what = (
                f"this {self.caller} shares {name!r} already, and a shared lease does not become "
                "an exclusive one: it would wait for its own share. Release that first"
            )
        elif wait == 0:
            what = f"{name!r} is held up by this {self.caller} itself"
        elif held is None and one_writer:
            what = (
                f"this {self.caller} holds a row lock, which locks everything on this database, "
                f"so it would wait for itself to get {name!r}; take leases before row locks"
            )
        elif shares and not shared:
            what = (
                f"this {self.caller} holds {name!r} already, and what it holds for itself does not "
                "become a shared lease: it would wait for itself. Release it first"
            )
        else:
            what = (
                f"this {self.caller} holds {name!r} already and would wait for itself; "
                "release it first, or share one lease made with reentrant=True"
            )
        if wait == 0:
            return NotAcquired(what, name=name)
        raise DeadlockDetected(what, name=name)

    def refuse_as_writer(self, name: str, doing: str) -> None:
        """Raise DeadlockDetected if the caller's own row lock blocks every writer."""
        if self.has_row(None, None):
            raise DeadlockDetected(
                f"a transaction of this {self.caller} has a row lock or a guard in it and is the "
                f"one writer of this database, so {name!r} cannot be {doing}; end that transaction "
                "first",
                name=name,
            )

    def has_row(self, within: object, name: str | None) -> bool:
        """Whether the caller has the row of ``name`` locked, or any row if ``name`` is None."""
        return self.mine().has_row(within, name)


class ThreadHolds(threading.local, CallerRegistry):
    """The holds of the current thread."""

    caller = "thread"

    def __init__(self) -> None:
        self._mine = CallerHolds()

    def mine(self) -> CallerHolds:
        return self._mine
