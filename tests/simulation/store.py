"""What a store is: a database that carries statements out, one at a time, in virtual time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool

from dblock.dialects import Adapter, Dialect
from dblock.dialects.adapter import Answer
from dblock.io.target import Drivers, File, resolve
from dblock.protocol.faults import Fault as DatabaseFault
from tests.simulation.errors import Lost, Refused
from tests.simulation.lending import LentConnection
from tests.simulation.tables import Committed, Row
from tests.simulation.transport import connecting, kind_of

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.loop import Actor, Event, Loop
    from tests.simulation.rates import Taken
    from tests.simulation.schedule import Fault
    from tests.simulation.transport import Link

Then = Callable[["Answer | BaseException"], None]

#: Seconds that a crashed server is away.
RESTART = 0.2


class Blocked(Exception):
    """A statement waits in the server for others; after so many seconds it is overdue."""

    def __init__(
        self, seconds: float, error: BaseException | None = None, cause: object = None
    ) -> None:
        self.seconds = seconds
        #: What becomes of it then, unless the store finds out otherwise.
        self.error = error
        #: What it waits for. The time begins anew when that is something else.
        self.cause = cause


def losable(flushed: Sequence[bool], *, promoted: bool) -> float:
    """Return how many commits can be lost of those that were on disk when they were told, or not.

    The first is what there was in the beginning.
    """
    if promoted:
        return len(flushed) - 1
    return next((n for n, kept in enumerate(reversed(flushed)) if kept), len(flushed))


@dataclass(slots=True, eq=False)
class Pending:
    """A statement that waits in the server."""

    driver: Any
    query: Any
    then: Then
    blocked: Blocked | None = None
    expiry: Event | None = None


class Store(ABC):
    """One database, used for one run after the other."""

    name: str
    #: For SQLAlchemy: which database, and which driver.
    url: str
    #: The dialect's name, and its simulated adapter.
    database: str
    adapter: type[Adapter]
    loop: Loop
    #: What can fail here at a request, beside what can everywhere.
    faults: tuple[Fault, ...] = ()
    #: What a scenario can need: `runs`, the record of jobs; `rows`, row locks that keep nobody from
    #: other names; `lending`, the users' transactions; `snapshots`, those of them that see what
    #: there was when they began; `calls`, who waits is called; `looks`, who waits looks now and
    #: then; `gates`, user locks at which sessions wait; `moves`, another server can take its place
    #: as it is; `epochs`, what was lost in a crash is waited for; `operators`, what its operators
    #: do to it; `members`, there are several of it.
    has: frozenset[str] = frozenset({"runs"})
    #: The engine of the users' own transactions, for all clients, and what its connections are.
    lending: Engine
    lent: type[LentConnection] = LentConnection
    #: Whether those see what there was when they began, in this run: REPEATABLE READ.
    snapshots: bool
    #: Where it calls who waits: after so many seconds a waiter looks by itself.
    look = 0.0
    #: Whether a lease that was told outlives a crash.
    keeps = True
    #: Whether one transaction at a time writes at all.
    one_writer = False
    #: Whether a session that was lost can be ended, so that what it was sent does not come late.
    ends_sessions = False
    #: The identity of the tables, where there are several of it.
    place: str
    #: Called when a statement has been carried out: on which connection, and the statement.
    watch: Callable[[Link | None, Any], None]
    #: Called when a thread has an answer, or hears that it gets none.
    told: Callable[[Actor, Any, Answer | BaseException], None]

    def begin(self, loop: Loop, rate: float = 1.0) -> None:
        """Be as new, for another run; the database's clock goes at a rate."""
        self.loop = loop
        self.rate = rate
        self.down_until = 0.0
        #: How often it was another, or forgot something.
        self.falls = 0
        self.pending: list[Pending] = []
        #: The sessions' connections, in the order in which they were made.
        self.links: dict[Link, None] = {}
        #: How often anything may have changed.
        self.changes = 0
        #: When it last forgot what it had committed, in the loop's time; what was left then.
        self.forgot = -1.0
        self.left: dict[str, Row] = {}
        self.watch = lambda link, query: None
        self.told = lambda actor, query, answer: None
        #: What the server does not carry out, by the kind of statement, and why.
        self.refused: dict[str, DatabaseFault] = {}
        #: Who connects gets no answer, not even that there is no server.
        self.silent = False
        #: The names of the clients that can reach it, if that is not all of them.
        self.reached_by: frozenset[str] | None = None
        #: By how many seconds its clock was set forward, or back: below 0.
        self.ahead = 0.0
        self.snapshots = False
        self.reset()

    def clock(self) -> float:
        """The database's clock, in its own seconds, to the microsecond."""
        return round(self.rate * self.loop.now + self.ahead, 6)

    @property
    def down(self) -> bool:
        return self.silent or self.loop.now < self.down_until

    def shuts_out(self, client: Client) -> bool:
        """Whether nothing comes through between it and a client."""
        return self.reached_by is not None and client.name not in self.reached_by

    # --- several of them -----------------------------------------------------------------------

    @cached_property
    def members(self) -> list[Store]:
        """Three independent databases, of which this is the first."""
        return [self, self.another(1), self.another(2)]

    def another(self, number: int) -> Store:
        """Make an independent database of the same kind."""
        raise NotImplementedError(f"{self.name} is alone")

    def enlist(self, record: str, longest: int) -> None:
        """Make it a member of a quorum that votes, for TTLs up to so many milliseconds."""
        raise NotImplementedError

    def copied(self) -> Any:
        """Return a copy of all that is committed."""
        raise NotImplementedError

    def bring_back(self, copy: Any) -> None:
        """Begin anew with a copy."""
        raise NotImplementedError

    # --- what the clients' Locks are made with -------------------------------------------------

    @cached_property
    def engine(self) -> Engine:
        """The engine of all clients. A connection is that of the client whose code makes it."""
        return create_engine(
            self.url, creator=lambda: connecting(self), poolclass=NullPool, _initialize=False
        )

    def resolve(self, target: Any, **options: Any) -> tuple[File, Dialect]:
        """Return what connects, and the dialect with the simulated adapter.

        Not the engine: its pool's work for each connection is a fifth of a run's.
        """
        drivers = Drivers({self.database: self.adapter})
        engine, dialect = resolve(target, drivers=drivers, **options)
        return File(lambda: connecting(self), lambda: engine), dialect

    # --- statements --------------------------------------------------------------------------

    def perform(self, driver: Any, query: Any, then: Then) -> None:
        """Carry a statement out, as soon as those in its way are done."""
        if (kind := kind_of(query)) in self.refused:
            then(Refused(self.refused[kind]))
            return
        pending = Pending(driver, query, then)
        self._try(pending, self.execute)
        self.go_on()  # even if it waits: that may end another's wait, as a deadlock

    def _try(self, pending: Pending, attempt: Callable[[Any, Any], Answer]) -> bool:
        """Let a statement be carried out; return whether it has come to an end."""
        try:
            answer: Answer | BaseException = attempt(pending.driver, pending.query)
        except Blocked as blocked:
            self._wait(pending, blocked)
            return False
        except Exception as error:
            answer = error
        if pending in self.pending:
            self.pending.remove(pending)
        self._forget_expiry(pending)
        self._carried_out(pending.driver, pending.query)
        pending.then(answer)
        return True

    def _wait(self, pending: Pending, blocked: Blocked) -> None:
        before, pending.blocked = pending.blocked, blocked
        if before is None:
            self.pending.append(pending)
        elif pending.expiry is not None and blocked.cause == before.cause:
            return
        self._forget_expiry(pending)
        if blocked.seconds < math.inf:
            label = self.loop.label("server.patience")
            seconds = blocked.seconds / self.rate
            pending.expiry = self.loop.at(seconds, label, lambda: self._expire(pending))

    def _forget_expiry(self, pending: Pending) -> None:
        if pending.expiry is not None:
            self.loop.cancel(pending.expiry)
            pending.expiry = None

    def _expire(self, pending: Pending) -> None:
        pending.expiry, blocked = None, pending.blocked
        assert blocked is not None
        if self._try(pending, lambda driver, query: self.overdue(driver, blocked)):
            self.go_on()

    def go_on(self) -> None:
        """Try again what waits in the server, for something has happened."""
        more = not self.loop.over
        while more:
            more = False
            for pending in tuple(self.pending):
                if pending in self.pending and self._try(pending, self.retry):
                    more = True

    def _carried_out(self, driver: Any, query: Any) -> None:
        self.changes += 1
        link = next((link for link in self.links if link.driver is driver), None)
        self.watch(link, query)

    def end_session(self, driver: Any, error: BaseException | None = None) -> None:
        """End a session, whatever it is at; undo what it has not committed.

        A statement that it waits with comes to an error, if there is one.
        """
        for pending in tuple(self.pending):
            if pending.driver is driver:
                self.pending.remove(pending)
                self._forget_expiry(pending)
                if error is not None:
                    pending.then(error)
        self.undo(driver)
        self.go_on()

    def crash(self, lost: int = 0) -> None:
        """End all sessions, lose what a crash loses, and be away for a moment.

        So many commits are lost that the server had not waited for, if there are as many.
        """
        self.go_down()
        if self.forget(lost):
            self.note_loss()

    def promote(self, lost: int = 0) -> None:
        """Let another server take its place, which has not heard of so many commits."""
        raise NotImplementedError(f"{self.name} has no other server")

    @property
    def identity(self) -> str:
        """Which server it is, where that can change."""
        return self.name

    def be_alone(self, seconds: float) -> None:
        """Have no standby for so long, where commits wait for one."""
        raise NotImplementedError(f"{self.name} has no standby")

    def vouches(self, name: str, token: str) -> bool:
        """Whether a grant is wherever it has to be before it is told."""
        return True

    def note_loss(self) -> None:
        """Take down that commits were lost just now."""
        self.forgot, self.left = self.loop.now, self.rows()

    def restore(self) -> None:
        """Put all back from a dump of the beginning, while it runs."""
        raise NotImplementedError(f"{self.name} has no dump")

    def replicate(self) -> None:
        """Take the place of a server that has published its first rows, and none of later."""
        raise NotImplementedError(f"{self.name} is no replica")

    def set_durability(self, durability: str) -> None:
        """Let leases outlive a crash from now on, or not."""
        raise NotImplementedError(f"{self.name} has one durability")

    def losable(self, *, promoted: bool) -> float:
        """Return how many commits a crash can lose now at most, or another server not know."""
        return 0.0

    def go_down(self) -> None:
        """End all sessions, and be away for a moment."""
        pending, self.pending = self.pending, []
        self.falls += 1
        self.down_until = self.loop.now + RESTART
        for one in pending:
            self._forget_expiry(one)
            one.then(Lost("the server crashed"))
        for link in tuple(self.links):
            link.cut()
            self.undo(link.driver)
        self.links.clear()
        self.changes += 1

    # --- what each database does its own way -------------------------------------------------

    @abstractmethod
    def reset(self) -> None: ...

    @abstractmethod
    def open(self, client: Client) -> Any:
        """Begin a session; return the driver's connection."""

    def is_local(self, query: Any) -> bool:
        """Whether a statement is no event: the answer to it is known, as in the client itself."""
        return False

    @abstractmethod
    def execute(self, driver: Any, query: Any) -> Answer:
        """Carry a statement out. Raises Blocked where it has to wait for others."""

    def retry(self, driver: Any, query: Any) -> Answer:
        """Carry a statement out that was blocked, if nothing is in its way any more.

        Raises Blocked as :meth:`execute` does.
        """
        return self.execute(driver, query)

    def overdue(self, driver: Any, blocked: Blocked) -> Answer:
        """Say what becomes of a statement that has waited for its time. Raises Blocked for more."""
        assert blocked.error is not None
        raise blocked.error

    def forget(self, lost: int) -> bool:
        """Lose what a crash loses, when nobody has a session; return whether that is anything."""
        return False

    @abstractmethod
    def undo(self, driver: Any) -> None:
        """Roll back what a session that ends has not committed."""

    @abstractmethod
    def rows(self) -> dict[str, Row]:
        """Return the lock table, as it is committed."""

    @abstractmethod
    def committed(self) -> Committed:
        """Return what the users' transactions have left."""

    @abstractmethod
    def limits(self) -> dict[str, int]:
        """Return the limits of the semaphores, by their names: values with the fence 0.

        What leaders proclaim has the fence of their term.
        """

    @abstractmethod
    def rates(self) -> dict[str, Taken]:
        """Return the latest places of the rate limits: values with a negative fence."""

    @abstractmethod
    def waiters(self) -> list[tuple[str, str]]:
        """Return who is seen to wait: the ids, and for which names."""

    @abstractmethod
    def locked(self, name: str) -> bool:
        """Whether a transaction keeps others from taking a name just now."""

    def closed_until(self) -> float:
        """Return until when, by its clock, the database grants nothing: after it lost something."""
        return 0.0

    def longest_pause(self) -> float:
        """Return for how long it would grant nothing if it lost something now."""
        return math.inf

    def epoch(self) -> int:
        """Return a number that grows when it was found that it may have lost something."""
        return 0

    def known_ttl(self) -> tuple[float, float]:
        """Return up to which TTL it grants names, and until when."""
        return math.inf, math.inf

    # --- the users' own transactions, where it has those -------------------------------------

    def open_lent(self) -> Any:
        """Begin a session for a user's own transactions, with the driver's own defaults."""
        raise NotImplementedError

    def lost(self, kind: type[Lost]) -> type[Exception]:
        """Return what the driver raises for that in a user's transaction."""
        raise NotImplementedError

    def in_transaction(self, driver: Any) -> bool:
        """Whether a transaction has begun on a connection, as its client knows."""
        raise NotImplementedError

    def settings(self, driver: Any) -> object:
        """Return what a user may have set on a connection, to be compared."""
        raise NotImplementedError

    def put(self, stock: dict[int, int]) -> None:
        """Let there be so much of what in the users' stock."""
        raise NotImplementedError
