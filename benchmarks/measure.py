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


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: ``rounds`` turns of about ``seconds`` for each contender."""

    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours against a yardstick: the median over the rounds of the ratio of their medians."""

    median: float
    low: float
    high: float


def interleave(contenders: Sequence[Cycle], effort: Effort) -> list[list[dict[str, float]]]:
    """Time the contenders in turn; return, for each, its rounds' medians by step, in us.

    Every other round goes backwards, so that none of them always follows the same one.
    """
    fastest = min(_warm_up(cycle, effort.seconds) for cycle in contenders)
    # All do equally many repetitions, so a slow one lasts longer than the effort says.
    repetitions = max(10, round(effort.seconds / fastest))
    rounds: list[list[dict[str, float]]] = [[] for _ in contenders]
    order = list(range(len(contenders)))
    for _ in range(effort.rounds):
        for index in order:
            rounds[index].append(_medians(contenders[index], repetitions))
        order.reverse()
    return rounds


def ratio(ours: Sequence[dict[str, float]], raw: Sequence[dict[str, float]], step: str) -> Ratio:
    ratios = [mine[step] / theirs[step] for mine, theirs in zip(ours, raw, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))


def _warm_up(cycle: Cycle, seconds: float) -> float:
    """Run a cycle for a while; return the seconds that one repetition took."""
    start, count = perf_counter_ns(), 0
    while (passed := perf_counter_ns() - start) < seconds * 1e9 or count < 10:
        for step in cycle.values():
            step()
        count += 1
    return passed / 1e9 / count


def _medians(cycle: Cycle, repetitions: int) -> dict[str, float]:
    steps = list(cycle.values())
    times: list[list[int]] = [[] for _ in steps]
    for _ in range(repetitions):
        for step, taken in zip(steps, times, strict=True):
            start = perf_counter_ns()
            step()
            taken.append(perf_counter_ns() - start)
    medians = {name: median(taken) / 1000 for name, taken in zip(cycle, times, strict=True)}
    medians[TOTAL] = median(map(sum, zip(*times, strict=True))) / 1000
    return medians
