"""The lease of a quorum: one name, held at a majority of its members."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from ..arguments import check_ttl
from ..errors import (
    DBLockError,
    DeadlockDetected,
    LockLost,
    NotAcquired,
    OutcomeUnknown,
    Unavailable,
    Unsupported,
)
from ..events import Kind
from ..handles.held import AcquirableLease, HeldLease
from ..handles.taking import Taking
from ..holding.lease_hold import LeaseHold
from ..protocol.ballot import Holding, Split, Unreachable
from ..protocol.inspect import expired
from ..protocol.lease import Held, LeaseRequest, Refused
from ..protocol.observer import Change
from ..protocol.renew import Asked, RenewalFailed, unreachable
from ..protocol.retry import PAUSE
from ..protocol.schedule import RenewalSchedule
from ..protocol.term import Term
from .attempt import QuorumAttempt

if TYPE_CHECKING:
    from ..arguments import Seconds
    from ..handles.options import LeaseOptions
    from .members import Members

# Seconds between two tries at the members that refused a waiter which has the name at the first
# member of its queue: the release there may arrive before the others.
AGAIN, AGAIN_MAX = 0.005, 0.25
# A waiter that has the name at one member gives it back after this share of the TTL.
KEEPS = 1 / 3


@dataclass(slots=True, eq=False, kw_only=True)
class QuorumHold(LeaseHold):
    """A lease that a majority has granted."""

    attempt: QuorumAttempt


class HeldAtMajority(HeldLease):
    """What a holder does with a hold that a majority has granted."""

    @property
    def _members(self) -> Members:
        return cast("Members", self._database)

    def renew(self, ttl: Seconds | None = None) -> None:
        length = self.ttl if ttl is None else check_ttl(ttl)
        self._members.check_open()
        hold, now = self._holds.get(), self._database.runtime.now()
        if hold.alive:
            # It may wait for a silent member. So it comes first: meanwhile the keeper renews.
            self._members.records.allow(hold.schedule.length(now, length), self.name)
        super().renew(ttl)

    def _ask_to_renew(self, asked: Asked, now: float) -> Term:
        # Again, for free as a rule: another thread may have taken the lease anew meanwhile.
        self._members.records.allow(asked.renewal.ttl, self.name)
        term, away = asked.held.term, "no majority has answered"
        while not term.over(now):
            (outcome,) = self._members.renew_all([asked], term.remaining(now))
            now = self._database.runtime.now()
            if isinstance(outcome, LockLost):
                raise outcome
            if isinstance(outcome, RenewalFailed):
                away = str(outcome.failure)
                self._database.runtime.sleep(PAUSE)
                now = self._database.runtime.now()
            elif not term.over(now):
                return outcome
            else:
                raise expired(self.name)
        raise unreachable(self.name, away)

    def _give_back(self, hold: LeaseHold, after: float, now: float) -> None:
        # The keeper no longer renews it, whether the release succeeds or not.
        self._database.keeper().drop(hold)
        hold.end(self._members.timeouts.socket, now)
        assert isinstance(hold, QuorumHold)
        outcomes, free = hold.attempt.release()
        losses = [outcome for outcome in outcomes if isinstance(outcome, LockLost)]
        if len(losses) > len(outcomes) - self._members.majority:  # before all others: it was lost
            raise losses[0]
        if sum(outcome is None for outcome in outcomes) + free >= self._members.majority:
            return
        raise next(
            (one for one in outcomes if one is not None and not isinstance(one, LockLost)),
            Unavailable(f"no majority has released {self.name!r}", name=self.name),
        )

    @contextlib.contextmanager
    def guard(self, session: object) -> Iterator[NoReturn]:
        """Raise Unsupported: a transaction is in one database, and the lease in several."""
        raise Unsupported(
            "a quorum's lease cannot be guarded: a transaction is in one database, and the lease "
            "in several. Let that database refuse an old fence: dblock.fencing.gate does so",
            name=self.name,
        )
        yield  # a generator, as the others' guard


class QuorumLease(HeldAtMajority, AcquirableLease):
    """A named lease at a majority of databases, made by :meth:`Quorum.lease`.

    Use it as you use a :class:`Lease`: as a context manager, as a decorator, or with
    :meth:`acquire` and :meth:`release`. Threads can share it. The process's keeper renews it.

    It has no guard, since a transaction is in one database. Let the systems that you write to
    refuse an old :attr:`fence`: :func:`dblock.fencing.gate` does that in another database.
    """

    _kind = "QuorumLease"

    def __init__(self, members: Members, name: str, options: LeaseOptions) -> None:
        # To a handle, the members are one database.
        super().__init__(cast(Any, members), name, options)

    # --- taking ------------------------------------------------------------------------------

    def _try_within(self, wait: float | None) -> NotAcquired | None:
        """Take the lease, waiting up to ``wait`` seconds.

        One round trip to all members at once when the name is free and their fences agree; two if
        they do not. Raises DeadlockDetected when this thread would wait for itself, OutcomeUnknown
        when a majority may have granted the name and could not be asked, Unavailable when no
        majority can be reached.
        """
        callers = self._database.callers
        if self._options.reentrant:
            mine = self._holds.find()
            if mine is not None and mine is callers.find(self.name):
                mine.count += 1
                return None
        refusal = callers.refuse_self_wait(self.name, wait, one_writer=False, shares=False)
        if refusal is not None:
            return refusal
        taking = QuorumTaking(self._members, self.name, self._options)
        start = self._database.runtime.now()
        try:
            outcome = taking.run(start, wait)
            if isinstance(outcome, Held):
                self._keep(taking, outcome, start)
        except BaseException as error:
            self._database.runtime.undo(error, partial(self._undo, taking))
            raise
        if isinstance(outcome, Held):
            return None
        refused = self._members.records.refusal(outcome)
        return self._members.databases[0].not_acquired(self.name, refused, wait)

    def _keep(self, taking: QuorumTaking, held: Held, start: float) -> None:
        """Register the hold that was granted: with this handle, the keeper, and listeners."""
        attempt, options, runtime = taking.attempt, self._options, self._database.runtime
        assert attempt is not None
        hold = taking.hold = QuorumHold(
            self.name,
            runtime,
            runtime.now(),
            lease=held,
            token=attempt.token,
            schedule=RenewalSchedule(options.plan, held.term, runtime.random()),
            database=self._members,
            callbacks=options.callbacks,
            attempt=attempt,
        )
        self._holds.add(hold)
        self._database.keeper().keep(hold)
        self._tell(Kind.ACQUIRED, start)

    def _undo(self, taking: QuorumTaking) -> None:
        """Undo a try that failed, or whose caller was interrupted."""
        if taking.hold is not None:
            self._holds.take(taking.hold, Change.ABANDONED)
            self._database.keeper().drop(taking.hold)
        if taking.attempt is not None:
            self._database.runtime.finish(taking.attempt.abandon, cancelled=True)
        if taking.queueing is not None:
            taking.queueing.abandon()

    def locked(self) -> bool:
        """Return whether a majority of the members has a lease on the name, or may have it: a
        member that does not answer may."""
        return self._members.held(self.name)


class QueueGrant(NamedTuple):
    """The grant of one member's queue, by its answer to ``request``."""

    member: int
    request: LeaseRequest
    held: Held


class QuorumTaking:
    """One caller's tries to take a lease of a quorum, and its wait between them."""

    def __init__(self, members: Members, name: str, options: LeaseOptions) -> None:
        self._members = members
        self._name = name
        self._options = options
        self._runtime = members.runtime
        #: The last attempt: the hold, if it succeeded.
        self.attempt: QuorumAttempt | None = None
        self.hold: QuorumHold | None = None
        #: The try in a member's queue, until the attempt has what that has granted.
        self.queueing: Taking | None = None

    def run(self, start: float, wait: float | None) -> Held | Refused:
        """Try until the name is held, ``wait`` seconds from ``start`` are over, or the retry policy
        gives up.

        While no majority can be reached, it tries for :attr:`.Timeouts.socket`, as a lease of one
        database does. Raises what :meth:`_try_once` raises.
        """
        until = float("inf") if wait is None else start + wait
        policy, number = self._options.retry, 0
        reach: float | None = None
        #: The holder that most members name is worth more than the one that a queue names.
        refused: Refused | None = None
        queued = False
        while True:
            try:
                verdict = self._try_once(until, queued=queued)
            except (Unavailable, OutcomeUnknown):
                now = self._runtime.now()
                reach = now + self._members.timeouts.socket if reach is None else reach
                if now >= min(until, reach):
                    raise
                self._runtime.sleep(min(4 * PAUSE, until - now))
            else:
                if isinstance(verdict, Held):
                    return verdict
                if isinstance(verdict, Refused):
                    return refused or verdict
                reach, refused, now = None, verdict.refused, self._runtime.now()
                if now >= until:
                    return refused
                # The queue counts its own tries. These are the ones after it has granted the name.
                if queued and not policy.endless:
                    number += 1
                    left = None if wait is None else until - now
                    sleep = policy.sleep_after(self._name, number, now - start, left)
                    if sleep is None:
                        return refused
                    self._runtime.sleep(sleep)
            queued = True

    def _try_once(self, until: float, *, queued: bool) -> Held | Split | Refused:
        """Ask the members once; if it is ``queued``, after the queue of one has granted the name.

        Return the refusal of the queue if the wait or the retry policy is over there. Raises
        Unavailable and OutcomeUnknown when no majority could be asked.
        """
        self._members.check_open()
        listed = self._members.records.prepare(self._options.plan.ttl)
        first = self._wait_in_queue(until) if queued else None
        if isinstance(first, Refused):
            return first
        request = self._request() if first is None else self._request(first.request.token)
        attempt = self.attempt = QuorumAttempt(self._members, request, listed)
        if first is not None:
            verdict = self._take_the_rest(attempt, first, until)
        else:
            if queued:  # no member could be asked: not all waiters at once
                self._runtime.sleep(PAUSE * self._runtime.random())
            verdict = self._decided(attempt)
        if isinstance(verdict, Holding):
            attempt.keep()
            return verdict.held
        attempt.abandon()
        self.attempt = None
        if isinstance(verdict, Unreachable):
            raise self._members.unreachable(verdict.errors, self._name)
        return verdict

    def _decided(self, attempt: QuorumAttempt) -> Holding | Split | Unreachable:
        """Return the verdict, unless the term of the hold is over by now."""
        verdict = attempt.decide()
        if isinstance(verdict, Holding) and verdict.held.term.over(self._runtime.now()):
            return Unreachable((Unavailable(f"the replies for {self._name!r} came too late"),))
        return verdict

    def _take_the_rest(
        self, attempt: QuorumAttempt, first: QueueGrant, until: float
    ) -> Holding | Split | Unreachable:
        """Ask the other members while one member's queue has granted the name. The release that
        granted it there may not have arrived at the others yet."""
        attempt.ballot.granted(first.member, first.held, proven=False)
        self.queueing = None
        now = self._runtime.now()
        last, pause = min(until, now + KEEPS * self._options.plan.ttl), AGAIN
        verdict = self._decided(attempt)
        while isinstance(verdict, Split) and self._runtime.now() < last:
            self._runtime.sleep(pause * (0.5 + self._runtime.random()))
            pause = min(2 * pause, AGAIN_MAX)
            verdict = self._decided(attempt)
        return verdict

    def _wait_in_queue(self, until: float) -> QueueGrant | Refused | None:
        """Wait until a member's queue grants the name: at the first of the name's members that can
        be asked, so that all waiters wait in one queue. Return None if no member can be asked.

        Raises DeadlockDetected. Any other error is one member's, and there are more.
        """
        for number in self._members.order(self._name):
            if number in self._members.suspects:
                continue
            database = self._members.databases[number]
            start = self._runtime.now()
            left = None if until == float("inf") else max(0.0, until - start)
            request = self._request()()
            taking = self.queueing = Taking(database, request)
            outcome: Held | Refused | DBLockError
            try:
                outcome = taking.run(self._options, "lease", start, left)
            except DBLockError as error:
                error.__traceback__ = None  # its frames would keep the caller's handle alive
                outcome = error
            finally:
                if taking.user_lock is not None:
                    taking.user_lock.drop()
            if taking.waiter is not None:
                with contextlib.suppress(DBLockError):  # its row expires
                    database.withdraw(taking.waiter)
            if isinstance(outcome, Held):
                return QueueGrant(number, request, outcome)
            self.queueing = None
            if isinstance(outcome, Refused):
                return outcome
            if isinstance(outcome, DeadlockDetected):
                raise outcome
            if isinstance(outcome, Unavailable | OutcomeUnknown):
                self._members.suspects.add(number)
        return None

    def _request(self, token: str | None = None) -> partial[LeaseRequest]:
        """Return what makes equal requests, with a new token if none is given."""
        options, database = self._options, self._members.databases[0]
        return partial(
            LeaseRequest,
            self._name,
            self._runtime.token(16) if token is None else token,
            database.owner(options.label, options.client),
            options.plan.first,
        )
