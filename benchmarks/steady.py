"""A thousand acquisitions a second over a hundred names: no more than that, for a minute."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from random import Random
from time import monotonic

from . import peers
from .figures import Effort, Figure, Sheet, Target
from .peers import Entry
from .site import Site
from .workers import Channel, crew, race, sleep_until

GROUP, SCENARIO = "steady rate", "1,000/s over 100 names"
RATE, NAMES = 1000, 100
#: The peers are there to compare with, so a part of the time does for them.
SHARE = 0.1

TARGETS = (
    Target(GROUP, SCENARIO, "acquired", peers.LEASE, 0.99 * RATE, at_least=True),
    Target(GROUP, SCENARIO, "p99", peers.LEASE, 3.0),
)


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """Latency counts from when an acquisition was due: who falls behind cannot hide it."""
    names = (
        peers.LEASE,
        peers.VOLATILE_LEASE,
        peers.ADVISORY,
        peers.REDIS_PY,
        peers.REDIS_PY_AOF,
        peers.PYTHON_REDIS_LOCK,
    )
    sheet = Sheet(GROUP, SCENARIO)
    with crew(effort.few) as workers:
        for entry in peers.entries(site, names):
            seconds = effort.steady * (1 if entry.name == peers.LEASE else SHARE)
            records = race(workers, seconds, tick, entry, RATE / effort.few)
            taken = sorted(wait for record in records for wait in array("d", record))
            sheet.add(entry.name, "acquired", "/s", len(taken) / seconds)
            sheet.add(entry.name, "p50", "ms", taken[len(taken) // 2] * 1e3)
            sheet.add(entry.name, "p99", "ms", taken[len(taken) * 99 // 100] * 1e3)
            sheet.add(entry.name, "longest", "ms", taken[-1] * 1e3)
    yield from sheet.figures()


def tick(channel: Channel, number: int, entry: Entry, rate: float) -> bytes:
    """Acquire and release at a rate; return how long after it was due each was had, in seconds."""
    client = entry.connect()
    choose = Random(number)  # each its own choices, the same in every run
    for name in range(NAMES):  # their rows are there, as in a service that has run for a while
        if name % 8 == number % 8:
            warm = client.lock(f"steady {name}")
            peers.take(warm)
            warm.release()
    start, stop = channel.meet()
    due = start + choose.random() / rate
    waits = array("d")
    while due < stop:
        sleep_until(due)
        if monotonic() >= stop:
            break
        lock = client.lock(f"steady {choose.randrange(NAMES)}")
        peers.take(lock)
        waits.append(monotonic() - due)
        lock.release()
        due += 1 / rate
    client.close()
    return waits.tobytes()
