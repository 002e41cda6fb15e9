"""What this process holds: who may release it, who would wait for itself, what a fork inherits."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from ..beliefs import Belief, Change
from ..errors import DeadlockDetected, LockLost, NotAcquired, NotHeld
from ..io.process_lock import lock, settled
from ..protocol.lease import Held
from ..protocol.term import Term

if TYPE_CHECKING:
    from ..io.borrowed import Root
    from ..io.driver import OwnTransaction
    from ..io.runtime import Event, Runtime
    from ..io.user_locks import UserLock
    from ..protocol.renew import Asked, Renewed
    from ..protocol.schedule import Danger, RenewalSchedule
    from ..timeouts import Timeouts


@dataclass(slots=True, eq=False, weakref_slot=True)
class Hold:
    """One granted lock: a row lock in a transaction of dblock's own, or a lease."""

    name: str
    runtime: Runtime
    since: float
    transaction: OwnTransaction | None = None
    count: int = 1
    flow: CallerHolds | None = None
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


class Renewer(Protocol):
    """The database of some leases, as who keeps them needs it."""

    @property
    def timeouts(self) -> Timeouts: ...

    def renew_all(self, asked: Sequence[Asked], within: float) -> Sequence[Renewed]:
        """Renew many holds at once, each answer awaited for so long; return what became of each."""


@dataclass(slots=True, eq=False, kw_only=True)
class LeaseHold(Hold):
    """A granted lease."""

    lease: Held
    token: str = field(repr=False)
    schedule: RenewalSchedule
    database: Renewer
    on_danger: Callable[[Danger], None] | None = None
    on_lost: Callable[[LockLost], None] | None = None
    user_lock: UserLock | None = None
    #: A transaction was guarded with it, and may be open yet.
    guarded: bool = False
    #: A renewal is under way, the keeper's or the holder's own.
    renewing: bool = False

    @property
    def alive(self) -> bool:
        return not self.inherited and self.keepable(self.runtime.now())

    @property
    def fence(self) -> int | None:
        return self.lease.fence

    @property
    def belief(self) -> Belief:
        return Belief("lease", self.name, self.token, self.lease.fence, self.lease.term)

    def keepable(self, now: float) -> bool:
        """Whether there is a lease to renew: not given back, not lost, not over."""
        return not self.ended and self.loss is None and not self.lease.term.over(now)

    def begin(self, term: Term) -> None:
        """Begin a new term."""
        self.lease = replace(self.lease, term=term)
        self.tell(Change.RENEWED)
        self._leave_user_lock()  # nobody waits at it any more

    def lose(self, loss: LockLost) -> bool:
        with lock:
            self._leave_user_lock()
            return Hold.lose(self, loss)

    def _leave_user_lock(self) -> None:
        """Let the user lock go, under the lock; but a release that has begun does so itself."""
        if self.user_lock is not None and not self.ended:
            self.user_lock.drop()

    def ran_out(self) -> LockLost:
        """Return the loss for when the term is over."""
        return self.schedule.loss(self.name, self.lease.term, asking=self.renewing)

    def end(self, patience: float) -> None:
        """Have it renewed no more, and wait for a renewal that is under way, so long.

        One that lasts longer finds the hold given back, by its token.
        """
        with lock:
            self.ended = True
        if self.renewing:
            with self.runtime.settled(lambda: not self.renewing, patience):
                pass

    @contextlib.contextmanager
    def renewed_here(self, patience: float) -> Iterator[None]:
        """Keep other renewals of this hold out, having waited for one under way, so long."""
        with self.runtime.settled(lambda: not self.renewing, patience):
            self.renewing = True
        try:
            yield
        finally:
            with lock:
                self.renewing = False
                settled.notify_all()


H = TypeVar("H", bound=Hold)


class HandleHolds(Generic[H]):
    """The holds of one handle. Several, when flows share it and one of them lost its own.

    A flow is a thread, or a task. ``private`` says that a hold belongs to the flow which took it,
    not to whoever has the handle.
    """

    __slots__ = ("_flows", "_holds", "_kind", "_name", "_private", "last")

    def __init__(
        self, kind: str, name: str, flows: CallerRegistry, *, private: bool = False
    ) -> None:
        self._flows = flows
        self._kind = kind
        self._name = name
        self._private = private
        self._holds: list[H] = []
        self.last: H | None = None

    def add(self, hold: H) -> None:
        """Take down a hold of the calling flow."""
        hold.tell(Change.GRANTED)
        hold.flow = mine = self._flows.mine()
        mine.own[hold.name] = hold
        if hold.transaction is not None:
            mine.rows.add(hold)
        self._holds.append(hold)
        self.last = hold

    def find(self) -> H | None:
        """Return the calling flow's hold; else, where holds are the handle's, the newest.

        A flow's own comes first, lost or not, so that its loss is told to it, and so that it does
        not release the hold which another has had since.
        """
        holds = list(self._holds)
        if not holds:
            return None
        mine = self._flows.mine()
        for hold in reversed(holds):
            if hold.flow is mine:
                return hold
        return None if self._private else holds[-1]

    def get(self, *, ending: bool = False) -> H:
        """As :meth:`find`. Raises NotHeld when there is none, or it is the parent process's.

        ``ending`` admits a hold whose release was tried and failed, for another try.
        """
        hold = self.find()
        if hold is None or (hold.ended and not ending):
            raise self.not_held()
        if hold.inherited:
            raise NotHeld(
                f"the {self._kind} on {self._name!r} is held by the parent process "
                f"(pid {hold.pid}), not by this fork",
                name=self._name,
            )
        return hold

    def not_held(self) -> NotHeld:
        by = f" by this {self._flows.flow}" if self._private else ""
        return NotHeld(f"the {self._kind} on {self._name!r} is not held{by}", name=self._name)

    def take(self, hold: H, why: Change = Change.RELEASED) -> bool:
        """Take the hold off, to end it; False if another flow has done so."""
        believed, hold.ended = not hold.ended and hold.loss is None, True
        if believed:
            hold.tell(why)
        try:
            self._holds.remove(hold)
        except ValueError:
            return False
        return True

    def put_back(self, hold: H) -> None:
        """Have a hold that could not be ended again, for another try."""
        self._holds.insert(0, hold)  # behind what has been taken since


class CallerHolds:
    """The holds of one flow, only weakly: a handle that is dropped takes its holds along, and a
    transaction its row locks."""

    def __init__(self) -> None:
        self.own: weakref.WeakValueDictionary[str, Hold] = weakref.WeakValueDictionary()
        self.rows: weakref.WeakSet[Hold] = weakref.WeakSet()  # those in transactions of dblock's
        self.borrowed: weakref.WeakKeyDictionary[Root, set[str]] = weakref.WeakKeyDictionary()


class CallerRegistry(ABC):
    """What the calling flow holds, so that it does not wait for itself."""

    #: A flow's name for people.
    flow: ClassVar[str]

    @abstractmethod
    def mine(self) -> CallerHolds:
        """Return those of the calling flow."""

    def find(self, name: str) -> Hold | None:
        """Return the live hold that the flow has on a name, through any handle."""
        hold = self.mine().own.get(name)
        return hold if hold is not None and hold.alive else None

    def held(self) -> dict[str, int | None]:
        """Return the names that the flow holds, with the fences of those that are leases."""
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
        """Return the refusal if the calling flow has the name itself and does not want to wait.

        Raises DeadlockDetected if it wants to. ``one_writer`` tells that a row lock keeps every
        other lock statement out; ``within`` is the transaction that the lock is wanted in.
        """
        if self.find(name) is not None or self.has_row(within, None if one_writer else name):
            if wait == 0:
                return NotAcquired(f"{name!r} is held up by this very {self.flow}", name=name)
            what = (
                f"this {self.flow} holds a row lock, which on this database is the lock of "
                f"everything, so it would wait for itself to get {name!r}; take leases before "
                "row locks"
                if self.find(name) is None and one_writer
                else f"this {self.flow} holds {name!r} already and would wait for itself; release "
                "it first, or share one lease made with reentrant=True"
            )
            raise DeadlockDetected(what, name=name)
        return None

    def refuse_as_writer(self, name: str, doing: str) -> None:
        """Raise DeadlockDetected if the flow itself keeps every writer out of the database."""
        if self.has_row(None, None):
            raise DeadlockDetected(
                f"{name!r} cannot be {doing} while a transaction of this {self.flow}, with a row "
                "lock or a guard in it, is the one writer of this database; end that first",
                name=name,
            )

    def has_row(self, within: object, name: str | None) -> bool:
        """Whether the flow has the row of ``name`` locked, or any row if that is None."""
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

    flow = "thread"

    def __init__(self) -> None:
        self._mine = CallerHolds()

    def mine(self) -> CallerHolds:
        return self._mine
