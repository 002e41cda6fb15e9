"""Run the production protocol through schedules: all within bounds, or at random for some time.

Without arguments: every scenario on every store, each with one deviation or one fault at any point.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence

from tests.simulation.explore import Bounds
from tests.simulation.exploring import Tally, Task, replay, work
from tests.simulation.folder import prepared
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.stores import HAS, STORES

#: Seconds that one search at random lasts, before another begins with another seed.
PIECE = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--store", action="append", choices=STORES, help="only on this one")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only this one")
    bounds = parser.add_argument_group("bounds", "what a schedule has at most: 1 of each, 1 in all")
    bounds.add_argument("--deviations", type=int, default=1, metavar="N", help="that come later")
    bounds.add_argument("--faults", type=int, default=1, metavar="N", help="that fail, but for")
    bounds.add_argument("--crashes", type=int, default=1, metavar="N", help="crashes and failovers")
    bounds.add_argument("--changes", type=int, default=1, metavar="N", help="of all together")
    bounds.add_argument(
        "--every", action="store_true", help="extend also what happens as in another schedule"
    )
    parser.add_argument(
        "--parts",
        type=int,
        default=1,
        metavar="N",
        help="of each search, side by side",
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="end each search after so long")
    parser.add_argument("--hours", type=float, metavar="H", help="at random, so long")
    parser.add_argument("--seed", type=int, default=1, help="of what is tried at random")
    parser.add_argument("-j", type=int, default=os.cpu_count(), metavar="N", help="processes")
    parser.add_argument("--replay", metavar="LINE", help="one run: 'store scenario: schedule'")
    options = parser.parse_args(arguments)
    if options.replay:
        with prepared():
            outcome = replay(options.replay)
        print(*outcome.steps, sep="\n")
        print(*outcome.story, sep="\n")
        print(outcome.violation or "nothing is violated")
        return 1 if outcome.violation else 0
    stores = options.store or list(STORES)
    scenarios = options.scenario or SCENARIOS
    pairs = [
        (name, store)
        for store in stores
        for name in scenarios
        if SCENARIOS[name].needs <= HAS[store]
    ]
    if options.hours is None:
        limits = (options.deviations, options.faults, options.crashes, options.changes)
        within = Bounds(*limits, every=options.every)
        seconds = 60 * options.minutes if options.minutes else math.inf
        tasks = [
            Task(store, name, within, seconds=seconds, part=(number, options.parts))
            for name, store in pairs
            for number in range(options.parts)
        ]
    else:
        seconds = options.hours * 3600 * options.j
        rounds = max(1, round(seconds / PIECE / len(pairs)))
        piece = seconds / rounds / len(pairs)
        tasks = [
            Task(store, name, None, options.seed + number, piece)
            for name, store in pairs
            for number in range(rounds)
        ]
    began = time.monotonic()
    tallies: list[Tally] = []
    with prepared(), multiprocessing.get_context("spawn").Pool(options.j) as pool:
        for tally in pool.imap_unordered(work, tasks):
            tallies.append(tally)
            for failure in tally.failures:
                print(f"VIOLATED {failure}", flush=True)
    _report(tallies, time.monotonic() - began)
    return 1 if any(tally.failures for tally in tallies) else 0


def _report(tallies: Sequence[Tally], took: float) -> None:
    """Print what was tried, a line for each scenario on each store."""
    sums: dict[tuple[str, str], list[float]] = {}
    for tally in tallies:
        counts = sums.setdefault((tally.task.store, tally.task.scenario), [0, 0, 0, 0])
        found = (tally.runs, tally.stories, len(tally.failures), tally.seconds)
        counts[:] = [one + more for one, more in zip(counts, found, strict=True)]
    print(f"{'store':12} {'scenario':28} {'schedules':>9} {'stories':>8} {'failed':>6} {'1/s':>6}")
    for (store, scenario), (runs, stories, failed, seconds) in sorted(sums.items()):
        rate = runs / seconds if seconds else 0
        print(f"{store:12} {scenario:28} {runs:9.0f} {stories:8.0f} {failed:6.0f} {rate:6.0f}")
    for tally in tallies:
        if not tally.whole:
            print(f"Not all within the bounds: {tally.task.scenario} on {tally.task.store}")
    total = sum(counts[0] for counts in sums.values())
    failed = sum(counts[2] for counts in sums.values())
    print(f"{total:.0f} schedules in {took:.0f} s, {failed:.0f} violations.")


if __name__ == "__main__":
    sys.exit(main())
