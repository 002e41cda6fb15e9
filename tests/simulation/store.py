"""What a store is: a database that carries statements out, one at a time, in virtual time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Engine

from dblock.dialects import Dialect
from dblock.dialects.base import Answer
from tests.simulation.errors import Lost

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.loop import Event, Loop
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


@dataclass(frozen=True, slots=True)
class Row:
    """A name's row; ``expires`` is in seconds of the database's clock."""

    token: str | None
    fence: int
    expires: float | None
    tickets: tuple[str, ...]

    def free(self, now: float) -> bool:
        return self.token is None or self.expires is None or self.expires <= now


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
    loop: Loop
    #: What can fail here at a request, beside what can everywhere.
    faults: tuple[Fault, ...] = ()

    def begin(self, loop: Loop, rate: float = 1.0) -> None:
        """Be as new, for another run; the database's clock goes at a rate."""
        self.loop = loop
        self.rate = rate
        self.down_until = 0.0
        self.pending: list[Pending] = []
        #: The sessions' connections, in the order in which they were made.
        self.links: dict[Link, None] = {}
        #: How often anything may have changed; how often what was committed may have been lost.
        self.changes = self.losses = 0
        self.reset()

    def clock(self) -> float:
        """The database's clock, in its own seconds."""
        return self.rate * self.loop.now

    @property
    def down(self) -> bool:
        return self.loop.now < self.down_until

    # --- statements --------------------------------------------------------------------------

    def perform(self, driver: Any, query: Any, then: Then) -> None:
        """Carry a statement out, as soon as those in its way are done."""
        pending = Pending(driver, query, then)
        if self._try(pending, self.execute):
            self.go_on()

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
        self.changes += 1
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
        self.losses += self.forget(lost)

    def promote(self, lost: int = 0) -> None:
        """Let another server take its place, which has not heard of so many commits."""
        raise NotImplementedError(f"{self.name} has no other server")

    def go_down(self) -> None:
        """End all sessions, and be away for a moment."""
        pending, self.pending = self.pending, []
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
    def engine(self, client: str) -> Engine:
        """Return the engine of a client, which makes connections of this store."""

    @abstractmethod
    def resolve(self, target: Any, **options: Any) -> tuple[Engine, Dialect]:
        """Return the engine and the simulated dialect."""

    @abstractmethod
    def open(self, client: Client) -> Any:
        """Begin a session; return the driver's connection."""

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

    def closed_until(self) -> float:
        """Return until when, by its clock, the database grants nothing: after it lost something."""
        return 0.0
