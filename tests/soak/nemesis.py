"""What happens to workers and servers: random, but of a seed, and written down in the history."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ClassVar, Self

from tests.servers import Server

from .crew import Crew, Place
from .history import NEMESIS, Recorder, Tail
from .plan import Plan

EVERYWHERE = "server"  # how the kinds of faults begin that all workers feel


class Nemesis:
    """A thread for each kind of faults, so that those of different kinds meet.

    Each begins with a round of all its faults, then draws them. A fault is undone by the thread
    that made it, so when all have ended everything is as it was. This one lets nothing happen.
    """

    #: What they are recorded as.
    records: ClassVar[str] = "fault"
    #: TTLs from one fault of a kind to the next, in the mean; of those not named here, one.
    between: ClassVar[dict[str, float]] = {}

    def __init__(self, crew: Crew, server: Server, database: str, plan: Plan) -> None:
        self._crew, self._server, self._database, self._plan = crew, server, database, plan
        self._enough = threading.Event()
        self._recorders: list[Recorder] = []
        self.errors: list[BaseException] = []
        kinds = self.kinds()
        #: What has to have happened once before a soak is one.
        self.faults = [fault for faults in kinds.values() for fault in faults]
        self._threads = []
        for kind, faults in kinds.items():
            recorder = Recorder(plan.directory, f"{NEMESIS}-{kind}")
            self._recorders.append(recorder)
            arguments = (kind, recorder, faults, random.Random(f"{plan.seed}/{kind}"))
            self._threads.append(threading.Thread(target=self._run, args=arguments, name=kind))

    @property
    def closed(self) -> float:
        """For how many seconds nothing may be granted after a fault."""
        return 0.0

    def kinds(self) -> dict[str, dict[str, Fault]]:
        """The faults, by their kinds."""
        return {}

    def done(self, tail: Tail) -> bool:
        """Whether all that is to happen has."""
        return all(tail.faults[fault] for fault in self.faults)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()
        for recorder in self._recorders:
            recorder.close()

    def _run(
        self, kind: str, recorder: Recorder, faults: dict[str, Fault], chance: random.Random
    ) -> None:
        between = self.between.get(kind, 1.0)
        try:
            for name in _order(list(faults), chance):
                if self._enough.wait(chance.expovariate(1 / between) * self._plan.ttl):
                    return
                place = chance.choice(self._crew.places)
                touched = None if kind.startswith(EVERYWHERE) else place.number
                operation = recorder.begin(
                    self.records, fault=name, place=touched, pause=self.closed
                )
                happened = faults[name](place, chance)
                operation.tell("failed" if happened is False else "ok")
        except BaseException as error:  # raised again where the soak is run
            self.errors.append(error)

    def _pause(self, chance: random.Random, least: float, most: float) -> None:
        self._enough.wait(chance.uniform(least, most) * self._plan.ttl)


# Returns False when it did not happen: no such request came.
Fault = Callable[[Place, random.Random], bool | None]


def _order(names: list[str], chance: random.Random) -> Iterator[str]:
    chance.shuffle(names)
    return itertools.chain(names, iter(lambda: chance.choice(names), None))
