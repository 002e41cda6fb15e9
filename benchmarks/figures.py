"""What a run finds out: figures, and the targets that they are held against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure. Times are in seconds."""

    rounds: int
    #: Of a single client, each round.
    turn: float
    #: Of processes in a closed loop, each round, once they have had so long to get into their
    #: stride; how often; how many processes, twice.
    stride: float
    loop: float
    loops: int
    few: int
    many: int
    #: Who waits for one lock at once, where there are many of them.
    crowd: int
    #: What waiters are given to come to rest, and how many there are.
    settle: float
    waiters: int
    #: Before their statements are counted, for an idle session of PostgreSQL 15 tells what it did
    #: last after ten seconds; and for how long that is done.
    report: float
    watch: float
    #: From their kill until the server is asked whether it has noticed; of locks whose holder dies.
    notice: float
    ttl: float
    #: Of the steady rate, and with an old snapshot open.
    steady: float
    snapshot: float
    #: Names that are held at once, and that were once held.
    held: int
    released: int


FULL = Effort(
    rounds=11,
    turn=0.2,
    stride=2.0,
    loop=2.0,
    loops=3,
    few=8,
    many=32,
    crowd=125,
    settle=1.5,
    waiters=50,
    report=15.0,
    watch=10.0,
    notice=1.5,
    ttl=3.0,
    steady=60.0,
    snapshot=11.0,
    held=100_000,
    released=1_000_000,
)
QUICK = Effort(
    rounds=3,
    turn=0.05,
    stride=1.0,
    loop=0.5,
    loops=1,
    few=8,
    many=32,
    crowd=125,
    settle=1.0,
    waiters=50,
    report=1.0,
    watch=1.0,
    notice=1.5,
    ttl=3.0,
    steady=3.0,
    snapshot=3.0,
    held=2_000,
    released=20_000,
)
#: Only shows that everything runs.
SMOKE = Effort(
    rounds=1,
    turn=0.001,
    stride=0.0,
    loop=0.05,
    loops=1,
    few=2,
    many=3,
    crowd=3,
    settle=0.05,
    waiters=2,
    report=0.05,
    watch=0.05,
    notice=0.05,
    ttl=0.5,
    steady=0.1,
    snapshot=0.1,
    held=20,
    released=50,
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity of one contender, as each round found it."""

    group: str
    scenario: str
    what: str
    unit: str
    who: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was found: a ratio of two contenders, or one's own figure."""

    target: Target
    found: float
    low: float
    high: float

    @property
    def met(self) -> bool:
        bound = self.target.bound
        return self.found >= bound if self.target.at_least else self.found <= bound


@dataclass(frozen=True, slots=True)
class Target:
    """What ``who`` has to reach: times the figure of ``against``, or without one by itself."""

    group: str
    scenario: str
    what: str
    who: str
    bound: float
    against: str = ""
    at_least: bool = False

    def judge(self, figures: Iterable[Figure]) -> Verdict | None:
        """Return what came of it; None when one of the two was not measured."""
        rounds = {
            figure.who: figure.rounds
            for figure in figures
            if (figure.group, figure.scenario, figure.what)
            == (self.group, self.scenario, self.what)
        }
        if self.who not in rounds or (self.against and self.against not in rounds):
            return None
        found = list(rounds[self.who])
        if self.against:
            # By round, since one round's mood is both contenders'.
            pairs = zip(found, rounds[self.against], strict=True)
            found = [ours / theirs if theirs else float("inf") for ours, theirs in pairs]
        return Verdict(self, median(found), min(found), max(found))


class Sheet:
    """Collects a scenario's figures, round by round."""

    def __init__(self, group: str, scenario: str) -> None:
        self._group, self._scenario = group, scenario
        self._rounds: dict[tuple[str, str, str], list[float]] = {}

    def add(self, who: str, what: str, unit: str, value: float) -> None:
        self._rounds.setdefault((what, unit, who), []).append(value)

    def figures(self) -> Iterator[Figure]:
        for (what, unit, who), rounds in self._rounds.items():
            yield Figure(self._group, self._scenario, what, unit, who, tuple(rounds))


def scenarios(figures: Sequence[Figure]) -> dict[tuple[str, str], list[Figure]]:
    """Return the figures by group and scenario, in the order of the run."""
    found: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        found.setdefault((figure.group, figure.scenario), []).append(figure)
    return found
