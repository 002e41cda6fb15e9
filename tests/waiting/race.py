"""Release against registration, over and over: ``python -m tests.waiting.race``.

Nobody looks here, so a call that is lost is a waiter that waits for ever.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from dblock import Locks
from dblock.schema import upgrade
from tests.patience import NEVER
from tests.servers import PostgreSQL
from tests.support import LONG, SECONDS
from tests.worlds.behind import timed

SPREAD = 0.002  # seconds, about as long as it takes to join the queue


def race(url: str, rounds: int, seed: int = 1) -> int:
    """Race so many times; return how often the waiter had joined the queue in time to be called.

    Raises NotAcquired when a call was lost.
    """
    start = threading.Barrier(2, timeout=SECONDS)

    def release(locks: Locks) -> None:
        lease, chance = locks.lease("race", ttl=LONG), random.Random(seed)
        for _ in range(rounds):
            with lease:
                start.wait()
                time.sleep(chance.uniform(0, SPREAD))
            start.wait()

    def acquire(locks: Locks) -> None:
        timed(locks, poll=NEVER, poll_max=NEVER)
        lease = locks.lease("race", ttl=LONG, wait=SECONDS)
        chance = random.Random(-seed)
        for _ in range(rounds):
            start.wait()
            time.sleep(chance.uniform(0, SPREAD))
            with lease:
                pass
            start.wait()

    with ThreadPoolExecutor(2) as pool, Locks(url) as one, Locks(url) as other:
        for done in [pool.submit(release, one), pool.submit(acquire, other)]:
            done.result()
        return other._database.contenders.local_queue.notifier.calls


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.waiting.race", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100_000)
    rounds = parser.parse_args().rounds
    with PostgreSQL() as server:
        upgrade(server.url)
        called = race(server.url, rounds)
        print(f"{rounds:,} races, {called:,} waiters called, none lost")


if __name__ == "__main__":
    main()
