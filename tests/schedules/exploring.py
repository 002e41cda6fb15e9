"""Going through the schedules of a scenario: all within a bound, then some at random.

A scenario is a function that gets a :class:`.Run`, makes what it is about, starts threads, lets
them go and asserts what has to be so then. It is called anew for each schedule.

A schedule is written as what in it deviates from the plain one, in which a thread goes on until it
waits or ends, and then the first that can::

    one at Worker.wake `self._wake.notify()`: two
    two waits at Worker._run `self._wake.wait(min(pause, self._linger))` #2: one

In the first line ``one`` is taken off before that statement, and ``two`` goes on. In the second
``two`` waits there for the second time, and ``one`` is the next.
"""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import dblock

from .scheduler import NEVER, Choice, Decide, Rules, Run
from .standard import replaced

PACKAGE = f"{Path(dblock.__file__).parent}/"

#: A class, or a function.
Code = Callable[..., object]


@dataclass(frozen=True)
class Scenario:
    """What threads do, and where they are taken off while they do it.

    ``early`` is False where time only passes when nobody can go on.
    """

    function: Callable[[Run], None]
    looked_at: tuple[Code, ...]
    preemptions: int
    early: bool

    @property
    def name(self) -> str:
        return self.function.__name__

    def run(self, decide: Decide) -> tuple[Run, BaseException | None]:
        """Go through one schedule; return what was wrong too."""
        run = Run(Rules(_within(self.looked_at), 1 if self.early else NEVER), decide)
        with replaced(run):
            try:
                self.function(run)
            except Exception as error:
                return run, error
        return run, None


#: All scenarios, by name.
SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *looked_at: Code, preemptions: int = 2, early: bool = True
) -> Callable[[Callable[[Run], None]], Scenario]:
    def note(function: Callable[[Run], None]) -> Scenario:
        made = Scenario(function, looked_at, preemptions, early)
        assert made.name not in SCENARIOS
        SCENARIOS[made.name] = made
        return made

    return note


class Deviation(NamedTuple):
    """At the ``number``-th choice the thread with this number goes on, not the first."""

    number: int
    thread: int


Deviations = tuple[Deviation, ...]


class WrongSchedule(AssertionError):
    """There is no schedule as it is written: the code has changed."""


class Failed(AssertionError):
    """A scenario does not come out as it has to, under a schedule."""

    def __init__(self, scenario: Scenario, schedule: str, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}\n{scenario.name}:\n{schedule}")
        self.schedule = schedule
        self.error = error


def explore(scenario: Scenario, preemptions: int | None = None) -> int:
    """Go through all schedules with so many preemptions, those with fewer first; return how many.

    Raises Failed.
    """
    bound = scenario.preemptions if preemptions is None else preemptions
    to_do: list[list[Deviations]] = [[()], *([] for _ in range(bound))]
    schedules = 0
    with quiet():
        for used, those in enumerate(to_do):
            while those:
                deviations = those.pop()
                run, error = scenario.run(_deviating(deviations))
                schedules += 1
                if error is not None:
                    raise _failure(scenario, deviations)
                for cost, further in _further(run, deviations):
                    if used + cost <= bound:
                        to_do[used + cost].append(further)
    return schedules


def sample(scenario: Scenario, seed: int, schedules: int, most: int = 6) -> None:
    """Go through some schedules with up to ``most`` deviations of any kind. Raises Failed."""
    chance = random.Random(f"{scenario.name} {seed}")
    with quiet():
        run, _ = scenario.run(_deviating(()))
        choices = len(run.choices)
        for _ in range(schedules if choices else 0):
            wanted = {chance.randrange(choices) for _ in range(chance.randint(1, most))}
            decider = _Random(chance, wanted)
            _, error = scenario.run(decider)
            if error is not None:
                raise _failure(scenario, tuple(decider.made))


def replay(scenario: Scenario, schedule: str) -> None:
    """Go through one schedule as it is written. Raises WrongSchedule if there is none like it."""
    lines = [line.strip() for line in schedule.strip().splitlines()]

    def decide(choice: Choice) -> int:
        if not lines:
            return 0
        at, _, thread = lines[0].rpartition(": ")
        if at != written(choice):
            return 0
        if thread not in choice.threads:
            raise WrongSchedule(f"{thread} cannot go on there: {lines[0]}")
        lines.pop(0)
        return choice.threads.index(thread)

    with quiet():
        _, error = scenario.run(decide)
    if lines:
        raise WrongSchedule(f"it does not come to: {lines[0]}")
    if error is not None:
        raise error


def written(choice: Choice) -> str:
    """A place, as it stands in a schedule."""
    thread, state, function, statement, nth = choice.where
    words = [thread, "" if state == "at" else state]
    words += [f"at {function} `{statement}`" if function else "", f"#{nth}" if nth > 1 else ""]
    return " ".join(word for word in words if word)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the garbage collection from coming anywhere, and what is planned out of the log."""
    before = logging.root.manager.disable
    gc.collect()
    gc.disable()
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)
        gc.enable()


# --- inside ----------------------------------------------------------------------------------


class _Random:
    """Decides at random, at some of the choices."""

    def __init__(self, chance: random.Random, wanted: set[int]) -> None:
        self.made: list[Deviation] = []
        self._chance = chance
        self._wanted = wanted
        self._number = -1

    def __call__(self, choice: Choice) -> int:
        self._number += 1
        if self._number not in self._wanted:
            return 0
        thread = self._chance.choice([n for n, cost in enumerate(choice.costs) if cost < NEVER])
        self.made.append(Deviation(self._number, thread))
        return thread


def _deviating(deviations: Deviations) -> Decide:
    threads, number = dict(deviations), -1

    def decide(choice: Choice) -> int:
        nonlocal number
        number += 1
        thread = threads.get(number, 0)
        return thread if thread < len(choice.threads) else 0

    return decide


def _further(run: Run, deviations: Deviations) -> Iterator[tuple[int, Deviations]]:
    """The schedules that go on deviating where this one does no more, and what that costs."""
    first = deviations[-1].number + 1 if deviations else 0
    for number, choice in enumerate(run.choices[first:], first):
        for thread, cost in enumerate(choice.costs):
            if thread:
                yield cost, (*deviations, Deviation(number, thread))


def _failure(scenario: Scenario, deviations: Deviations) -> Failed:
    """The failure, with no more deviations than it needs."""
    fewer = True
    while fewer:
        fewer = False
        for one in range(len(deviations)):
            shorter = deviations[:one] + deviations[one + 1 :]
            if scenario.run(_deviating(shorter))[1] is not None:
                deviations, fewer = shorter, True
                break
    run, error = scenario.run(_deviating(deviations))
    assert error is not None, "the same schedule came out in another way"
    lines = [
        f"{written(run.choices[number])}: {run.choices[number].threads[thread]}"
        for number, thread in deviations
        if number < len(run.choices) and thread < len(run.choices[number].threads)
    ]
    return Failed(scenario, "\n".join(lines), error)


def _within(looked_at: tuple[Code, ...]) -> Callable[[CodeType], bool]:
    """Return what tells whether a piece of code is of these."""
    known: dict[int, tuple[bool, CodeType]] = {}
    names = tuple(f"{one.__qualname__}." for one in looked_at)

    def within(code: CodeType) -> bool:
        found = known.get(id(code))  # to compare code takes its time
        if found is None:
            ours = code.co_filename.startswith(PACKAGE)
            found = known[id(code)] = (ours and f"{code.co_qualname}.".startswith(names), code)
        return found[0]

    return within
