"""Which schedules are tried: all within bounds, then at random; and the shortest that fails.

What can only come to the same as another is left out: see :func:`deviations` and :func:`faults`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random

from tests.simulation.allowance import FALLS
from tests.simulation.run import Outcome, Scenario, run
from tests.simulation.schedule import LATE, After, Change, Fault, Later, Schedule, label_kind
from tests.simulation.store import Store
from tests.simulation.transport import READING

#: Seconds by which events come later: within a wait, past a short term, past a long one.
DELAYS = (0.05, 1.7, 8.0)
#: An event may come after each of so many of the next ones.
NEXT = 6
#: Faults of a request, and of a connection that is made.
FAULTS = (
    *map(Fault, ("lost", "mute", "unanswered", "deaf", "kill", "kill-before", "interrupt")),
    *map(Fault, ("crash", "crash-after")),
    Fault("pause", 9.0),
)
#: Faults after a request was carried out, or before: of what only reads either comes to the other.
_KILL_BEFORE, _INTERRUPT = Fault("kill-before"), Fault("interrupt")
_AFTER = (
    *map(Fault, ("unanswered", "deaf", "crash-after")),
    Fault("crash-after", 9.0),
    _KILL_BEFORE,
)
CONNECT_FAULTS = (Fault("lost"), Fault("mute"))
NOTIFIED_FAULTS = (Fault("lost"), Fault("deaf"), Fault("cut"))
#: What happens at a client, and at the server of what is said of a request otherwise.
_AT_CLIENT = frozenset({"begin", "sleep", "timer", "woken", "notified", "hangup", "connect"})
_PARTS_AT_SERVER = frozenset({"late", "given-up", "cut"})
#: A thread of a client that works at one member of a quorum.
_MEMBER = re.compile(r"\w+\.(m\d)\.")
#: Of schedules at random: how many changes they have, and how many of them others are made from.
CHANGES_MAX, KEPT = 6, 200


def deviations(outcome: Outcome, start: int = 0) -> Iterator[tuple[str, Change]]:
    """What may come later than it did, from a step on.

    Only what happens at the server comes after what others do, and that at the server: two things
    in different places, or two that only read, may as well happen the other way round. Nor is a
    request late that only reads, or connects: what its sender did before is, or its reply.
    """
    steps = outcome.steps
    for number in range(start, len(steps)):
        label = steps[number]
        at_server, reads = _is_at_server(label), _reads(label)
        if not (reads or _is_connect(label)):
            for seconds in DELAYS:
                yield label, Later(seconds)
        for other in steps[number + 1 : number + 1 + NEXT] if at_server else ():
            others = other.split(".")[0] != label.split(".")[0]
            others = others and not _are_apart(_member(label), _member(other))
            if others and _is_at_server(other) and not (reads and _reads(other)):
                yield label, After(other)


def faults(
    outcome: Outcome, start: int = 0, more: tuple[Fault, ...] = ()
) -> Iterator[tuple[str, Change]]:
    """What may fail, from a step on: at a request also ``more``, by the store.

    What only reads fails before it is carried out, or comes late, in one way. A fall that may lose
    more loses no more than there is. Who is killed when it sends something at once is as one that
    was killed at what it sent before; and nothing interrupts what is no thread of the user's.
    """
    for number, label in enumerate(outcome.steps[start:], start):
        kinds: tuple[Fault, ...]
        if ".notified#" in label:
            kinds = NOTIFIED_FAULTS
        elif f"{label}<" not in outcome.steps:
            continue  # no request
        else:
            kinds = CONNECT_FAULTS if _is_connect(label) else (*FAULTS, *more)
        skipped = set()
        if _reads(label):
            skipped |= {*_AFTER, LATE[0]}
        if number >= start + 2 and _goes_on(*outcome.steps[number - 2 : number + 1]):
            skipped.add(_KILL_BEFORE)
        if _is_daemon(label):
            skipped.add(_INTERRUPT)
        losable = outcome.losable.get(label, {})
        for fault in kinds:
            most = losable.get(fault.kind, math.inf)
            as_much = (one for one in kinds if one.kind == fault.kind and most <= one.seconds)
            if fault not in skipped and all(one.seconds >= fault.seconds for one in as_much):
                yield label, fault


def _goes_on(before: str, reply: str, label: str) -> bool:
    """Whether a request follows at once on the reply to one before it, which is no connect."""
    same = before.rpartition(".")[0] == label.rpartition(".")[0]
    return same and reply == f"{before}<" and not _is_connect(before)


def _is_daemon(label: str) -> bool:
    """Whether it is what a worker of dblock's sends, not a thread of the user's."""
    _, _, thread = label.rpartition(".")[0].partition(".")
    return thread != "" and not thread.isdigit()


def _member(label: str) -> str | None:
    """Return at which member of a quorum an event happens, if its label tells that."""
    found = _MEMBER.match(label)
    return None if found is None else found[1]


def _are_apart(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _is_at_server(label: str) -> bool:
    """Whether an event happens at the server, and not at a client."""
    _, is_part, part = label.partition("<")
    if is_part:
        return part in _PARTS_AT_SERVER
    return label_kind(label) not in _AT_CLIENT


def _reads(label: str) -> bool:
    """Whether it is a request that only reads, in a statement that locks nothing."""
    return "<" not in label and label_kind(label) in READING


def _is_connect(label: str) -> bool:
    return "<" not in label and label_kind(label) == "connect"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a search goes: how many changes of each kind a schedule has at most."""

    deviations: int = 1
    #: Other faults than those of the whole server.
    faults: int = 1
    #: Crashes and failovers.
    crashes: int = 1
    #: Of all together.
    changes: int = 1
    #: Whether schedules are extended that tell the story of another one, too.
    every: bool = False

    def after(self, change: Change) -> Bounds:
        """Return what is left after a change."""
        crash = isinstance(change, Fault) and change.kind in FALLS
        fault = isinstance(change, Fault) and not crash
        return replace(
            self,
            deviations=self.deviations - (not fault and not crash),
            faults=self.faults - fault,
            crashes=self.crashes - crash,
            changes=self.changes - 1,
        )

    @property
    def kept(self) -> bool:
        """Whether all is within the bounds."""
        return min(self.deviations, self.faults, self.crashes, self.changes) >= 0


#: Which part of a search, of how many.
Part = tuple[int, int]
WHOLE: Part = 0, 1


@dataclass(slots=True)
class Search:
    """A search for schedules that fail, and what it has tried."""

    scenario: Scenario
    store: Store
    runs: int = 0
    failures: list[Outcome] = field(default_factory=list)
    #: Hashes of those that were told.
    stories: set[int] = field(default_factory=set)

    def run(self, schedule: Schedule) -> tuple[Outcome, bool]:
        """Run one; return what came of it, and whether its story is a new one."""
        outcome = run(self.scenario, self.store, schedule)
        self.runs += 1
        story = hash(outcome.story)
        new = story not in self.stories
        self.stories.add(story)
        if outcome.violation is not None:
            self.failures.append(outcome)
        return outcome, new

    def exhaust(
        self,
        bounds: Bounds,
        most: int = 1,
        goes_on: Callable[[], bool] = lambda: True,
        part: Part = WHOLE,
    ) -> bool:
        """Try all schedules within bounds, until so many have failed; return whether it did.

        A schedule is extended behind its last change only, and only where its story is a new one
        among those that can be extended as far, unless every one is asked for. A part has every
        so-manieth of the first changes, and what comes behind them.
        """
        outcome, _ = self.run(Schedule())
        todo, known = [(outcome, 0, bounds)], set()
        while todo and len(self.failures) < most:
            outcome, start, left = todo.pop()
            changes = self._changes(outcome, start, left)
            if not outcome.schedule.changes:
                changes = islice(changes, part[0], None, part[1])
            for label, change in changes:
                found, _ = self.run(outcome.schedule.plus(label, change))
                if len(self.failures) >= most or not goes_on():
                    return False
                rest = left.after(change)
                story = hash((found.story, rest))
                if rest.changes > 0 and (bounds.every or story not in known):
                    known.add(story)
                    # The run is the same up to there.
                    todo.append((found, outcome.steps.index(label) + 1, rest))
        return not self.failures

    def _changes(self, outcome: Outcome, start: int, left: Bounds) -> Iterator[tuple[str, Change]]:
        """What may be another from a step on, within what is left of the bounds."""
        changes = (*deviations(outcome, start), *faults(outcome, start, self.store.faults))
        return ((label, change) for label, change in changes if left.after(change).kept)

    def wander(self, random: Random, goes_on: Callable[[], bool], most: int = 1) -> None:
        """Try schedules at random, each like one that told a new story."""
        outcome, _ = self.run(Schedule())
        known = [outcome]
        while goes_on():
            parent = random.choice(known[-KEPT:])
            schedule = parent.schedule
            if schedule.changes and random.random() < 0.2:
                schedule = schedule.without(random.randrange(len(schedule.changes)))
            if random.random() < 0.4:
                choices = list(faults(parent, more=self.store.faults))
            else:
                choices = list(deviations(parent))
            if not choices or len(schedule.changes) >= CHANGES_MAX:
                continue
            label, change = random.choice(choices)
            if any(type(one) is type(change) for one in schedule.of(label)):
                continue  # an event comes later, or fails, once
            outcome, new = self.run(schedule.plus(label, change))
            if len(self.failures) >= most:
                return
            if new:
                known.append(outcome)

    def shrink(self, outcome: Outcome) -> Outcome:
        """Return a failure with as few changes as still fail."""
        smaller = True
        while smaller:
            smaller = False
            for number in reversed(range(len(outcome.schedule.changes))):
                found = run(self.scenario, self.store, outcome.schedule.without(number))
                if found.violation is not None:
                    outcome, smaller = found, True
                    break
        return outcome
