"""Exploring in several processes: what is searched where, and what came of it."""

from __future__ import annotations

import gc
import logging
import math
import time
from dataclasses import dataclass, field
from functools import cache
from random import Random

from tests.simulation.explore import WHOLE, Bounds, Part, Search
from tests.simulation.folder import folder
from tests.simulation.run import Outcome, run
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import Schedule
from tests.simulation.store import Store
from tests.simulation.stores import STORES


@dataclass(frozen=True, slots=True)
class Task:
    """One scenario on one store: all within bounds, or at random, for some seconds at most."""

    store: str
    scenario: str
    bounds: Bounds | None = None
    seed: int = 0
    seconds: float = math.inf
    part: Part = WHOLE


@dataclass(slots=True)
class Tally:
    """What came of a task."""

    task: Task
    runs: int = 0
    stories: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    #: Nothing within the bounds is left.
    whole: bool = True


@cache
def store_of(name: str) -> Store:
    """Return the store of this process, which lasts as long as that."""
    store = STORES[name](folder())
    gc.collect()
    gc.freeze()  # what is there now stays, and no collection after a run has to look at it
    return store


def work(task: Task, *, most: int = 1) -> Tally:
    """Carry a task out in this process."""
    logging.disable()  # of all that fails somebody would say so
    scenario, store = SCENARIOS[task.scenario], store_of(task.store)
    search = Search(scenario, store)
    began = time.monotonic()
    until = began + task.seconds
    if task.bounds is not None:
        whole = search.exhaust(task.bounds, most, lambda: time.monotonic() < until, task.part)
    else:
        search.wander(Random(task.seed), lambda: time.monotonic() < until, most)
        whole = True
    failures = [
        f"{line(task.store, task.scenario, found)}\n    {found.violation}"
        for found in (search.shrink(failure) for failure in search.failures)
    ]
    took = time.monotonic() - began
    return Tally(task, search.runs, len(search.stories), took, failures, whole)


def line(store: str, scenario: str, outcome: Outcome) -> str:
    """What to paste to have a run again."""
    return f"{store} {scenario}: {outcome.schedule}".rstrip()


def replay(text: str) -> Outcome:
    """Run `store scenario: schedule` once more."""
    where, _, schedule = text.partition(":")
    store, scenario = where.split()
    return run(SCENARIOS[scenario], store_of(store), Schedule.parse(schedule))
