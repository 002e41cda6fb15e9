"""The lease: a hold with an expiry, kept in a row, with no connection or transaction held."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from ..arguments import Seconds, check_after, check_ttl
from ..errors import DBLockError, LockLost, NotAcquired, NotHeld, OutcomeUnknown
from ..events import Kind
from ..holding.handle_holds import HandleHolds
from ..holding.keeper import guarded
from ..holding.lease_hold import LeaseHold
from ..policy import how_often
from ..protocol import guard, overview, release, renew
from ..protocol.acquire import acquire
from ..protocol.lease import Held, LeaseRequest
from ..protocol.observer import Change
from ..protocol.renew import Asked
from ..protocol.schedule import RenewalSchedule
from ..protocol.state import Renewal
from ..protocol.steps import Procedure, Query
from ..protocol.term import Term
from ..protocol.tokens import for_reader
from .base import SingleHandle

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..holding.holds import CallerHolds
    from ..io.borrowed import Borrowable
    from ..io.runtime import Event
    from ..io.user_locks import UserLock
    from ..protocol.release import Find
    from ..protocol.waiters import Waiter
    from .options import LeaseOptions


class Lease(SingleHandle):
    """A named lease, made by :meth:`Locks.lease`.

    Use it as a context manager, as a decorator, or with :meth:`acquire` and :meth:`release`.

    Threads can share one Lease. Each acquisition is a separate hold. Its owner depends on the kind
    of lease, as with Python's own locks:

    | | ordinary: as `threading.Lock` | `reentrant=True`: as `threading.RLock` |
    |---|---|---|
    | a hold belongs to | the Lease | the thread that took it |
    | the same thread acquires | DeadlockDetected; False if it does not wait | counted |
    | another thread acquires | waits, or is refused | waits, or is refused |
    | another thread releases | ends the hold | NotHeld |
    | fence, token, check, renew, guard in another thread | as in the first thread | NotHeld |
    | held, remaining in another thread | as in the first thread | False, 0.0 |
    | release twice | NotHeld, or ends a hold that another thread has taken since | NotHeld |
    | through another Lease, or in a forked child | NotHeld, False | NotHeld, False |

    A thread's own hold has priority, lost or not. So a thread learns of its own loss, and does not
    release a hold that another thread has taken since. In a thread without a hold, :attr:`lost`
    belongs to the newest hold. The end of ``with`` is a release.

    While you hold the lease, the process's keeper renews it after each third of its TTL, for as
    long as this handle exists. If you drop the handle, the lease expires.

    A lease cannot stop a holder that was paused past its expiry. dblock can tell the holder
    (:attr:`lost`, ``on_lost``, :meth:`check`, the end of ``with``) and keep it from committing
    (:meth:`guard`).
    """

    strategy = "lease"
    #: Whether others may share it, as a :class:`SharedLease`.
    _shares = False
    #: The callers whose last hold was detached: the end of their ``with`` releases nothing.
    _detached: WeakSet[CallerHolds] | None = None

    def __init__(self, database: Database, options: LeaseOptions) -> None:
        super().__init__(options.wait, database.runtime)
        self.name = options.name
        self._database = database
        self._options = options
        self._holds: HandleHolds[LeaseHold] = HandleHolds(
            "lease", self.name, database.callers, private=options.reentrant
        )

    @property
    def reentrant(self) -> bool:
        """Whether the holding thread may take it again, and no other thread may release it."""
        return self._options.reentrant

    def __repr__(self) -> str:
        state = "held" if self.held else "not held"
        return f"<Lease {self.name!r} ttl={self.ttl:g} {state}>"

    # --- acquire and release -----------------------------------------------------------------

    def _try_within(self, wait: float | None) -> NotAcquired | None:
        """Take the lease, waiting up to ``wait`` seconds. One round trip when the name is free.

        Raises DeadlockDetected when this thread would wait for itself, OutcomeUnknown when the
        reply was lost and dblock could not find out the outcome, Unavailable when the database is
        away.
        """
        callers, options = self._database.callers, self._options
        if options.reentrant:
            mine = self._holds.find()
            if mine is not None and mine is callers.find(self.name):
                mine.count += 1
                return None
        refusal = callers.refuse_self_wait(
            self.name, wait, one_writer=self._database.dialect.one_writer, shares=self._shares
        )
        if refusal is not None:
            return refusal
        contenders = self._database.contenders
        owner, names = self._database.owner(options.label), contenders.names
        plan, token = options.plan, self._runtime.token(16)
        if self._shares:
            token = for_reader(token)
        request = LeaseRequest(
            self.name, token, owner, plan.first, plan.short, names.known(self.name), self._shares
        )
        start = self._runtime.now()
        waiters: list[Waiter] = []  # has one once the caller has to wait

        def waiter() -> Waiter:
            waiters.append(self._database.waiter(self.name, self.strategy, start, options.label))
            return waiters[0]

        wait_strategy = options.retry.wait
        # Only one of this process's waiters with the same poll interval is in the database's queue.
        # So waiters with another interval need a local queue of their own.
        often = None if wait_strategy is None else how_often(wait_strategy)
        line = self.name, often, options.fair
        place = None if wait == 0 else contenders.local_queue.first_place(line)
        # A reader asks before it waits, if no caller of this process is waiting: it may join the
        # present readers. It never waits in the server, only in the name's queue, where it polls
        # and can join them.
        hot = wait != 0 and (place is None or (not self._shares and names.hot(self.name, start)))
        in_server = self._database.dialect.can_wait_in_server and wait != 0 and not self._shares
        user_lock = contenders.user_locks.user_lock(hot) if in_server else None
        hold: LeaseHold | None = None
        orphaned: list[Query[bool]] = []
        try:
            procedure = acquire(
                self._database.dialect,
                request,
                options.retry,
                fair=options.fair,
                start=start,
                wait=wait,
                patience=self._database.dialect.timeouts.socket,
                line=line,
                waiter=waiter,
                can_wait_in_server=user_lock is not None,
                hot=hot,
                look_first=(wait == 0 or self._shares) and names.taken(self.name),
            )
            outcome = self._database.run(
                procedure, orphaned=orphaned, user_lock=user_lock, waiter=place
            )
            if isinstance(outcome, Held):
                hold = self._hold(outcome, request.token, user_lock)
                names.note(self.name, outcome.contended, hold.since)
                if outcome.group is not None:
                    names.note_refusal(self.name)  # the next acquire reads the name first
                self._keep(hold, start)
            if waiters:
                self._database.withdraw(waiters[0])
        except BaseException as error:
            if user_lock is not None:
                self._runtime.undo(error, user_lock.drop)
            if not isinstance(error, DBLockError):  # KeyboardInterrupt: it may have been granted
                undo = partial(self._undo, hold, request, orphaned, waiters)
                self._runtime.undo(error, undo)
            raise
        if isinstance(outcome, Held):
            return None
        names.note_refusal(self.name)
        if user_lock is not None:
            user_lock.drop()
        return self._database.not_acquired(self.name, outcome, wait)

    def _hold(self, held: Held, token: str, user_lock: UserLock | None = None) -> LeaseHold:
        """Return the hold of a lease that was granted under ``token``."""
        options = self._options
        return LeaseHold(
            self.name,
            self._runtime,
            self._runtime.now(),
            lease=held,
            token=held.group or token,
            reader=token if self._shares else None,
            schedule=RenewalSchedule(options.plan, held.term, self._runtime.random()),
            database=self._database.kept,
            on_danger=options.on_danger,
            on_lost=options.on_lost,
            user_lock=user_lock if user_lock is not None and user_lock.kept else None,
        )

    def _keep(self, hold: LeaseHold, start: float) -> None:
        """Register a new hold: with this handle, with the keeper, with listeners."""
        self._holds.add(hold)
        if self._detached:
            self._forget_detached()
        self._database.keeper().keep(hold)
        self._tell(Kind.ACQUIRED, start)

    def _undo(
        self,
        hold: LeaseHold | None,
        request: LeaseRequest,
        orphaned: list[Query[bool]],
        waiters: list[Waiter],
    ) -> None:
        """Undo an acquire whose caller was interrupted before it got the lease."""
        self._unkeep(hold)
        self._abandon(request, orphaned, waiters)

    def _unkeep(self, hold: LeaseHold | None) -> None:
        """Unregister the hold of a caller that was interrupted before it got the hold."""
        if hold is not None:
            self._holds.take(hold, Change.ABANDONED)
            self._database.keeper().drop(hold)

    def _last(self, at_least: float) -> None:
        """Let holds last ``at_least`` seconds from their start, even if this process dies."""
        plan = replace(self._options.plan, at_least=at_least)
        self._options = self._options._replace(plan=plan)

    def release(self, after: Seconds = 0.0) -> None:
        """Release the lease. One round trip.

        With ``after=N`` the name stays taken for another N seconds. No process holds the lease in
        that time, and then it expires.

        Raises NotHeld if there is no hold to release (:class:`Lease` says whose a hold is), and
        LockLost if the lease was lost before, by expiry, takeover or force. In that case your work
        may have overlapped with another holder's work.
        """
        self._runtime.finish(partial(self._release, check_after(after)))

    def detach(self, ttl: Seconds | None = None) -> str:
        """End this process's hold without freeing the name, for another process to continue it.

        Return a text that names the hold. :meth:`Locks.attach` takes it, in any process, and
        continues the same hold: no other process has held the name in between, and the fence is the
        same. The text is as secret as :attr:`token`.

        The other process has ``ttl`` seconds to attach it (the lease's own TTL if None). Then the
        hold expires. This handle no longer holds the lease, and the end of ``with`` releases
        nothing.

        Raises NotHeld if there is no hold, LockLost if it was lost, and RuntimeError for a
        reentrant lease that was taken more than once.
        """
        length = self.ttl if ttl is None else check_ttl(ttl)
        text = self._runtime.finish(partial(self._detach, length))
        assert text is not None  # `finish` waits for the result
        return text

    def _detach(self, ttl: float) -> str:
        hold = self._holds.get(ending=True)
        if hold.count > 1:
            raise RuntimeError(
                f"the lease on {self.name!r} was taken {hold.count} times: detach it when all but "
                "the outermost `with` have ended"
            )
        self._end(hold, ttl)
        assert hold.caller is not None
        vars(self).setdefault("_detached", WeakSet()).add(hold.caller)  # at once, for all threads
        return f"{hold.token}.{hold.lease.fence}.{self.name}"

    def leave(self) -> None:
        """End the ``with`` block's hold, unless it was detached and goes on elsewhere."""
        if self._detached and self._forget_detached():
            return
        self._runtime.finish(self._release)

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
        if self._database.dialect.one_writer:
            self._database.callers.refuse_as_writer(self.name, "released")
        if not self._holds.take(hold):
            raise self._holds.not_held()
        now = self._runtime.now()
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
        with_user_lock = hold.user_lock is not None and hold.user_lock.kept
        ending: Procedure[object] = release.release(
            self._database.dialect,
            self.name,
            hold.token,
            hold.lease,
            self._database.dialect.timeouts.socket,
            now,
            reader=hold.reader,
            with_user_lock=with_user_lock,
            guarded=hold.guarded,
            in_doubt=hold.in_doubt,
        )
        if after:
            renewal = Renewal(self.name, hold.token, hold.schedule.length(now, after))
            ending = renew.renew(self._database.dialect, Asked(renewal, hold.lease), now)
            if hold.user_lock is not None:
                hold.user_lock.drop()
        self._database.run(ending, user_lock=hold.user_lock)

    # --- while holding it --------------------------------------------------------------------

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
        if self._database.dialect.one_writer:
            self._database.callers.refuse_as_writer(self.name, "renewed")
        with hold.renewed_here(hold.lease.term.remaining(self._runtime.now())):
            if hold.ended or hold.loss is not None:
                raise hold.loss or self._holds.not_held()
            held, now = hold.lease, self._runtime.now()
            length = hold.schedule.length(now, length)
            asked = Term(now, length)
            if asked.deadline < held.term.deadline:
                # Once the renewal is sent, the earlier expiry may apply, whatever the reply is.
                self._database.keeper().moved(hold, asked)
            renewal = Asked(Renewal(self.name, hold.token, length), held)
            try:
                term = self._database.run(renew.renew(self._database.dialect, renewal, now))
            except LockLost as loss:
                raise self._lose(hold, loss) from loss.__cause__
            if not self._database.keeper().moved(hold, term):
                raise hold.loss or self._holds.not_held()

    def check(self) -> None:
        """Return if you still hold the lease, by the holder's own clock; raise LockLost if not.

        No round trip. Call it before each step that must not happen without the lock. Raises
        NotHeld if you have not taken the lease.
        """
        hold = self._holds.get()
        if hold.loss is not None:
            raise hold.loss
        if hold.lease.term.over(self._runtime.now()):
            raise self._lose(hold, hold.ran_out())

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
            self._database.run(
                guard.guard(
                    self._database.dialect,
                    self.name,
                    hold.token,
                    lambda: hold.lease,
                    self._database.dialect.timeouts.socket,
                    self._runtime.now(),
                ),
                transaction,
            )
        except LockLost as loss:
            raise self._lose(hold, loss) from loss.__cause__
        root = transaction.root
        if self._database.dialect.one_writer and root is not None:
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
        now = self._runtime.now()
        row = self._database.run(overview.show_row(self._database.dialect, self.name, now))
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
        return hold.lease.term.remaining(self._runtime.now())

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
        return self._runtime.event() if hold is None else hold.lost

    # --- inside ------------------------------------------------------------------------------

    def current(self) -> LeaseHold | None:
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
        if hold.lose(loss):
            hold.on_danger = None  # the keeper may be about to call it
            self._tell(Kind.LOST, hold.since, loss)
            if self._options.on_lost is not None:
                guarded(partial(self._options.on_lost, loss))
        assert hold.loss is not None
        return hold.loss

    def _abandon(
        self,
        request: LeaseRequest,
        orphaned: list[Query[bool]],
        waiters: list[Waiter],
        find: Find | None = None,
    ) -> None:
        """Release the hold that an interrupted acquire may have been granted; if that fails it
        expires.

        ``orphaned`` has the queries that end the sessions in which its last statement may still
        run. ``find`` locates the slot that was granted; only a semaphore needs it.
        """
        database = self._database
        # A caller should not wait for this as long as a TTL. If the runtime runs it in the
        # background, no caller waits, so it may try that long.
        patience = request.ttl if self._runtime.lingers else database.timeouts.connect

        def abandon() -> None:
            with contextlib.suppress(Exception):
                start = self._runtime.now()
                database.run(
                    release.abandon(database.dialect, request, orphaned, patience, start, find)
                )
            for waiter in waiters:
                with contextlib.suppress(Exception):
                    database.withdraw(waiter)

        self._runtime.finish(abandon, cancelled=True)
