"""The lease: a hold with an expiry, kept in a row, with no connection or transaction held."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from ..arguments import Seconds, check_after, check_ttl
from ..errors import DBLockError, NotAcquired
from ..events import Kind
from ..holding.lease_hold import LeaseHold
from ..protocol.inspect import look
from ..protocol.lease import Held, LeaseRequest
from ..protocol.observer import Change
from ..protocol.schedule import RenewalSchedule
from ..protocol.tokens import for_reader
from .held import AcquirableLease
from .taking import Taking

if TYPE_CHECKING:
    from ..protocol.release import Find


class TakeableLease(AcquirableLease):
    """A lease that callers take, alone or with others."""

    #: Whether others may share it, as a :class:`SharedLease`.
    _shares = False

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
            self.name,
            wait,
            one_writer=self._database.dialect.traits.one_writer,
            shares=self._shares,
        )
        if refusal is not None:
            return refusal
        database, names = self._database, self._database.contenders.names
        start, token = self._database.runtime.now(), self._database.runtime.token(16)
        request = LeaseRequest(
            self.name,
            for_reader(token) if self._shares else token,
            database.owner(options.label, options.client),
            options.plan.first,
            options.plan.short,
            names.known(self.name),
            self._shares,
        )
        taking = Taking(database, request)
        try:
            outcome = taking.run(options, self.strategy, start, wait)
            if isinstance(outcome, Held):
                hold = self._keep(taking, outcome, start)
                names.note(self.name, outcome.contended, hold.since)
                if outcome.group is not None:
                    names.note_refusal(self.name)  # the next acquire reads the name first
            if taking.waiter is not None:
                database.withdraw(taking.waiter)
        except BaseException as error:
            if taking.user_lock is not None:
                self._database.runtime.undo(error, taking.user_lock.drop)
            if not isinstance(error, DBLockError):  # KeyboardInterrupt: it may have been granted
                self._database.runtime.undo(error, partial(self._undo, taking))
            raise
        if isinstance(outcome, Held):
            return None
        names.note_refusal(self.name)
        if taking.user_lock is not None:
            taking.user_lock.drop()
        return database.not_acquired(self.name, outcome, wait)

    def _keep(self, taking: Taking, held: Held, start: float) -> LeaseHold:
        """Register the hold that was granted: with this handle, the keeper, and listeners."""
        options, token, user_lock = self._options, taking.request.token, taking.user_lock
        hold = taking.hold = LeaseHold(
            self.name,
            self._database.runtime,
            self._database.runtime.now(),
            lease=held,
            token=held.group or token,
            reader=token if self._shares else None,
            schedule=RenewalSchedule(options.plan, held.term, self._database.runtime.random()),
            database=self._database.kept,
            callbacks=options.callbacks,
            user_lock=user_lock if user_lock is not None and user_lock.kept else None,
        )
        self._holds.add(hold)
        if self._detached:
            self._forget_detached()
        self._database.keeper().keep(hold)
        self._tell(Kind.ACQUIRED, start)
        return hold

    def _undo(self, taking: Taking, find: Find = look) -> None:
        """Undo a try whose caller was interrupted before it got the lease."""
        if taking.hold is not None:
            self._holds.take(taking.hold, Change.ABANDONED)
            self._database.keeper().drop(taking.hold)
        taking.abandon(find)

    def _last(self, at_least: float) -> None:
        """Let holds last ``at_least`` seconds from their start, even if this process dies."""
        plan = replace(self._options.plan, at_least=at_least)
        self._options = self._options._replace(plan=plan)


class Lease(TakeableLease):
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

    def release(self, after: Seconds = 0.0) -> None:
        """Release the lease. One round trip.

        With ``after=N`` the name stays taken for another N seconds. No process holds the lease in
        that time, and then it expires.

        Raises NotHeld if there is no hold to release (:class:`Lease` says whose a hold is), and
        LockLost if the lease was lost before, by expiry, takeover or force. In that case your work
        may have overlapped with another holder's work.
        """
        self._database.runtime.finish(partial(self._release, check_after(after)))

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
        text = self._database.runtime.finish(partial(self._detach, length))
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
