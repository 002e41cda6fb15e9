"""Election: of the processes that campaign for a name one leads, and the others know who."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from .arguments import Seconds, check_interval, check_json, check_wait
from .errors import DBLockError, LockLost, NotAcquired, NotHeld, OutcomeUnknown, Unavailable
from .functions import check_runnable
from .lease import Lease
from .protocol import election
from .protocol.doubt import Doubt

if TYPE_CHECKING:
    from .database import Database
    from .holding.lease_hold import LeaseHold
    from .lease_options import LeaseOptions
    from .lock_state import Leader

T = TypeVar("T")

VALUE_MAX = 8 * 1024
# Seconds before who campaigns for ever tries again, if the database is away: so many, and up to as
# many more by chance.
PAUSE = 1.0

_log = logging.getLogger("dblock")


class Leadership(Lease):
    """One term of a leader: a lease that is held, made by :meth:`Election.campaign`.

    It is a :class:`Lease` in all but its beginning: :attr:`fence` numbers the term,
    :meth:`guard` keeps a leader that was deposed from committing, and :meth:`check`, :attr:`lost`
    and ``on_lost`` tell it. You believe in your term until your own deadline and no longer,
    whatever the database says. The end of ``with`` resigns.

    A term that is over does not come back. Campaign again. It has one ``with`` block, too.
    """

    def __init__(self, database: Database, options: LeaseOptions) -> None:
        super().__init__(database, options)
        self._entered = False
        self._proclaimed = Doubt()  # values that had no reply

    def __repr__(self) -> str:
        return f"<Leadership {self.name!r} ttl={self.ttl:g} {'held' if self.held else 'not held'}>"

    def __enter__(self) -> Self:
        self.check()
        if self._entered:
            raise ValueError(f"a term of {self.name!r} has one block: campaign for another term")
        self._entered = True
        return self

    def __call__(self, function: Any) -> NoReturn:
        raise TypeError("a term is no decorator: election.run(work) calls a function in each term")

    def try_within(self, wait: float | None) -> NotAcquired | None:
        raise ValueError(
            f"a term is not acquired: {self.name!r} has a new one for each election.campaign()"
        )

    def begin(self, wait: float | None) -> NotAcquired | None:
        """Win the term, waiting as long; return the refusal. Not part of the public surface."""
        refusal = super().try_within(wait)
        if refusal is None:
            # Those who observe are told of the term with this. It is one without it too.
            try:
                self._proclaim("null", self._database.dialect.timing.leaving)
            except BaseException as error:
                if not isinstance(error, DBLockError) or isinstance(error, LockLost):
                    with contextlib.suppress(DBLockError):
                        super().release()
                    raise
                _log.info("nobody was told of the new term of %r: %s", self.name, error)
        return refusal

    def proclaim(self, value: Any) -> None:
        """Let everybody who asks for the leader have ``value``, for the rest of the term.

        ``value`` is what JSON can express, at most 8 kB of it: an address, a partition of the work.
        The next term begins without a value.

        Raises LockLost if the term is over, by your own clock or by the database's. Then nothing
        was written, or what was written counts no more. Raises Unavailable if nothing was written,
        and OutcomeUnknown if no reply came: proclaim it again. What you proclaim later counts: an
        earlier value does not arrive after it, unless it was lost behind a pooler.
        """
        self._proclaim(check_value(value), self._database.timeouts.socket)

    def _proclaim(self, value: str, patience: float) -> None:
        database, hold = self._database, self._holds.get()
        if hold.loss is not None:
            raise hold.loss
        if database.dialect.one_writer:
            database.callers.refuse_as_writer(self.name, "proclaimed for")
        try:
            database.run(
                election.proclaim(
                    database.dialect,
                    self.name,
                    hold.token,
                    lambda: hold.lease,
                    value,
                    self._proclaimed,
                    patience,
                    self._runtime.now(),
                ),
                orphaned=self._proclaimed.sessions,
            )
        except LockLost as loss:
            raise self._lose(hold, loss) from loss.__cause__

    def detach(self, ttl: Seconds | None = None) -> NoReturn:
        """Raise TypeError: who leads elsewhere proclaims a value of its own."""
        raise TypeError(
            f"a term of {self.name!r} cannot be detached: what it proclaimed is of this process. "
            "Resign, and let the other process campaign"
        )

    def resign(self) -> None:
        """Give the name back: whoever campaigns has it at once. See :meth:`Lease.release`.

        The end of ``with`` has nothing to do then.
        """
        self.release()

    def leave(self) -> None:
        """End the ``with`` block's term, unless the block or another thread has resigned it."""
        try:
            super().leave()
        except NotHeld:
            term = self._holds.last
            if term is None or not term.ended:  # it is the parent process's
                raise
            if term.loss is not None:  # resigning found that out
                raise term.loss from None

    def release(self, after: Seconds = 0.0) -> None:
        """Resign."""
        if after:
            raise ValueError("a term ends when you resign: there is nobody to keep its name for")
        super().release()

    def _end(self, hold: LeaseHold, after: float = 0.0) -> None:
        super()._end(hold, after)
        database = self._database
        # Whoever is not called finds it out when it looks.
        with contextlib.suppress(DBLockError):
            patience = database.dialect.timing.leaving
            database.run(election.call(database.dialect, self.name, patience, self._runtime.now()))


class Election:
    """An election, made by :meth:`Locks.election`: the lease of a name, and who has it.

    ``with`` a term, or let :meth:`run` do that again and again::

        with election.campaign() as term:
            term.proclaim({"address": address})
            while True:
                with Session(engine) as session, session.begin(), term.guard(session):
                    do_what_a_leader_does(session)

    Threads can share an Election. Each campaign is for a term of its own.
    """

    #: Its terms, for subclasses.
    term_class: type[Leadership] = Leadership

    def __init__(self, database: Database, options: LeaseOptions) -> None:
        self._database = database
        self._options = options

    @property
    def name(self) -> str:
        return self._options.name

    @property
    def ttl(self) -> float:
        """After how many seconds without a renewal a leader is deposed."""
        return self._options.plan.ttl

    def __repr__(self) -> str:
        return f"<Election {self.name!r} ttl={self.ttl:g}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} belongs to this process, and you cannot send it to another: make Locks "
            "there, from the URL"
        )

    # --- leading -----------------------------------------------------------------------------

    def campaign(self, wait: Seconds | None = None) -> Leadership:
        """Return a term in which you lead, waiting ``wait`` seconds for it.

        None waits for ever, 0 not at all. Raises NotAcquired if another leads for that long: the
        error tells who. It raises what :meth:`Lease.acquire` does: a thread that leads already
        would wait for itself and gets DeadlockDetected. If the term is lost as soon as it is won,
        it raises LockLost. If the name is that of a semaphore, it raises ValueError.

        Keep the term: if you drop it, it runs out.
        """
        checked = check_wait(wait)
        term = self.stand()
        refusal = term.begin(checked)
        if refusal is not None:
            raise refusal
        return term

    def stand(self, **callbacks: Any) -> Leadership:
        """Return a term that has not begun. Not part of the public surface."""
        return self.term_class(self._database, self._options._replace(**callbacks))

    def lead(self, term: Leadership) -> None:
        """Win a term however long it takes. Not part of the public surface."""
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

        A database that is away does not end it: :meth:`run` logs that and campaigns again.
        """
        check_runnable(work, taker="election.run")
        while True:
            term = self.stand()
            self.lead(term)
            try:
                with term:
                    return work(term)
            except LockLost:
                if not term.lost.is_set():  # it is another lock's
                    raise

    # --- looking -----------------------------------------------------------------------------

    def leader(self) -> Leader | None:
        """Return who leads now, by the database's clock; None if nobody does. One round trip."""
        database = self._database
        patience, now = database.timeouts.socket, database.runtime.now()
        return database.run(election.leader(database.dialect, self.name, patience, now))

    def observe(self, interval: Seconds = 0.5) -> Observation:
        """Return an iterator over who leads: first who leads now, then each change.

        A change is a new leader, a new value, or that nobody leads: then it yields None. If changes
        come faster than you ask for them, you miss some of them, and never the last one.

        On PostgreSQL dblock is told of changes. On other databases, and behind a pooler, it looks
        after each ``interval`` seconds. Either way it looks when a term should be over, and every
        few seconds.

        It raises Unavailable if the database is away. You can go on with it after that.
        """
        return Observation(self._database, self.name, check_interval(interval))


class Observation:
    """An endless iterator over who leads, made by :meth:`Election.observe`."""

    def __init__(self, database: Database, name: str, interval: float) -> None:
        self._database = database
        self._name = name
        self._interval = interval
        self._before = election.UNSEEN
        database.contenders.local_queue.notifier.observed_by(self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Leader | None:
        database = self._database
        found = database.run(
            election.observe(
                database.dialect,
                self._name,
                self._before,
                self._interval,
                object(),
                database.timeouts.socket,
                database.runtime.now(),
            )
        )
        self._before = election.seen(found)
        return found


def check_value(value: Any) -> str:
    """Return what a leader proclaims as JSON."""
    text = check_json("a value", value)
    if len(text) > VALUE_MAX:
        raise ValueError(
            f"a value is at most {VALUE_MAX} bytes of JSON, this one has {len(text)}: keep the "
            "rest in a table of yours, and its key in the value"
        )
    return text
