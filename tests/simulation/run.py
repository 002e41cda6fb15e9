"""One run: a scenario on a store under a schedule, and what was seen of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dblock import Lease, RowLock, connections
from dblock.errors import DBLockError
from tests.simulation.beliefs import Beliefs
from tests.simulation.client import Client
from tests.simulation.loop import Actor, Loop, Violation
from tests.simulation.schedule import Schedule
from tests.simulation.store import Store
from tests.simulation.watching import Watcher


class Clients:
    """What a scenario makes clients and their threads with."""

    def __init__(self, loop: Loop, store: Store, beliefs: Beliefs) -> None:
        self.loop = loop
        self.store = store
        self.beliefs = beliefs
        self.all: dict[str, Client] = {}

    def client(self, name: str, *, rate: float = 1.0) -> Client:
        found = self.all.get(name)
        if found is None:
            found = self.all[name] = Client(self.loop, self.store, name, rate=rate)
        return found

    def thread(
        self, client: str, run: Callable[[Thread], object], *, after: float = 0.0, rate: float = 1.0
    ) -> Thread:
        """Begin a thread of a client; the second of one client is ``a.2``."""
        owner = self.client(client, rate=rate)
        number = sum(actor.client is owner for actor in self.loop.actors) + 1
        name = client if number == 1 else f"{client}.{number}"
        thread = Thread(self, owner, name)
        thread.actor = self.loop.begin(owner, name, lambda: thread.live(run), after)
        return thread


class Thread:
    """A thread of a client as a scenario sees it; what it does is taken down."""

    actor: Actor

    def __init__(self, clients: Clients, client: Client, name: str) -> None:
        self.client = client
        self.locks = client.locks
        self.name = name
        self.beliefs = clients.beliefs
        self.loop = clients.loop
        #: What it has waited for since when, and until when at most.
        self.waits: tuple[str, float, float | None] | None = None

    def live(self, run: Callable[[Thread], object]) -> None:
        try:
            run(self)
        except (DBLockError, KeyboardInterrupt) as error:
            self.beliefs.note(f"{self.name} {type(error).__name__}")

    def work(self, seconds: float) -> None:
        """Let time pass, by the client's own clock."""
        self.locks.database.runtime.sleep(seconds)

    def acquire(self, lock: Lease | RowLock, wait: float | None = None) -> bool:
        """Take a lock, and believe in it; ``wait`` is in seconds, None for ever."""
        with self.beliefs.waiting(self, lock.name, wait):
            had = lock.acquire(timeout=-1 if wait is None else wait)
        if had:
            self.beliefs.begin(self, lock)
        return had

    def release(self, lock: Lease | RowLock) -> None:
        self.beliefs.end(self, lock)
        lock.release()


Scenario = Callable[[Clients], object]


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    schedule: Schedule
    steps: list[str]
    #: What was done to the database in which order, and what was believed: equal for runs that are
    #: the same but for the order of what does not matter.
    story: tuple[str, ...]
    violation: Violation | None = None
    seconds: float = 0.0


def run(scenario: Scenario, store: Store, schedule: Schedule, *, rate: float = 1.0) -> Outcome:
    """Run a scenario to its end, and judge it."""
    loop = Loop(schedule)
    beliefs = Beliefs(loop)
    with _alone():
        store.begin(loop, rate)
        watcher = Watcher(loop, store, beliefs, schedule)
        loop.watch = watcher.look
        clients = Clients(loop, store, beliefs)
        violation = None
        try:
            scenario(clients)
            loop.run()
            watcher.judge()
        except Violation as found:
            violation = found
        except Exception as error:
            # Nothing but what the contract names comes out of dblock.
            violation = Violation(f"{type(error).__name__}: {error}")
            violation.__cause__ = error
        finally:
            loop.end()
            for client in clients.all.values():
                for link in tuple(client.links.values()):
                    link.close()
    return Outcome(schedule, loop.steps, tuple(beliefs.story), violation, loop.now)


@contextmanager
def _alone() -> Iterator[None]:
    """Keep what was before, and what is around, out of a run."""
    # A collection would end what an earlier run has left, in the midst of this one.
    gc.disable()
    connections._reached.clear()
    try:
        yield
    finally:
        gc.enable()
        connections._reached.clear()
