"""Go through schedules for as long as one likes: all within a bound, then others at random."""

from __future__ import annotations

import argparse
import sys
import time

from .catalogue import SCENARIOS
from .exploring import Failed, explore, sample

AT_A_TIME = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description=__doc__)
    parser.add_argument(
        "-k", metavar="NAME", default="", help="only scenarios with this in the name"
    )
    parser.add_argument("--preemptions", type=int, help="not as many as each has in the tests")
    parser.add_argument("--minutes", type=float, default=1.0, help="at random, for all together")
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule at random")
    options = parser.parse_args()
    chosen = [scenario for name, scenario in SCENARIOS.items() if options.k in name]
    failures = 0
    for scenario in chosen:
        bound = scenario.preemptions if options.preemptions is None else options.preemptions
        start = time.monotonic()
        try:
            schedules = explore(scenario, bound)
        except Failed as failure:
            print(f"FAILED {failure}", flush=True)
            failures += 1
            continue
        seconds = time.monotonic() - start
        print(
            f"{scenario.name}: all {schedules:,} schedules with up to {bound} preemptions, ", end=""
        )
        seed, until = options.seed, time.monotonic() + 60 * options.minutes / len(chosen)
        try:
            while time.monotonic() < until:
                sample(scenario, seed, AT_A_TIME)
                seed += 1
        except Failed as failure:
            print(f"and at random, with seed {seed}:\nFAILED {failure}", flush=True)
            failures += 1
            continue
        more = AT_A_TIME * (seed - options.seed)
        print(f"in {seconds:.1f} s; {more:,} at random", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
