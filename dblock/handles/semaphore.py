"""The semaphore: up to ``limit`` holders at a time, each with a lease of its own."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from ..arguments import LIMIT_MAX, check_limit
from ..errors import DBLockError, DeadlockDetected, NotAcquired, NotHeld
from ..holding.lease_hold import NO_CALLBACKS
from ..protocol import slots
from ..protocol.commands import Command
from ..protocol.doubt import Doubt
from ..protocol.exchange import Exchange
from ..protocol.lease import Held, LeaseRequest, Refused
from ..protocol.schedule import Plan
from ..protocol.slots import SlotAttempt, number_of, slot_name
from .base import Silent, SingleHandle
from .lease import Lease
from .taking import Taking

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..holding.lease_hold import LeaseHold
    from ..protocol.release import Find
    from .options import LeaseOptions

#: Seconds: the TTL of the turnstile, unless the slots' TTL is shorter. If the first waiter dies,
#: the others wait this long.
TURNSTILE_TTL = 3.0


class Semaphore(SingleHandle):
    """A semaphore, made by :meth:`Locks.semaphore`. It has at most ``limit`` holders at a time::

        with locks.semaphore("api", limit=3) as slot:
            slot.check()

    ``with`` gives a slot: a :class:`Lease` that you hold, on a name such as ``api#2``. dblock
    renews, loses, guards and shows it as any lease. It has its own fence, which grows from hold to
    hold of that slot. Or use :meth:`acquire` and :meth:`release`, as with
    :class:`threading.Semaphore`; then :attr:`slot` is the slot.

    Threads can share one Semaphore, and one thread can hold several slots. A release ends the
    newest slot of the calling thread, or else the newest slot of the handle.

    If all slots are held, a waiter waits for the name ``api`` itself, the turnstile. The turnstile
    is passed on in the order of that name's waiters. Its holder takes the next slot that is free.

    If a holder dies, its slot is free when the slot's TTL is over.
    """

    strategy = "semaphore"

    def __init__(self, database: Database, lease: Lease, limit: int) -> None:
        super().__init__(lease.wait, database)
        self.name = lease.name
        self._lease = lease
        self._options = lease._options
        self._limit = limit
        self._freed = database.contenders.freed_slots
        self._slots: list[Lease] = []
        self._resized = Doubt()  # changes of the limit without a reply

    def __repr__(self) -> str:
        return f"<Semaphore {self.name!r} limit={self._limit}>"

    @property
    def limit(self) -> int:
        """The limit that this handle asks for: how many holders may have a slot at a time."""
        return self._limit

    # --- acquire and release -----------------------------------------------------------------

    def __enter__(self) -> Lease:  # type: ignore[override]  # a slot, which the block can use
        super().__enter__()
        return self.slot

    @property
    def slot(self) -> Lease:
        """The calling thread's newest slot, or else the handle's newest. Raises NotHeld."""
        found = self._find()
        if found is None:
            raise NotHeld(f"no slot of the semaphore {self.name!r} is held", name=self.name)
        return found

    def release(self) -> None:
        """Release the calling thread's newest slot, or else the handle's newest. One round trip.

        Raises NotHeld if there is none, and LockLost if it was lost before.
        """
        self._end(leaving=False)

    def _leave(self) -> None:
        """End the ``with`` block's slot, unless it was detached and goes on elsewhere."""
        for slot in reversed(self._slots.copy()):
            if slot._forget_detached():
                self._forget(slot)
                return
        self._end(leaving=True)

    def _current(self) -> LeaseHold | None:
        """Return the hold of the caller's slot."""
        found = self._find()
        return None if found is None else found._current()

    def _end(self, *, leaving: bool) -> None:
        slot = self.slot
        try:
            (slot._leave if leaving else slot.release)()
            self._freed.give_back(self.name, number_of(slot.name))
        finally:
            if slot._current() is None:
                self._forget(slot)

    def _find(self) -> Lease | None:
        mine, newest = self._database.callers.mine(), None
        for slot in reversed(self._slots.copy()):
            hold = slot._current()
            if hold is None:  # the caller released the slot itself, or detached it
                if not slot._detached:  # a detached slot still has a block to end
                    self._forget(slot)
            elif hold.caller is mine:
                return slot
            else:
                newest = newest or slot
        return newest

    def _forget(self, slot: Lease) -> None:
        with contextlib.suppress(ValueError):
            self._slots.remove(slot)

    def _try_within(self, wait: float | None) -> NotAcquired | None:
        """Take a slot, waiting up to ``wait`` seconds. One round trip when one is free."""
        database, options = self._database, self._options
        start = database.runtime.now()
        refusal = database.callers.refuse_self_wait(
            self.name, wait, one_writer=database.dialect.traits.one_writer
        )
        if refusal is not None:
            return refusal
        known = self._freed.pop(self.name, self._limit)
        token = database.runtime.token(16)
        owner = database.owner(options.label, options.client)
        request = LeaseRequest(self.name, token, owner, options.plan.first)
        attempt = SlotAttempt(
            Exchange(database.dialect, self.name, start, wait, database.timeouts.socket, start),
            request,
            name=self.name,
            limit=self._limit,
            first=int(database.runtime.random() * self._limit) if known is None else known - 1,
            known=known is not None,
        )
        taking = Taking(database, request)
        slot: Lease | None = None
        try:
            # A caller that has waited keeps the turnstile until the keeper has its slot.
            with contextlib.ExitStack() as waited:
                outcome = database.run(attempt.begin(), orphaned=taking.orphaned)
                if isinstance(outcome, Held):
                    self._freed.note(self.name)
                elif wait != 0:
                    self._refuse_own_slots()
                    self._freed.forget(self.name)
                    outcome = self._wait(attempt, taking.orphaned, waited)
                if isinstance(outcome, Held):
                    slot = self._slot(request.name)
                    slot._keep(taking, outcome, start)
                    self._slots.append(slot)
        except BaseException as error:
            # A KeyboardInterrupt, for example: a slot may have been granted.
            if not isinstance(error, DBLockError):
                self._database.runtime.undo(error, partial(self._undo, slot, taking, attempt.find))
            raise
        if isinstance(outcome, Held):
            return None
        return self._refusal(outcome, attempt, wait)

    def _undo(self, slot: Lease | None, taking: Taking, find: Find) -> None:
        """Undo a try whose caller was interrupted before it got the slot."""
        if slot is not None:
            self._forget(slot)
        (slot or self._lease)._undo(taking, find)

    def _wait(
        self, attempt: SlotAttempt, orphaned: list[Command[bool]], waited: contextlib.ExitStack
    ) -> Held | Refused:
        """Take the turnstile, and then a slot as soon as one is free."""
        database, options, exchange = self._database, self._options, attempt.exchange
        waiter = None
        if self._limit == 1:  # it waits for exactly one slot, so dblock can find a deadlock
            name = slot_name(self.name, 1)
            waiter = database.waiter(name, "lease", exchange.start, options.label, options.client)
            waited.callback(database.withdraw, waiter)
        while True:
            turnstile = _Turnstile(database, self.name, options)
            waited.callback(turnstile.give_up)
            exchange.now = self._database.runtime.now()
            if turnstile._try_within(exchange.left):
                return database.run(attempt.refuse())
            attempt.turnstile = turnstile.token
            waiting = attempt.wait(options.retry, waiter, turnstile.lasts)
            outcome = database.run(
                waiting if waiter is None else waiter.during(waiting), orphaned=orphaned
            )
            if outcome is not None:
                return outcome

    def _slot(self, name: str) -> Lease:
        """Return a handle of a slot."""
        return type(self._lease)(self._database, name, self._options)

    def _refuse_own_slots(self) -> None:
        """Raise DeadlockDetected if the caller itself holds every slot."""
        callers = self._database.callers
        names = {slot_name(self.name, number) for number in range(1, self._limit + 1)}
        if len([hold for hold in callers.mine().all() if hold.name in names]) == self._limit:
            held = "the one slot" if self._limit == 1 else f"all {self._limit} slots"
            raise DeadlockDetected(
                f"this {callers.caller} holds {held} of the semaphore {self.name!r} "
                "already and would wait for itself; release one first",
                name=self.name,
            )

    def _refusal(self, refused: Refused, attempt: SlotAttempt, wait: float | None) -> NotAcquired:
        """Return the error for a refusal. It names the holder of the slots or of the name itself,
        and the expiry."""
        turnstile = attempt.slots.rows.get(self.name)
        row = refused.state if attempt.admitted or turnstile is None else turnstile.row
        if attempt.closed or row is None or not row.held:
            return self._database.not_acquired(self.name, refused._replace(state=None), wait)
        state = row.told()
        within = "" if wait is None else f" within {wait:g} s"
        why = (
            f"all {self._limit} were held. The first to expire is {state.name!r}, "
            f"{state.describe()}"
            if attempt.admitted
            else f"the name itself is {state.describe()}: by a lease of this name, or by the first "
            "waiter for a slot"
        )
        return NotAcquired(
            f"no slot of the semaphore {self.name!r} was acquired{within}: {why}",
            name=self.name,
            holder=state,
        )

    # --- the limit ---------------------------------------------------------------------------

    def resize(self, limit: int) -> int:
        """Change the limit permanently, for all processes. Return how many slots above it are held.

        The holders of these slots keep them until they release them. No new holder gets such a
        slot, except a try that runs during the change. Every other handle keeps the limit that it
        was made with, and gets LimitMismatch from now on: so restart your other processes with the
        new limit.

        Raises LimitMismatch if the name is an election's, Unavailable if nothing was changed, and
        OutcomeUnknown if the reply was lost. Then resize it again with this handle: the lost change
        does not arrive after the new one, unless it was lost behind a pooler.
        """
        limit, database = check_limit(limit), self._database
        held = database.run(
            slots.resize(database.exchange(self.name), limit, LIMIT_MAX, self._resized),
            orphaned=self._resized.sessions,
        )
        self._limit = limit
        return held


class _Turnstile(Silent, Lease):
    """The lease of the first waiter for a slot. Users see it in the database only: it has no
    events."""

    def __init__(self, database: Database, name: str, options: LeaseOptions) -> None:
        plan = Plan(min(options.plan.ttl, TURNSTILE_TTL))
        super().__init__(database, name, options._replace(plan=plan, callbacks=NO_CALLBACKS))

    def lasts(self) -> bool:
        """Whether no other waiter can have taken it yet."""
        return self.held

    def give_up(self) -> None:
        """Release it for the next waiter, if it is held. If that fails it expires."""
        if self._current() is not None:
            self._database.runtime.finish(self._end_it, cancelled=True)

    def _end_it(self) -> None:
        with contextlib.suppress(DBLockError):
            self._release()
