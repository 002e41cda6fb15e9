"""A lease as its holder uses it: what it may ask of the hold, and prove to a database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakSet

from ..arguments import Seconds, check_ttl
from ..errors import DBLockError, LockLost, NotHeld, OutcomeUnknown
from ..events import Kind
from ..holding.handle_holds import HandleHolds
from ..holding.keeper import guarded
from ..holding.lease_hold import NO_CALLBACKS, LeaseHold
from ..protocol import guard, overview, release, renew
from ..protocol.exchange import Exchange
from ..protocol.lease import ReleaseRequest
from ..protocol.renew import Asked
from ..protocol.state import Renewal
from ..protocol.steps import Procedure
from ..protocol.term import Term
from .base import Named, Releasable, SingleHandle

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..holding.holds import CallerHolds
    from ..io.borrowed import Borrowable
    from ..io.runtime import Event
    from .options import LeaseOptions


class HeldLease(Named, Releasable):
    """What a holder does with its hold. A subclass says how the handle gets one."""

    strategy = "lease"
    #: Its name in a repr, also for the private subclasses and Django's.
    _kind: ClassVar[str] = "Lease"
    #: The callers whose last hold was detached: the end of their ``with`` releases nothing.
    _detached: WeakSet[CallerHolds] | None = None

    def __init__(self, database: Database, name: str, options: LeaseOptions) -> None:
        super().__init__(options.wait, database)
        self.name = name
        self._options = options
        self._holds: HandleHolds[LeaseHold] = HandleHolds(
            "lease", name, database.callers, private=options.reentrant
        )

    def __repr__(self) -> str:
        state = "held" if self.held else "not held"
        return f"<{self._kind} {self.name!r} ttl={self.ttl:g} {state}>"

    def check(self) -> None:
        """Return if you still hold the lease, by the holder's own clock; raise LockLost if not.

        No round trip. Call it before each step that must not happen without the lock. Raises
        NotHeld if you have not taken the lease.
        """
        hold = self._holds.get()
        if hold.loss is not None:
            raise hold.loss
        if hold.lease.term.over(self._database.runtime.now()):
            raise self._lose(hold, hold.ran_out())

    def renew(self, ttl: Seconds | None = None) -> None:
        """Move the expiry to ``ttl`` seconds from now (the lease's own TTL if None).

        Use it for a lease that does not renew itself, or if you need a longer TTL for once: the
        next renewal comes when that TTL is nearly over, and returns to the lease's own TTL.

        dblock tries until the hold's deadline. Raises NotHeld if you do not hold the lease, and
        LockLost if it is over. dblock does not renew an expired lease, even if the name is still
        free.
        """
        length = self.ttl if ttl is None else check_ttl(ttl)
        hold = self._holds.get()
        if self._database.dialect.traits.one_writer:
            self._database.callers.refuse_as_writer(self.name, "renewed")
        with hold.renewed_here(hold.lease.term.remaining(self._database.runtime.now())):
            if hold.ended or hold.loss is not None:
                raise hold.loss or self._holds.not_held()
            held, now = hold.lease, self._database.runtime.now()
            length = hold.schedule.length(now, length)
            asked = Term(now, length)
            if asked.deadline < held.term.deadline:
                # Once the renewal is sent, the earlier expiry may apply, whatever the reply is.
                self._database.keeper().moved(hold, asked)
            renewal = Asked(Renewal(self.name, hold.token, length), held)
            try:
                term = self._ask_to_renew(renewal, now)
            except LockLost as loss:
                raise self._lose(hold, loss) from loss.__cause__
            if not self._database.keeper().moved(hold, term):
                raise hold.loss or self._holds.not_held()

    def _ask_to_renew(self, asked: Asked, now: float) -> Term:
        return self._database.run(renew.renew(self._database.dialect, asked, now))

    def release(self) -> None:
        """Release the lease. One round trip.

        Raises NotHeld if there is no hold to release, and LockLost if it was lost before. In that
        case your work may have overlapped with another holder's work.
        """
        self._database.runtime.finish(self._release)

    def _leave(self) -> None:
        """End the ``with`` block's hold, unless it was detached and goes on elsewhere."""
        if self._detached and self._forget_detached():
            return
        self._database.runtime.finish(self._release)

    def _forget_detached(self) -> bool:
        """Return whether the caller's last hold was detached, and forget that."""
        detached = self._detached
        if not detached or (mine := self._database.callers.mine()) not in detached:
            return False
        detached.discard(mine)
        return True

    def _release(self, after: float = 0.0) -> None:
        hold = self._holds.get(ending=True)
        if hold.count > 1:
            hold.count -= 1
            return
        self._end(hold, after)

    def _end(self, hold: LeaseHold, after: float = 0.0) -> None:
        if self._database.dialect.traits.one_writer:
            self._database.callers.refuse_as_writer(self.name, "released")
        if not self._holds.take(hold):
            raise self._holds.not_held()
        now = self._database.runtime.now()
        try:
            self._give_back(hold, after, now)
        except LockLost as loss:
            raise self._lose(hold, loss, ending=True) from loss.__cause__
        except BaseException as failure:
            over = hold.loss is not None or hold.lease.term.over(now)
            if over and isinstance(failure, DBLockError):  # a loss matters more than the failure
                raise self._lose(hold, hold.ran_out(), ending=True) from failure
            told = isinstance(failure, DBLockError) and not isinstance(failure, OutcomeUnknown)
            hold.in_doubt = hold.in_doubt or not (told or after)
            self._holds.put_back(hold)  # so that the caller can try again with the same token
            raise
        if hold.loss is not None:
            raise hold.loss
        if hold.lease.term.over(now):
            raise self._lose(hold, hold.ran_out(), ending=True)
        self._tell(Kind.RELEASED, hold.since)

    def _give_back(self, hold: LeaseHold, after: float, now: float) -> None:
        # The keeper no longer renews it, whether the release succeeds or not.
        self._database.keeper().drop(hold)
        hold.end(self._database.dialect.timeouts.socket, now)
        request = ReleaseRequest(
            self.name,
            hold.token,
            hold.lease,
            hold.reader,
            with_user_lock=hold.user_lock is not None and hold.user_lock.kept,
            guarded=hold.guarded,
            in_doubt=hold.in_doubt,
        )
        dialect = self._database.dialect
        ending: Procedure[object]
        if after:
            renewal = Renewal(self.name, hold.token, hold.schedule.length(now, after))
            ending = renew.renew(dialect, Asked(renewal, hold.lease), now)
            if hold.user_lock is not None:
                hold.user_lock.drop()
        else:
            exchange = Exchange(dialect, self.name, now, None, dialect.timeouts.socket, now)
            ending = release.release(exchange, request)
        self._database.run(ending, user_lock=hold.user_lock)

    @contextlib.contextmanager
    def guard(self, session: Borrowable) -> Iterator[int]:
        """Prove the lease inside the transaction of ``session``, until that transaction ends.

        While the transaction is open, a takeover waits; this lease's own renewal does not. If the
        lease is lost, you get LockLost and must not commit. Yields the fence. You can commit inside
        or after the block: the proof lasts as long as the transaction, or the savepoint that was
        open at the start of the block.

        On SQLite the transaction becomes the file's one writer. End it before you renew or release
        the lease. Otherwise the thread gets DeadlockDetected immediately.
        """
        hold = self._holds.get()
        if hold.loss is not None:
            raise hold.loss
        transaction = self._database.borrow(session)
        hold.guarded = True
        try:
            exchange = self._database.exchange(self.name)
            self._database.run(guard.guard(exchange, hold.token, lambda: hold.lease), transaction)
        except LockLost as loss:
            raise self._lose(hold, loss) from loss.__cause__
        root = transaction.root
        if self._database.dialect.traits.one_writer and root is not None:
            self._database.callers.add_borrowed(root, self.name)
        yield hold.lease.fence

    @property
    def ttl(self) -> float:
        """The number of seconds for which dblock acquires and renews the lease."""
        return self._options.plan.ttl

    @property
    def renew_every(self) -> float:
        """The number of seconds between two renewals, by the keeper of this process."""
        return self._options.plan.interval

    @property
    def held(self) -> bool:
        """Whether this handle holds the lease, by the holder's own clock. No round trip."""
        hold = self._holds.find()
        return hold is not None and hold.alive

    def locked(self) -> bool:
        """Return whether any process holds a lease on the name, by the database's clock."""
        row = self._database.run(overview.show_row(self._database.exchange(self.name)))
        return row is not None and row.held

    @property
    def fence(self) -> int:
        """The fencing token of this hold: larger than the fence of every earlier hold of the name.

        Send it along with writes to other systems, and let them refuse smaller ones: Kleppmann,
        "How to do distributed locking" (2016). In another database :func:`dblock.fencing.gate`
        does so. Raises NotHeld if you do not hold the lease.
        """
        return self._holds.get().lease.fence

    @property
    def token(self) -> str:
        """The random text that proves ownership to the database. Keep it secret. Raises NotHeld."""
        return self._holds.get().token

    @property
    def remaining(self) -> float:
        """The number of seconds for which the holder may still act, or 0.0. No round trip."""
        hold = self._holds.find()
        if hold is None or not hold.alive:
            return 0.0
        return hold.lease.term.remaining(self._database.runtime.now())

    @property
    def margin(self) -> float:
        """The seconds from the loss of an expiring lease until the name is free.

        dblock reports the loss to the holder that much earlier. The value belongs to this hold, or
        else to the last one. Raises NotHeld if there was none.
        """
        return (self._holds.last or self._holds.get()).lease.term.margin

    @property
    def lost(self) -> Event:
        """An event that dblock sets when this hold, or else the last one, is lost.

        dblock sets it by itself: at the holder's deadline, or earlier if a renewal finds that the
        lease was taken away.
        """
        hold = self._holds.find() or self._holds.last
        return self._database.runtime.event() if hold is None else hold.lost

    def _current(self) -> LeaseHold | None:
        """Return the caller's hold."""
        return self._holds.find()

    def _lose(self, hold: LeaseHold, loss: LockLost, *, ending: bool = False) -> LockLost | NotHeld:
        """Record a loss that was found here, in the user's thread; return the error to raise.

        While this handle releases the hold, a loss that another call finds is ignored: our own
        release may have freed the row. Only the release itself (``ending``) reports a loss then.
        """
        if hold.ended and not ending:
            return hold.loss or self._holds.not_held()
        self._database.keeper().drop(hold)
        on_lost = hold.callbacks.on_lost
        if hold.lose(loss):
            hold.callbacks = NO_CALLBACKS  # the keeper may be about to call it
            self._tell(Kind.LOST, hold.since, loss)
            if on_lost is not None:
                guarded(partial(on_lost, loss))
        assert hold.loss is not None
        return hold.loss


class AcquirableLease(HeldLease, SingleHandle):
    """A lease that callers acquire."""

    @property
    def reentrant(self) -> bool:
        """Whether the holding thread may take it again, and no other thread may release it."""
        return self._options.reentrant
