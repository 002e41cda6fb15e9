"""Election: one of the processes that campaign for a name leads, and the others can observe it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from ..arguments import Seconds, check_interval, check_json, check_wait
from ..decorating import check_runnable
from ..errors import DBLockError, LockLost, NotAcquired, NotHeld, OutcomeUnknown, Unavailable
from ..protocol import election
from ..protocol.doubt import Doubt
from .held import HeldLease

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..holding.lease_hold import LeaseHold
    from ..lock_state import Leader
    from .held import AcquirableLease

T = TypeVar("T")

VALUE_MAX = 8 * 1024
#: The most levels to which a value's lists and objects may be nested.
DEPTH_MAX = 100
# Seconds, plus up to the same time at random: the pause before an endless campaign tries again
# after it could not reach the database.
PAUSE = 1.0

_log = logging.getLogger("dblock")


class Leadership(HeldLease):
    """One term of a leader: a lease that is held, made by :meth:`Election.campaign`.

    It is a lease that is already held: :attr:`fence` numbers the term, :meth:`guard` keeps a
    deposed leader from committing, and :meth:`check`, :attr:`lost` and ``on_lost`` report the loss.
    The term ends for you at your own deadline at the latest, even if the database cannot be
    reached. The end of ``with`` resigns.

    A term that is over does not come back: campaign again. A term has one ``with`` block.
    """

    _kind = "Leadership"

    def __init__(self, lease: AcquirableLease) -> None:
        super().__init__(lease._database, lease.name, lease._options)
        self._lease = lease  # takes the hold that is this term
        self._holds = lease._holds  # one hold, which both handles see
        self._entered = False
        self._proclaimed = Doubt()  # values without a reply

    def __enter__(self) -> Self:
        self.check()
        if self._entered:
            raise ValueError(f"a term of {self.name!r} has one block: campaign for another term")
        self._entered = True
        return self

    def begin(self, wait: float | None) -> NotAcquired | None:
        """Win the term, waiting up to ``wait`` seconds; return the refusal. Not part of the public
        surface."""
        refusal = self._lease._acquire(wait)
        if refusal is None:
            self._announce()
        return refusal

    def _announce(self) -> None:
        """Notify observers of the term. The term is valid without it too."""
        try:
            self._proclaim("null", self._database.dialect.timing.leaving)
        except BaseException as error:
            if not isinstance(error, DBLockError) or isinstance(error, LockLost):
                with contextlib.suppress(DBLockError):
                    self.release()
                raise
            _log.info("observers were not notified of the new term of %r: %s", self.name, error)

    def proclaim(self, value: Any) -> None:
        """Publish ``value`` with the leader, for the rest of the term.

        ``value`` is a value that JSON can express, at most 8 kB: an address, a part of the work.
        The next term begins without a value.

        Raises LockLost if the term is over, by your own clock or by the database's. Then the value
        was not written, or has ended with the term. Raises Unavailable if nothing was written, and
        OutcomeUnknown if the reply was lost: proclaim the value again. An earlier value does not
        replace a later one, unless its reply was lost behind a pooler.
        """
        self._proclaim(check_value(value), self._database.timeouts.socket)

    def _proclaim(self, value: str, patience: float) -> None:
        database, hold = self._database, self._holds.get()
        if hold.loss is not None:
            raise hold.loss
        if database.dialect.traits.one_writer:
            database.callers.refuse_as_writer(self.name, "proclaimed for")
        try:
            self._write_value(hold, value, patience)
        except LockLost as loss:
            raise self._lose(hold, loss) from loss.__cause__

    def _write_value(self, hold: LeaseHold, value: str, patience: float) -> None:
        database = self._database
        exchange = database.exchange(self.name, timeout=patience)
        database.run(
            election.proclaim(exchange, hold.token, lambda: hold.lease, value, self._proclaimed),
            orphaned=self._proclaimed.sessions,
        )

    def resign(self) -> None:
        """End the term, so that another process can lead immediately. See :meth:`release`.

        The end of ``with`` has nothing to do then.
        """
        self.release()

    def _leave(self) -> None:
        """End the ``with`` block's term, unless the block or another thread has resigned it."""
        try:
            super()._leave()
        except NotHeld:
            term = self._holds.last
            if term is None or not term.ended:  # the term belongs to the parent process
                raise
            if term.loss is not None:  # resigning found the loss
                raise term.loss from None

    def _end(self, hold: LeaseHold, after: float = 0.0) -> None:
        super()._end(hold, after)
        self._notify_observers()

    def _notify_observers(self) -> None:
        database = self._database
        # An observer that gets no notification finds the change when it polls.
        with contextlib.suppress(DBLockError):
            patience = database.dialect.timing.leaving
            database.run(election.call(database.exchange(self.name, timeout=patience)))


class Election:
    """An election, made by :meth:`Locks.election`: a lease whose holder leads.

    ``with`` a term, or let :meth:`run` do that again and again::

        with election.campaign() as term:
            term.proclaim({"address": address})
            while True:
                with Session(engine) as session, session.begin(), term.guard(session):
                    do_what_a_leader_does(session)

    Threads can share an Election. Each campaign is for a separate term.
    """

    #: The class of its terms; Django's election overrides it.
    term_class: type[Leadership] = Leadership

    def __init__(self, lease: AcquirableLease) -> None:
        self.name = lease.name
        self._lease = lease
        self._database = lease._database

    @property
    def ttl(self) -> float:
        """The number of seconds without a renewal after which a leader is deposed."""
        return self._lease.ttl

    def __repr__(self) -> str:
        return f"<Election {self.name!r} ttl={self.ttl:g}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} belongs to this process, and you cannot send it to another: make Locks "
            "there, from the URL"
        )

    # --- leading -----------------------------------------------------------------------------

    def campaign(self, wait: Seconds | None = None) -> Leadership:
        """Return a term in which you lead, waiting at most ``wait`` seconds for it.

        None waits for ever, 0 not at all. Raises NotAcquired if another process leads until then:
        the error names the leader. Other errors are the same as for :meth:`Lease.acquire`: a thread
        that already leads would wait for itself and gets DeadlockDetected. Raises LockLost if the
        term is lost as soon as it is won, and ValueError if the name belongs to a semaphore.

        Keep the term: if you drop it, it expires.
        """
        checked = check_wait(wait)
        term = self.stand()
        refusal = term.begin(checked)
        if refusal is not None:
            raise refusal
        return term

    def stand(self, **callbacks: Any) -> Leadership:
        """Return a term that has not begun. Not part of the public surface."""
        options = self._lease._options
        given = options._replace(callbacks=options.callbacks._replace(**callbacks))
        return self.term_class(type(self._lease)(self._database, self.name, given))

    def lead(self, term: Leadership) -> None:
        """Win a term, without a deadline. Not part of the public surface."""
        runtime = self._database.runtime
        while True:
            try:
                refusal = term.begin(None)
            except (Unavailable, OutcomeUnknown, LockLost) as error:
                _log.warning("campaigning for %r again in a moment: %s", self.name, error)
                runtime.sleep(PAUSE * (1 + runtime.random()))
                continue
            if refusal is not None:  # its RetryPolicy has an end
                raise refusal
            return

    def run(self, work: Callable[[Leadership], T]) -> T:
        """Campaign for ever, and call ``work`` with each term. Return what ``work`` returns.

        | ``work`` | then |
        |---|---|
        | returns, and the term was held until then | :meth:`run` resigns and returns the same |
        | resigns, and returns | :meth:`run` returns the same |
        | returns, or raises LockLost, when the term was lost | :meth:`run` campaigns again |
        | raises anything else | :meth:`run` resigns and raises that |

        If the database cannot be reached, :meth:`run` logs that and campaigns again.
        """
        check_runnable(work, taker="election.run")
        while True:
            term = self.stand()
            self.lead(term)
            try:
                with term:
                    return work(term)
            except LockLost:
                if not term.lost.is_set():  # another lock of the user's was lost
                    raise

    # --- observing ---------------------------------------------------------------------------

    def leader(self) -> Leader | None:
        """Return the current leader, by the database's clock, or None. One round trip."""
        database = self._database
        return database.run(election.leader(database.exchange(self.name)))

    def observe(self, interval: Seconds = 0.5) -> Observation:
        """Return an iterator over the leaders: the current leader first, then each change.

        A change is a new leader, a new value, or the end of a term. If nobody leads, the iterator
        yields None. If changes come faster than you ask for them, you miss some of them, but never
        the last one.

        On PostgreSQL the server notifies dblock of changes. On other databases, and behind a
        pooler, dblock polls every ``interval`` seconds. On all databases it also polls when a term
        should be over, and every few seconds.

        It raises Unavailable if the database cannot be reached. You can continue with it after
        that.
        """
        return self._observation(check_interval(interval))

    def _observation(self, interval: float) -> Observation:
        return Observation(self._database, self.name, interval)


class Observation:
    """An endless iterator over the leaders, made by :meth:`Election.observe`."""

    def __init__(self, database: Database, name: str, interval: float) -> None:
        self._database = database
        self._name = name
        self._interval = interval
        self._before = election.UNSEEN
        self._listen()

    def _listen(self) -> None:
        self._database.contenders.local_queue.notifier.observed_by(self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Leader | None:
        database = self._database
        found = database.run(
            election.observe(database.exchange(self._name), self._before, self._interval, object())
        )
        self._before = election.seen(found)
        return found


def _is_deeper(value: Any, most: int) -> bool:
    """Whether lists and objects are nested more than ``most`` deep."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list | tuple)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def check_value(value: Any) -> str:
    """Return what a leader proclaims as JSON."""
    if _is_deeper(value, DEPTH_MAX):  # observers parse it, and their stacks may be smaller
        raise ValueError(f"a value is nested at most {DEPTH_MAX} deep")
    text = check_json("a value", value)
    if len(text) > VALUE_MAX:
        raise ValueError(
            f"a value is at most {VALUE_MAX} bytes of JSON, this one has {len(text)}: keep the "
            "rest in your own table, and its key in the value"
        )
    return text
