"""What a store is: a database that carries statements out, one at a time, in virtual time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Engine

from dblock.dialects import Dialect
from dblock.dialects.base import Answer
from tests.simulation.errors import Lost

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.loop import Event, Loop
    from tests.simulation.transport import Link

Then = Callable[["Answer | BaseException"], None]

#: Seconds that a crashed server is away.
RESTART = 0.2


class Blocked(Exception):
    """A statement waits in the server for others, so many seconds at most."""

    def __init__(self, seconds: float, error: BaseException) -> None:
        self.seconds = seconds
        #: What becomes of it then.
        self.error = error


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
    expiry: Event


class Store(ABC):
    """One database, used for one run after the other."""

    name: str
    loop: Loop

    @classmethod
    @abstractmethod
    def prepare(cls, folder: Path) -> None:
        """Make what takes time to be made, for all stores of this kind."""

    @abstractmethod
    def __init__(self, folder: Path) -> None:
        """Be one of this process, by what was prepared in the folder."""

    def begin(self, loop: Loop, rate: float = 1.0) -> None:
        """Be as new, for another run; the database's clock goes at a rate."""
        self.loop = loop
        self.rate = rate
        self.down_until = 0.0
        self.pending: list[Pending] = []
        self.links: set[Link] = set()
        #: How often anything may have changed.
        self.changes = 0
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
        try:
            answer: Answer | BaseException = self.execute(driver, query)
        except Blocked as blocked:
            label = self.loop.label("server.patience")
            pending = Pending(driver, query, then, None)  # type: ignore[arg-type]
            error = blocked.error
            pending.expiry = self.loop.at(
                blocked.seconds / self.rate, label, lambda: self._expire(pending, error)
            )
            self.pending.append(pending)
            self.go_on()  # a wait may end another's: a deadlock's
            return
        except Exception as error:
            answer = error
        self.changes += 1
        then(answer)
        self.go_on()

    def _expire(self, pending: Pending, error: BaseException) -> None:
        self.pending.remove(pending)
        try:
            answer: Answer | BaseException = self.give_up(pending.driver, pending.query, error)
        except Exception as raised:
            answer = raised
        self.changes += 1
        pending.then(answer)
        self.go_on()

    def go_on(self) -> None:
        """Let what waits in the server go on where it can, for something has happened."""
        waiting = list(self.pending)
        while waiting:
            pending = waiting.pop(0)
            if pending not in self.pending:
                continue
            try:
                answer: Answer | BaseException = self.retry(pending.driver, pending.query)
            except Blocked:
                continue
            except Exception as error:
                answer = error
            self.changes += 1
            self.pending.remove(pending)
            self.loop.cancel(pending.expiry)
            pending.then(answer)
            waiting = list(self.pending)  # that may have let go those before it

    def end_session(self, driver: Any) -> None:
        """End a session, whatever it is at; undo what it has not committed."""
        for pending in tuple(self.pending):
            if pending.driver is driver:
                self.pending.remove(pending)
                self.loop.cancel(pending.expiry)
        self.undo(driver)
        self.go_on()

    def crash(self) -> None:
        """End all sessions, lose what a crash loses, and be away for a moment."""
        pending, self.pending = self.pending, []
        self.down_until = self.loop.now + RESTART
        for one in pending:
            self.loop.cancel(one.expiry)
            one.then(Lost("the server crashed"))
        for link in tuple(self.links):
            link.ended = True
            self.undo(link.driver)
        self.links.clear()

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
        """Go on with a statement that was Blocked. Raises Blocked while it still is."""
        return self.execute(driver, query)

    def give_up(self, driver: Any, query: Any, error: BaseException) -> Answer:
        """End a statement that has waited for too long: return, or raise, what came of it."""
        raise error

    @abstractmethod
    def undo(self, driver: Any) -> None:
        """Roll back what a session that ends has not committed."""

    @abstractmethod
    def rows(self) -> dict[str, Row]:
        """Return the lock table, as it is committed."""
