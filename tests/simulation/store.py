"""What a store is: a database that carries statements out, one at a time, in virtual time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Engine

from dblock.dialects import Dialect
from dblock.dialects.base import Answer
from tests.simulation.errors import Lost
from tests.simulation.tables import Committed, Row

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
    #: The engine of the users' own transactions, for all clients.
    lending: Engine
    #: Whether one transaction at a time writes at all.
    one_writer = False
    #: Whether a session that was lost can be ended, so that what it was sent does not come late.
    ends_sessions = False
    #: Called when a statement has been carried out: on which connection, and the statement.
    watch: Callable[[Link | None, Any], None]

    def begin(self, loop: Loop, rate: float = 1.0) -> None:
        """Be as new, for another run; the database's clock goes at a rate."""
        self.loop = loop
        self.rate = rate
        self.down_until = 0.0
        self.pending: list[Pending] = []
        self.links: set[Link] = set()
        #: How often anything may have changed.
        self.changes = 0
        #: When it last forgot what it had committed, in the loop's time.
        self.forgot = -1.0
        self.watch = lambda link, query: None
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
            return
        except Exception as error:
            answer = error
        self._carried_out(driver, query)
        then(answer)
        self.go_on()

    def _expire(self, pending: Pending, error: BaseException) -> None:
        self.pending.remove(pending)
        pending.then(error)

    def go_on(self) -> None:
        """Try again what waits in the server, for something has happened."""
        for pending in tuple(self.pending):
            if pending not in self.pending:
                continue
            try:
                answer: Answer | BaseException = self.execute(pending.driver, pending.query)
            except Blocked:
                continue
            except Exception as error:
                answer = error
            self._carried_out(pending.driver, pending.query)
            self.pending.remove(pending)
            self.loop.cancel(pending.expiry)
            pending.then(answer)

    def _carried_out(self, driver: Any, query: Any) -> None:
        self.changes += 1
        link = next((link for link in self.links if link.driver is driver), None)
        self.watch(link, query)

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
    def open_lent(self) -> Any:
        """Begin a session for a user's own transactions, with the driver's own defaults."""

    @abstractmethod
    def lost(self, kind: type[Lost]) -> type[Exception]:
        """Return what the driver raises for that in a user's transaction."""

    @abstractmethod
    def in_transaction(self, driver: Any) -> bool:
        """Whether a transaction has begun on a connection, as its client knows."""

    @abstractmethod
    def settings(self, driver: Any) -> object:
        """Return what a user may have set on a connection, to be compared."""

    def is_local(self, kind: str) -> bool:
        """Whether statements of a kind are carried out in the client itself."""
        return False

    @abstractmethod
    def execute(self, driver: Any, query: Any) -> Answer:
        """Carry a statement out. Raises Blocked where it has to wait for others."""

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
    def put(self, stock: dict[int, int]) -> None:
        """Let there be so much of what in the users' stock."""

    @abstractmethod
    def waiters(self) -> list[tuple[str, str]]:
        """Return who is seen to wait: the ids, and for which names."""

    def busy(self) -> bool:
        """Whether a transaction keeps everybody from every name just now."""
        return self.one_writer and any(self.in_transaction(link.driver) for link in self.links)
