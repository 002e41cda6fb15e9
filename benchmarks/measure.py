"""Interleaved timing: the contenders take turns within one run, so that its mood hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

#: The steps of one repetition, in order, by name.
Cycle = Mapping[str, Callable[[], object]]
#: The sum of a cycle's steps.
TOTAL = "total"
#: How often a contender repeats its cycle before it is the next one's turn.
TURN = 10


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: ``rounds`` times about ``seconds`` for each contender."""

    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours against a yardstick: the median over the rounds of the ratio of their medians."""

    median: float
    low: float
    high: float


def interleave(contenders: Sequence[Cycle], effort: Effort) -> list[list[dict[str, float]]]:
    """Time the contenders in turn; return, for each, its rounds' medians by step, in us."""
    fastest = min(_warm_up(cycle, effort.seconds) for cycle in contenders)
    # All do equally many repetitions, so a slow one lasts longer than the effort says.
    turns = max(2, round(effort.seconds / fastest / TURN))
    rounds = [_round(contenders, turns) for _ in range(effort.rounds)]
    return [list(of_one) for of_one in zip(*rounds, strict=True)]


def ratio(ours: Sequence[dict[str, float]], raw: Sequence[dict[str, float]], step: str) -> Ratio:
    ratios = [mine[step] / theirs[step] for mine, theirs in zip(ours, raw, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))


def _warm_up(cycle: Cycle, seconds: float) -> float:
    """Run a cycle for a while; return the seconds that one repetition took."""
    start, count = perf_counter_ns(), 0
    while (passed := perf_counter_ns() - start) < seconds * 1e9 or count < TURN:
        for step in cycle.values():
            step()
        count += 1
    return passed / 1e9 / count


def _round(contenders: Sequence[Cycle], turns: int) -> list[dict[str, float]]:
    """Let all take short turns, so that a disk's slow second is everybody's."""
    times: list[list[list[int]]] = [[[] for _ in cycle] for cycle in contenders]
    order = list(zip(contenders, times, strict=True))
    for _ in range(turns):
        for cycle, taken in order:
            for _ in range(TURN):
                _time(cycle, taken)
        order.reverse()  # so that none of them always follows the same one
    return [_medians(cycle, taken) for cycle, taken in zip(contenders, times, strict=True)]


def _time(cycle: Cycle, taken: list[list[int]]) -> None:
    for step, durations in zip(cycle.values(), taken, strict=True):
        start = perf_counter_ns()
        step()
        durations.append(perf_counter_ns() - start)


def _medians(cycle: Cycle, taken: list[list[int]]) -> dict[str, float]:
    medians = {name: median(durations) / 1000 for name, durations in zip(cycle, taken, strict=True)}
    medians[TOTAL] = median(map(sum, zip(*taken, strict=True))) / 1000
    return medians
