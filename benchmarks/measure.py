"""Interleaved timing: the contenders take turns within one run, so that its mood hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter_ns

#: The steps of one repetition, in order, by name.
Cycle = Mapping[str, Callable[[], object]]
#: The sum of a cycle's steps.
TOTAL = "total"
#: How often a contender repeats its cycle before it is the next one's turn.
TURN = 10


def interleave(
    contenders: Sequence[Cycle], rounds: int, seconds: float
) -> list[list[dict[str, float]]]:
    """Time the contenders in turn; return, for each, its rounds' medians by step, in us.

    A round takes about ``seconds`` for each, less for the fast and more for the slow ones: all do
    equally many repetitions.
    """
    warm = [_warm_up(cycle, seconds) for cycle in contenders]
    turns = max(1, round(seconds / (sum(warm) / len(warm)) / TURN))
    measured = [_round(contenders, turns) for _ in range(rounds)]
    return [list(of_one) for of_one in zip(*measured, strict=True)]


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
