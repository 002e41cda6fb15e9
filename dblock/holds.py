"""What this process holds: who may release it, who would wait for itself, what a fork inherits."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from . import clock
from .errors import DeadlockDetected, LockLost, NotAcquired, NotHeld
from .protocol.leasing import Held
from .protocol.term import Term

if TYPE_CHECKING:
    from .borrowed import Root
    from .database import Database
    from .driver import OwnTransaction
    from .protocol.keeping import Danger, Keeping

#: One lock for what the keeper and the users' threads both change, never held for long. Reentrant,
#: since a garbage collection, and with it anybody's code, can come anywhere. Nobody else has it
#: while the process forks.
lock = threading.RLock()
#: Notified when a renewal has ended.
settled = threading.Condition(lock)
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Hold:
    """One granted lock: a row lock in a transaction of dblock's own, or a lease."""

    name: str
    transaction: OwnTransaction | None = None
    count: int = 1
    thread: int = field(default_factory=threading.get_ident)
    pid: int = field(default_factory=os.getpid)
    loss: LockLost | None = None
    ended: bool = False
    _lost: threading.Event | None = None

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child looking at its parent's hold."""
        return self.pid != os.getpid()

    @property
    def alive(self) -> bool:
        """Whether it is held as far as this process can tell without asking."""
        return not self.ended and not self.inherited and self.loss is None

    @property
    def lost(self) -> threading.Event:
        """The event that is set with the loss. Made when somebody asks for it."""
        with lock:
            if self._lost is None:
                self._lost = threading.Event()
                if self.loss is not None:
                    self._lost.set()
            return self._lost

    def lose(self, loss: LockLost) -> bool:
        """Take note of the loss; False when it was known already, and that one counts."""
        with lock:
            if self.loss is not None:
                return False
            if self._lost is not None:
                self._lost.set()
            self.loss = loss
            return True


@dataclass(slots=True, eq=False, kw_only=True)
class LeaseHold(Hold):
    """A granted lease."""

    lease: Held
    token: str = field(repr=False)
    keeping: Keeping
    database: Database
    on_danger: Callable[[Danger], None] | None = None
    on_lost: Callable[[LockLost], None] | None = None
    #: A renewal is under way, the keeper's or the holder's own.
    renewing: bool = False

    @property
    def alive(self) -> bool:
        return not self.inherited and self.keepable(clock.now())

    def keepable(self, now: float) -> bool:
        """Whether there is a lease to renew: not given back, not lost, not over."""
        return not self.ended and self.loss is None and not self.lease.term.over(now)

    def begin(self, term: Term) -> None:
        """Begin a new term."""
        self.lease = replace(self.lease, term=term)

    def ran_out(self) -> LockLost:
        """Return the loss for when the term is over."""
        return self.keeping.loss(self.name, self.lease.term, asking=self.renewing)

    def end(self, patience: float) -> None:
        """Have it renewed no more, and wait for a renewal that is under way, so long.

        One that lasts longer finds the hold given back, by its token.
        """
        with lock:
            self.ended = True
            if self.renewing:
                settled.wait_for(lambda: not self.renewing, patience)

    @contextlib.contextmanager
    def renewed_here(self, patience: float) -> Iterator[None]:
        """Keep other renewals of this hold out, having waited for one under way, so long."""
        with lock:
            settled.wait_for(lambda: not self.renewing, patience)
            self.renewing = True
        try:
            yield
        finally:
            with lock:
                self.renewing = False
                settled.notify_all()


H = TypeVar("H", bound=Hold)


class HandleHolds(Generic[H]):
    """The holds of one handle. Several, when threads share it and one of them lost its own."""

    __slots__ = ("_holds", "_kind", "_name", "_takers", "last")

    def __init__(self, kind: str, name: str) -> None:
        self._kind = kind
        self._name = name
        self._holds: list[H] = []
        self._takers: tuple[int, ...] = ()
        self.last: H | None = None

    def add(self, hold: H) -> None:
        if hold.thread not in self._takers:
            self._takers += (hold.thread,)
        self._holds.append(hold)
        self.last = hold

    def find(self) -> H | None:
        """Return the calling thread's hold; for a thread that never had one, the newest.

        So that one thread may release what another acquired, as with threading.Lock, and yet a
        thread that releases twice does not release another's.
        """
        thread = threading.get_ident()
        holds = list(self._holds)
        for hold in reversed(holds):
            if hold.thread == thread:
                return hold
        return holds[-1] if holds and thread not in self._takers else None

    def get(self, *, ending: bool = False) -> H:
        """As :meth:`find`. Raises NotHeld when there is none, or it is the parent process's.

        ``ending`` admits a hold whose release was tried and failed, for another try.
        """
        hold = self.find()
        if hold is None or (hold.ended and not ending):
            raise NotHeld(f"the {self._kind} on {self._name!r} is not held", name=self._name)
        if hold.inherited:
            raise NotHeld(
                f"the {self._kind} on {self._name!r} is held by the parent process "
                f"(pid {hold.pid}), not by this fork",
                name=self._name,
            )
        return hold

    def remove(self, hold: H) -> None:
        """Take the hold off, if another thread has not done so."""
        hold.ended = True
        with contextlib.suppress(ValueError):
            self._holds.remove(hold)


class ThreadHolds(threading.local):
    """What the calling thread holds, so that it does not wait for itself.

    Only weakly: a handle that is dropped takes its holds along, and a transaction its row locks.
    """

    def __init__(self) -> None:
        self._own: weakref.WeakValueDictionary[str, Hold] = weakref.WeakValueDictionary()
        self._borrowed: weakref.WeakKeyDictionary[Root, set[str]] = weakref.WeakKeyDictionary()

    def add(self, hold: Hold) -> None:
        self._own[hold.name] = hold

    def find(self, name: str) -> Hold | None:
        """Return the live hold that the thread has on a name, through any handle."""
        hold = self._own.get(name)
        return hold if hold is not None and hold.alive else None

    def add_borrowed(self, root: Root, name: str) -> None:
        self._borrowed.setdefault(root, set()).add(name)

    def refuse_self_wait(
        self, name: str, wait: float | None, *, one_writer: bool, within: object = None
    ) -> NotAcquired | None:
        """Return the refusal if the calling thread has the name itself and does not want to wait.

        Raises DeadlockDetected if it wants to. ``one_writer`` tells that a row lock keeps every
        other lock statement out; ``within`` is the transaction that the lock is wanted in.
        """
        if self.find(name) is not None or self.has_row(within, None if one_writer else name):
            if wait == 0:
                return NotAcquired(f"{name!r} is held up by this very thread", name=name)
            what = (
                "this thread holds a row lock, which on this database is the lock of everything, "
                f"so it would wait for itself to get {name!r}; take leases before row locks"
                if self.find(name) is None and one_writer
                else f"this thread holds {name!r} already and would wait for itself; release it "
                "first, or share one lease made with reentrant=True"
            )
            raise DeadlockDetected(what, name=name)
        return None

    def refuse_as_writer(self, name: str, doing: str) -> None:
        """Raise DeadlockDetected if the thread itself keeps every writer out of the database."""
        if self.has_row(None, None):
            raise DeadlockDetected(
                f"{name!r} cannot be {doing} while a transaction of this thread, with a row lock "
                "or a guard in it, is the one writer of this database; end that first",
                name=name,
            )

    def has_row(self, within: object, name: str | None) -> bool:
        """Whether the thread has the row of ``name`` locked, or any row if that is None."""
        if name is None and any(
            hold.transaction is not None and hold.alive for hold in self._own.values()
        ):
            return True
        return any(
            root.is_active and root is not within and (name is None or name in names)
            for root, names in self._borrowed.items()
        )
