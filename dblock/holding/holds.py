"""Granted locks, as this process knows them: one hold, and all holds of a caller."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import LockLost
from ..io.process_lock import lock, settled
from ..protocol.observer import Belief, Change

if TYPE_CHECKING:
    from ..io.borrowed import Root
    from ..io.driver import OwnTransaction
    from ..io.runtime import Event, Runtime


@dataclass(slots=True, eq=False, weakref_slot=True)
class Hold:
    """One granted lock: a :class:`RowHold`, or a :class:`.LeaseHold`."""

    name: str
    runtime: Runtime
    since: float
    count: int = 1
    #: All holds of its caller.
    caller: CallerHolds | None = None
    pid: int = field(default_factory=os.getpid)
    loss: LockLost | None = None
    ended: bool = False
    #: Whether a renewal is under way, the keeper's or the holder's own; or a row lock's check.
    renewing: bool = False
    _lost: Event | None = None

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child, and the hold its parent's."""
        return self.pid != os.getpid()

    @property
    def alive(self) -> bool:
        """Whether this process believes that it is held, without asking the database."""
        return not self.ended and not self.inherited and self.loss is None

    @property
    def strategy(self) -> str:
        """The strategy by which it is held."""
        raise NotImplementedError

    @property
    def fence(self) -> int | None:
        """The fence it was granted with; a row lock has none."""
        return None

    @property
    def lost(self) -> Event:
        """The event that the loss sets. Made at the first access."""
        with lock:
            if self._lost is None:
                self._lost = self.runtime.event()
                if self.loss is not None:
                    self._lost.set()
            return self._lost

    def lose(self, loss: LockLost) -> bool:
        """Record the loss; False if one was recorded before, which stays."""
        with lock:
            first = self.loss is None
            if first:
                self.loss = loss
            # Set the event after the loss, so that a waiter which it wakes finds the loss. Set it
            # at a second loss too: an interruption may have come before the first `set`.
            if self._lost is not None:
                self._lost.set()
            if first and not self.ended:
                self.tell(Change.LOST)
            return first

    @contextlib.contextmanager
    def renewed_here(self, patience: float) -> Iterator[None]:
        """Wait for a renewal that is under way, for ``patience`` seconds at most; then keep other
        renewals of this hold out during the block."""
        with self.runtime.settled(lambda: not self.renewing, patience):
            self.renewing = True
        try:
            yield
        finally:
            with lock:
                self.renewing = False
                settled.notify_all()

    @property
    def belief(self) -> Belief:
        """The holder's belief that it holds this."""
        return Belief(self.strategy, self.name)

    def tell(self, change: Change) -> None:
        """Report a change to the observer, if there is one. A frequent caller checks for one first,
        to save the call."""
        if self.runtime.observer is not None:
            self.runtime.observer(self.belief, change)


@dataclass(slots=True, eq=False, kw_only=True)
class RowHold(Hold):
    """A row lock in one of dblock's own transactions."""

    transaction: OwnTransaction

    @property
    def strategy(self) -> str:
        return "row"


class CallerHolds:
    """The holds of one caller, as weak references: they end with their handle, and the row locks
    with their transaction."""

    #: The number of references at which dead ones are removed.
    room = 64
    #: Whether the caller has ever locked a row: usually it has not, and there is nothing to search.
    has_rows = False

    def __init__(self) -> None:
        # Only the caller itself writes here, so a hold that ends in another thread cannot remove
        # the caller's new hold on the same name.
        self._own: dict[str, weakref.ref[Hold]] = {}
        self.rows: weakref.WeakSet[RowHold] = weakref.WeakSet()
        #: The names locked in each of the user's own transactions. Made with the first one.
        self._borrowed: weakref.WeakKeyDictionary[Root, set[str]] | None = None

    def add(self, hold: Hold) -> None:
        """Register one of this caller's holds."""
        if len(self._own) >= self.room:
            there = [(name, known) for name, known in self._own.items() if known() is not None]
            self._own, self.room = dict(there), max(self.room, 2 * len(there))
        self._own[hold.name] = weakref.ref(hold)
        if isinstance(hold, RowHold):
            self.has_rows = True
            self.rows.add(hold)

    def add_borrowed(self, root: Root, name: str) -> bool:
        """Register a name locked in a user's transaction; return whether it is new there."""
        self.has_rows = True
        if self._borrowed is None:
            self._borrowed = weakref.WeakKeyDictionary()
        names = self._borrowed.setdefault(root, set())
        new = name not in names
        names.add(name)
        return new

    def forget_borrowed(self, name: str, root: Root) -> None:
        """Note that a name is not locked in a user's transaction any more."""
        if self._borrowed is not None:
            self._borrowed.get(root, set()).discard(name)

    def has_borrowed(self, root: Root, name: str) -> bool:
        """Whether a name is locked in a user's transaction."""
        return self._borrowed is not None and name in self._borrowed.get(root, ())

    def borrowed(self) -> list[tuple[Root, set[str]]]:
        """Return the user's transactions that are active, with the names locked in each."""
        if self._borrowed is None:
            return []
        return [(root, names) for root, names in list(self._borrowed.items()) if root.is_active]

    def find(self, name: str) -> Hold | None:
        """Return the live hold on a name."""
        reference = self._own.get(name)
        hold = None if reference is None else reference()
        return hold if hold is not None and hold.alive else None

    def all(self) -> list[Hold]:
        """Return the live holds."""
        found = [reference() for reference in list(self._own.values())]
        return [hold for hold in found if hold is not None and hold.alive]

    def held(self) -> dict[str, int | None]:
        """Return the names of the live holds, with the fence of each lease."""
        found: dict[str, int | None] = {}
        if self._borrowed is not None:
            for _, names in self.borrowed():
                found |= dict.fromkeys(names)
        for reference in list(self._own.values()):
            hold = reference()
            if hold is not None and hold.alive:
                found[hold.name] = hold.fence
        return found

    def has_row(self, within: object, name: str | None) -> bool:
        """Whether the row of ``name`` is locked, or any row if ``name`` is None; not counting the
        user's transaction ``within``."""
        if name is None and self.rows and any(hold.alive for hold in self.rows):
            return True
        return bool(self._borrowed) and any(
            root is not within and (name is None or name in names)
            for root, names in self.borrowed()
        )
