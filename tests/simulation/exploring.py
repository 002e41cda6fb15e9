"""Exploring in several processes: what is searched where, and what came of it."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from tests.simulation.explore import Bounds, Search, shrink
from tests.simulation.run import Outcome, run
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import Schedule
from tests.simulation.store import Store
from tests.simulation.stores import STORES


@dataclass(frozen=True, slots=True)
class Task:
    """One scenario on one store: all within bounds, or at random for some seconds."""

    store: str
    scenario: str
    bounds: Bounds | None = None
    seed: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Tally:
    """What came of a task."""

    task: Task
    runs: int = 0
    steps: int = 0
    stories: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


@cache
def _store(name: str) -> Store:
    """Return the store of this process, which lasts as long as that."""
    return STORES[name](Path(tempfile.mkdtemp(prefix="simulation-", dir=_folder())))


def _folder() -> str | None:
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None


def work(task: Task, *, most: int = 1) -> Tally:
    """Carry a task out in this process."""
    scenario, store = SCENARIOS[task.scenario], _store(task.store)
    search = Search(scenario, store)
    began = time.monotonic()
    if task.bounds is not None:
        search.exhaust(task.bounds, most)
    else:
        until = began + task.seconds
        search.wander(Random(task.seed), lambda: time.monotonic() < until, most)
    failures = [line(shrink(found, scenario, store), task) for found in search.failures]
    took = time.monotonic() - began
    return Tally(task, search.runs, search.steps, len(search.stories), took, failures)


def line(outcome: Outcome, task: Task) -> str:
    """What to paste to have a failure again."""
    return f"{task.store} {task.scenario}: {outcome.schedule}\n    {outcome.violation}"


def replay(text: str) -> Outcome:
    """Run `store scenario: schedule` once more."""
    where, _, schedule = text.partition(":")
    store, scenario = where.split()
    return run(SCENARIOS[scenario], _store(store), Schedule.parse(schedule))
