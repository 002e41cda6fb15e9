"""More and more processes share a hundred names: the rate at which one server grants no more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from time import monotonic

from . import peers
from .figures import Effort, Figure, Sheet, Target
from .peers import Entry
from .site import Site
from .workers import Channel, crew, race, sleep_until

GROUP, SCENARIO = "rising load", "100 names, pairs"
NAMES = 100
LEASE, VOLATILE = "dblock lease, PostgreSQL", "dblock lease, PostgreSQL, volatile"

#: Without the sync of the disk two processes get further, or volatile tables are not worth it.
TARGETS = (Target(GROUP, SCENARIO, "of 2", VOLATILE, 1.2, LEASE, at_least=True),)


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """Twice as many processes each time, of which each has its share of the names."""
    found = {
        LEASE: peers.entries(site, [peers.LEASE]),
        VOLATILE: peers.entries(site, [peers.VOLATILE_LEASE]),
        "dblock lease, MariaDB": peers.entries(site, [peers.LEASE], "mariadb"),
        "dblock lease, MySQL": peers.entries(site, [peers.LEASE], "mysql"),
    }
    crowds = [1 << power for power in range(effort.many.bit_length())]
    sheet = Sheet(GROUP, SCENARIO)
    with crew(crowds[-1]) as workers:
        for _ in range(effort.loops):
            for crowd in crowds:
                for name, entries in found.items():
                    for entry in entries:
                        seconds = effort.stride + effort.loop
                        pairs = race(workers[:crowd], seconds, loop, entry, crowd, effort.stride)
                        sheet.add(name, f"of {crowd}", "/s", sum(pairs) / effort.loop)
    yield from sheet.figures()


def loop(channel: Channel, number: int, entry: Entry, crowd: int, stride: float) -> int:
    """Take and give back one name after the other; return how often after the ``stride``."""
    client = entry.connect()
    names = [f"name {name}" for name in range(number, NAMES, crowd)]
    for name in names:  # their rows are there, as in a service that has run for a while
        warm = client.lock(name)
        peers.take(warm)
        warm.release()
    start, stop = channel.meet()
    sleep_until(start)
    pairs = 0
    for name in cycle(names):
        if (asked := monotonic()) >= stop:
            break
        lock = client.lock(name)
        peers.take(lock)
        lock.release()
        pairs += asked >= start + stride
    client.close()
    return pairs
