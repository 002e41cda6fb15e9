"""One run: a scenario on a store under a schedule, and what was seen of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dblock.dialects.adapter import Answer
from dblock.io import connecting
from tests.simulation.allowance import Allowance
from tests.simulation.beliefs import Beliefs
from tests.simulation.client import Client
from tests.simulation.knowing import Knowing
from tests.simulation.ledger import Ledger
from tests.simulation.loop import SECONDS_MAX, Actor, Loop, Violation
from tests.simulation.schedule import Schedule
from tests.simulation.store import Store
from tests.simulation.thread import Kinds, Thread
from tests.simulation.watching import Watcher

#: What the clock of each client's machine says, by which nothing must go: the year 2096.
WRONG = 4e9


class Clients:
    """What a scenario makes clients and their threads with."""

    def __init__(
        self, loop: Loop, store: Store, beliefs: Beliefs, ledger: Ledger, allowance: Allowance
    ) -> None:
        self.loop = loop
        self.store = store
        self.beliefs = beliefs
        self.ledger = ledger
        self.allowance = allowance
        self.all: dict[str, Client] = {}
        #: Looks in the end, beside what looks at every scenario.
        self.judges: list[Callable[[], None]] = []

    def client(self, name: str, *, rate: float = 1.0) -> Client:
        """Return a client, whose clock goes at a rate."""
        found = self.all.get(name)
        if found is None:
            found = self.all[name] = Client(self.loop, self.store, name, rate=rate)
            found.runtime.observer = self.beliefs.observe
        return found

    def thread(
        self,
        client: str,
        run: Callable[[Thread], object],
        *,
        after: float = 0.0,
        rate: float = 1.0,
        may: Kinds = (),
    ) -> Thread:
        """Begin a thread of a client; the second of one client is ``a.2``."""
        owner = self.client(client, rate=rate)
        number = sum(actor.client is owner for actor in self.loop.actors) + 1
        name = client if number == 1 else f"{client}.{number}"
        thread = Thread(self, owner, name, may)
        thread.actor = self.loop.begin(owner, name, lambda: thread.live(run), after)
        return thread

    def stock(self, amounts: dict[int, int]) -> None:
        """Let there be so much of what."""
        self.ledger.stock = amounts
        self.store.put(amounts)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A small program of a few clients; the database's clock goes at a rate."""

    play: Callable[[Clients], object]
    rate: float = 1.0
    #: What a store has to have for it, beside leases and row locks.
    needs: frozenset[str] = frozenset()
    #: After so many seconds it does not end by itself.
    lasts: float = SECONDS_MAX

    def __call__(self, clients: Clients) -> None:
        self.play(clients)


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    schedule: Schedule
    steps: list[str]
    #: What was done to the database in which order, and what was believed: equal for runs that are
    #: the same but for the order of what does not matter.
    story: tuple[str, ...]
    #: How many commits a fall of the server can lose at a request, as far as that is known.
    losable: dict[str, dict[str, float]]
    violation: Violation | None = None
    seconds: float = 0.0


def run(scenario: Scenario, store: Store, schedule: Schedule) -> Outcome:
    """Run a scenario to its end, and judge it."""
    loop, allowance = Loop(schedule, scenario.lasts), Allowance(schedule, store.look)
    beliefs = Beliefs(loop, allowance)
    with _alone():
        store.begin(loop, scenario.rate)
        ledger = beliefs.ledger = Ledger(loop, store, beliefs.note)
        ledger.freed = beliefs.check_freed
        store.watch = ledger.carried_out
        knowing = beliefs.knowing = Knowing(ledger)

        def told(actor: Actor, query: Any, answer: Answer | BaseException) -> None:
            knowing.told(actor, query, answer)
            ledger.rates.answered(actor, getattr(query, "command", None))

        store.told = told
        watcher = Watcher(loop, store, beliefs, ledger, allowance)
        loop.watch = watcher.look
        clients = Clients(loop, store, beliefs, ledger, allowance)
        violation = None
        try:
            scenario(clients)
            loop.run()
            watcher.judge()
            for judge in clients.judges:
                judge()
        except Violation as found:
            violation = found
        except Exception as error:
            violation = Violation(f"a defect: {error!r}")
            violation.__cause__ = error
        finally:
            loop.end()
            for client in clients.all.values():
                client.end()
    story = tuple(beliefs.story)
    return Outcome(schedule, loop.steps, story, loop.losable, violation, loop.now)


@contextmanager
def _alone() -> Iterator[None]:
    """Keep what was before, and what is around, out of a run."""
    # A collection would end what an earlier run has left, in the midst of this one.
    gc.disable()
    connecting.reached.clear()
    connecting.replaced.clear()
    clock, time.time = time.time, lambda: WRONG
    try:
        yield
    finally:
        time.time = clock
        gc.enable()
        connecting.reached.clear()
        connecting.replaced.clear()
