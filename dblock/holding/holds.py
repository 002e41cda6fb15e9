"""One granted lock, as this process knows it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..beliefs import Belief, Change
from ..errors import LockLost
from ..io.process_lock import lock

if TYPE_CHECKING:
    from ..io.driver import OwnTransaction
    from ..io.runtime import Event, Runtime


@dataclass(slots=True, eq=False, weakref_slot=True)
class Hold:
    """One granted lock: a row lock in a transaction of dblock's own, or a lease."""

    name: str
    runtime: Runtime
    since: float
    transaction: OwnTransaction | None = None
    count: int = 1
    #: What its caller holds.
    caller: object = None
    pid: int = field(default_factory=os.getpid)
    loss: LockLost | None = None
    ended: bool = False
    _lost: Event | None = None

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child looking at its parent's hold."""
        return self.pid != os.getpid()

    @property
    def alive(self) -> bool:
        """Whether it is held as far as this process can tell without asking."""
        return not self.ended and not self.inherited and self.loss is None

    @property
    def fence(self) -> int | None:
        """The fence it was granted with; a row lock has none."""
        return None

    @property
    def lost(self) -> Event:
        """The event that is set with the loss. Made when somebody asks for it."""
        with lock:
            if self._lost is None:
                self._lost = self.runtime.event()
                if self.loss is not None:
                    self._lost.set()
            return self._lost

    def lose(self, loss: LockLost) -> bool:
        """Take note of the loss; False when it was known already, and that one counts."""
        with lock:
            first = self.loss is None
            if first:
                self.loss = loss
            # After it, for whoever is told to find it; again, where that was interrupted before.
            if self._lost is not None:
                self._lost.set()
            if first and not self.ended:
                self.tell(Change.LOST)
            return first

    @property
    def belief(self) -> Belief:
        """What its holder believes."""
        return Belief("row", self.name)

    def tell(self, change: Change) -> None:
        """Tell whoever observes what is believed, if anybody does."""
        if self.runtime.observer is not None:
            self.runtime.observer(self.belief, change)
