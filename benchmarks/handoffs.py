"""What the merged records of a closed loop say. Times are in ns, by one clock for all processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Turn(NamedTuple):
    """One hold: when it was asked for, had (and at once given back), and the release's return."""

    asked: int
    had: int
    done: int


class Summary(NamedTuple):
    """Hand-offs in us, from giving up in one process to having in the next; waits in ms."""

    p50: float
    p99: float
    to_another: float
    in_all: float
    longest_wait: float
    unfairness: float


def summary(workers: Sequence[Sequence[Turn]], seconds: float) -> Summary:
    """Judge a loop of so many ``seconds`` by its records, one list for each process."""
    stop = min(turns[0].asked for turns in workers if turns) + seconds * 1e9
    times = sorted(handoffs(workers, stop)) or [int(seconds * 1e9)]
    counts = [sum(turn.had < stop for turn in turns) for turns in workers]
    return Summary(
        p50=times[len(times) // 2] / 1e3,
        p99=times[len(times) * 99 // 100] / 1e3,
        to_another=len(times) / seconds,
        in_all=sum(counts) / seconds,
        longest_wait=max(turn.had - turn.asked for turns in workers for turn in turns) / 1e6,
        unfairness=max(counts) / max(1, min(counts)),
    )


def handoffs(workers: Sequence[Sequence[Turn]], stop: float) -> list[int]:
    """Return how long each hand-off to another process took.

    From the start of the first release since which nobody but the releasing process has had the
    lock: a process that takes it back itself lets the others wait on, so it hands nothing over.
    """
    merged = sorted((turn.had, number) for number, turns in enumerate(workers) for turn in turns)
    found, given_up, holder = [], 0, -1
    for had, number in merged:
        if had >= stop:
            break
        if number != holder:
            if holder >= 0:
                found.append(had - given_up)
            given_up, holder = had, number
    return found
