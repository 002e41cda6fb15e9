"""The keeper: one for the process. It renews all leases and reports their danger and loss.

::

    timer      does no I/O: wakes the renewers, reports danger and loss in time, whatever hangs
    renewer    one for each database with a renewal due; sends the statements, in batches
    callbacks  calls the user's callbacks, which may block, or fail

All are daemon threads, started when first needed; they end a while after they were last needed.
:mod:`dblock.protocol.schedule` decides when to renew, :mod:`dblock.protocol.renew` how.
The keeper never releases a lease, and knows a hold only for as long as its handle exists: a lease
whose handle is dropped expires.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from ..errors import DBLockError, LockLost
from ..events import Kind, tell, wanted
from ..io.fork import begins_anew
from ..io.process_lock import lock, settled
from ..io.runtime import Runtime
from ..protocol.faults import Fault, StatementError
from ..protocol.renew import Asked, RenewalFailed, Renewed
from ..protocol.schedule import GATHER_MAX
from ..protocol.state import Renewal
from ..protocol.term import Term
from .lease_hold import LeaseHold, Renewer
from .worker import Worker

if TYPE_CHECKING:
    from ..protocol.schedule import Danger

logger = logging.getLogger("dblock")

# Seconds that the timer sleeps at most: so it is awake as soon after the machine was suspended.
SLICE = 1.0
# The same, in seconds, while new holds come: it is less than the time to the first renewal of a
# hold with a short first term, so that no hold has to wake the timer.
SOON = 0.15
# Seconds that an idle thread stays alive.
LINGER = 5.0
# Renewals in one statement, at most.
BATCH = 500

Call = Callable[[], object]


class Waking(Protocol):
    """A :class:`Worker`, or its counterpart in an event loop."""

    running: bool

    def wake(self) -> None: ...


class WorkerMaker(Protocol):
    def __call__(self, name: str, work: Callable[[], float], end: Call = ..., /) -> Waking: ...


_UNKNOWN = RenewalFailed(StatementError(Fault.DISCONNECTED, "it was cut short"))


class Keeper:
    """Renews the holds that it was given, and reports danger and loss, until they are dropped."""

    def __init__(self, runtime: Runtime, worker: WorkerMaker | None = None) -> None:
        self._runtime = runtime
        self._new_worker: WorkerMaker = partial(Worker, linger=LINGER) if worker is None else worker
        self.forget_parent()

    def forget_parent(self) -> None:
        """Reset everything: a forked child has neither the parent's holds nor its threads."""
        # In the order of their grants, so that losses at the same moment are reported in order.
        self._kept: dict[ref[LeaseHold], None] = {}
        kept = self._kept
        # A single atomic operation, because a garbage collection may call it at any point. It is
        # bound to this very dict: `_kept` is never replaced without it.
        self._forget: Callable[[ref[LeaseHold]], object] = lambda gone: kept.pop(gone, None)
        self._timer = self._new_worker("dblock timer", self._watch)
        self._next = math.inf  # the time when the timer wakes
        self._came = False  # whether a hold came since the timer's last pass
        self._renewers: dict[Renewer, Waking] = {}
        self._calls: deque[Call] = deque()
        self._callback_worker = self._new_worker("dblock callbacks", self._call)

    # --- for holders -------------------------------------------------------------------------

    def keep(self, hold: LeaseHold) -> None:
        """Begin to renew a hold that was just granted."""
        with lock:
            self._kept[ref(hold, self._forget)] = None
            self._came = True
            self._look_again(hold.schedule.wake)

    def drop(self, hold: LeaseHold) -> None:
        """Forget a hold. A renewal that is under way does not change it any more."""
        self._kept.pop(ref(hold), None)

    def moved(self, hold: LeaseHold, term: Term) -> bool:
        """Accept the term of a renewal that the holder itself asked for; False if the hold is lost,
        or is being released."""
        with lock:
            if hold.ended or hold.loss is not None:
                return False
            hold.begin(term)
            hold.schedule.extended(term, self._runtime.random())
            self._look_again(hold.schedule.wake)
            return True

    def stop(self, database: Renewer, why: str) -> None:
        """Renew nothing more in a database; still report danger and loss."""
        for hold in self._holds(database):
            with lock:
                hold.schedule.stop(why, hold.lease.term)
                self._look_again(hold.schedule.wake)

    def __len__(self) -> int:
        return len(self._kept)

    # --- the timer ---------------------------------------------------------------------------

    def _look_again(self, wake: float) -> None:
        """Make sure that the timer's next pass is at ``wake`` or before."""
        if wake < self._next or not self._timer.running:
            self._next = min(self._next, wake)
            self._timer.wake()

    def _watch(self) -> float:
        """Make a pass over the holds; return the seconds until the next one."""
        now = self._runtime.now()
        with lock:
            wake = self._next = now + (SOON if self._came else SLICE)
        calls: list[Call] = []
        due: set[Renewer] = set()
        for reference in list(self._kept):
            hold = reference()
            if hold is None:
                continue
            if hold.schedule.wake <= now:
                wake = min(wake, self._look_at(hold, now, due, calls))
            elif hold.schedule.wake < wake:
                wake = hold.schedule.wake
        self.call(*calls)
        for database in due:
            self._wake_renewer(database)
        with lock:
            # While it keeps a hold, or new ones come, the timer makes regular passes, so a hold
            # that is due later need not wake it. Else the next hold wakes it, whenever it is due.
            self._next = min(self._next, wake) if self._kept or self._came else math.inf
            self._came = False
            return max(0.0, self._next - self._runtime.now())

    def _look_at(self, hold: LeaseHold, now: float, due: set[Renewer], calls: list[Call]) -> float:
        """Report a hold's danger or loss if it is time; add its database to ``due`` if it is to be
        renewed; return the time of the next look at it."""
        with lock:
            schedule, term = hold.schedule, hold.lease.term
            if hold.ended or hold.loss is not None:
                self.drop(hold)
                return math.inf
            if term.over(now):
                self._lose(hold, hold.ran_out(), calls)
                return math.inf
            if not schedule.warned and schedule.danger <= now:
                self._warn(hold, now)
            wake = term.deadline if schedule.warned else schedule.danger
            if hold.renewing:
                return wake
            if schedule.due > now:
                return min(wake, schedule.due)
            due.add(hold.database)
            return wake

    def _warn(self, hold: LeaseHold, now: float) -> None:
        """Queue the report of the danger at once, so that it precedes the report of a loss that is
        found later."""
        danger = hold.schedule.warning(hold.name, hold.lease, now, asking=hold.renewing)
        hold.schedule.told(hold.lease.term)
        calls: list[Call] = []
        self._tell(calls, Kind.ENDANGERED, hold, danger.remaining)
        if hold.callbacks.on_danger is not None:
            calls.append(partial(warn, ref(hold), danger))
        self.call(*calls)

    def _lose(self, hold: LeaseHold, loss: LockLost, calls: list[Call]) -> None:
        self.drop(hold)
        if hold.lose(loss):
            self._tell(calls, Kind.LOST, hold, self._runtime.now() - hold.since, loss)
            if hold.callbacks.on_lost is not None:
                calls.append(partial(hold.callbacks.on_lost, loss))

    def _tell(
        self,
        calls: list[Call],
        kind: Kind,
        hold: LeaseHold,
        seconds: float,
        error: Exception | None = None,
    ) -> None:
        """Queue an event for the thread that calls callbacks."""
        if wanted(kind):
            calls.append(partial(tell, kind, hold.strategy, hold.name, seconds, error))

    # --- the renewers ------------------------------------------------------------------------

    def _wake_renewer(self, database: Renewer) -> None:
        with lock:
            renewer = self._renewers.get(database)
            if renewer is None:
                work, end = partial(self._renew_due, database), partial(self._end_renewer, database)
                renewer = self._new_worker("dblock renewer", work, end)
                self._renewers[database] = renewer
            renewer.wake()

    def _end_renewer(self, database: Renewer) -> None:
        self._renewers.pop(database, None)

    def _renew_due(self, database: Renewer) -> float:
        """Renew all due holds; then there is nothing to do until the next wake-up."""
        while True:
            ripe, within = self._ripe(database)
            if not ripe:
                return math.inf
            for start in range(0, len(ripe), BATCH):
                self._renew(database, ripe[start : start + BATCH], within)

    def _ripe(self, database: Renewer) -> tuple[list[ref[LeaseHold]], float]:
        """Return the holds that are due and the nearly due ones, the most urgent first; none if
        none is due. And the seconds to await an answer, so that every hold has time for another
        try.
        """
        now, within, due = self._runtime.now(), database.timeouts.socket, math.inf
        ripe: list[tuple[float, ref[LeaseHold]]] = []
        holds = self._holds(database)
        for hold in holds:
            if hold.schedule.due - GATHER_MAX > now:  # usually: it is too early to gather it
                continue
            term = hold.lease.term
            if hold.renewing or not hold.keepable(now) or hold.schedule.gather(term) > now:
                continue
            ripe.append((term.deadline, ref(hold)))
            due = min(due, hold.schedule.due)
        if due > now:
            return [], within
        for hold in holds:
            within = min(within, hold.schedule.patience(hold.lease.term))
        ripe.sort(key=lambda one: one[0])
        return [reference for _, reference in ripe], within

    def _holds(self, database: Renewer) -> Sequence[LeaseHold]:
        found = (reference() for reference in list(self._kept))
        return [hold for hold in found if hold is not None and hold.database is database]

    def _renew(self, database: Renewer, holds: Sequence[ref[LeaseHold]], within: float) -> None:
        """Renew a batch. It has only weak references meanwhile, so that handles may be dropped."""
        asked: list[Asked] = []
        begun: list[ref[LeaseHold]] = []
        now = self._runtime.now()
        with lock:
            for reference in holds:
                hold = reference()
                if hold is None or hold.renewing or not hold.keepable(now):
                    continue
                hold.renewing = True
                length = hold.schedule.length(now)
                asked.append(Asked(Renewal(hold.name, hold.token, length), hold.lease))
                begun.append(reference)
            hold = None
        if not asked:
            return
        outcomes: Sequence[Renewed] = [_UNKNOWN] * len(asked)
        try:
            outcomes = database.renew_all(asked, within)
        except Exception as error:
            if not isinstance(error, DBLockError | ValueError):  # the Locks are closed or unusable
                logger.exception("renewing leases failed")
            outcomes = [RenewalFailed(StatementError(Fault.REFUSED, str(error)))] * len(asked)
        finally:
            self._settle(begun, outcomes)

    def _settle(self, begun: Sequence[ref[LeaseHold]], outcomes: Sequence[Renewed]) -> None:
        """Record the outcomes, unless a hold has ended meanwhile or its loss was reported."""
        calls: list[Call] = []
        with lock:
            now = self._runtime.now()
            for reference, outcome in zip(begun, outcomes, strict=True):
                hold = reference()
                if hold is None:
                    continue
                hold.renewing = False
                if not hold.keepable(now):
                    continue
                if isinstance(outcome, LockLost):
                    self._lose(hold, outcome, calls)
                    continue
                late = max(0.0, now - hold.schedule.due)
                if isinstance(outcome, RenewalFailed):
                    self._tell(calls, Kind.MISSED, hold, late, outcome.failure)
                    hold.schedule.missed(outcome, hold.lease.term, now, self._runtime.random())
                else:
                    self._tell(calls, Kind.RENEWED, hold, late)
                    hold.begin(outcome)
                    hold.schedule.renewed(outcome, self._runtime.random())
                self._look_again(hold.schedule.wake)
            settled.notify_all()
        self.call(*calls)

    # --- callbacks ---------------------------------------------------------------------------

    def call(self, *calls: Call) -> None:
        """Queue callbacks. They are called in order, after all earlier ones."""
        if calls:
            self._calls.extend(calls)
            self._callback_worker.wake()

    def _call(self) -> float:
        while self._calls:
            guarded(self._calls.popleft())
        return math.inf


def warn(known: ref[LeaseHold], danger: Danger) -> None:
    """Call a holder's ``on_danger``, unless it has released its lease meanwhile, or has found the
    loss itself."""
    hold = known()
    if hold is not None and not hold.ended:
        on_danger = hold.callbacks.on_danger  # read once: a loss replaces the callbacks
        if on_danger is not None:
            on_danger(danger)


def guarded(call: Call) -> None:
    """Call a user's callback; log the error that it raises."""
    try:
        call()
    except Exception:
        logger.exception("a callback of a lease failed")


#: The keeper of this process.
keeper = begins_anew(Keeper(Runtime()))


def keeper_of_process() -> Keeper:
    """Return the keeper that all threads share."""
    return keeper
