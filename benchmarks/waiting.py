"""What waiting costs the server, and what dead waiters leave there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from time import sleep

from . import peers
from .drain import hold
from .figures import Effort, Figure, Sheet, Target
from .gauges import read
from .peers import Entry
from .site import Site
from .workers import Channel, Worker, crew

GROUP = "waiting"
THREADS, PROCESSES = "50 threads of one process", "50 processes"

TARGETS = (
    Target(GROUP, THREADS, "connections", peers.LEASE, 3),
    Target(GROUP, THREADS, "statements", peers.LEASE, 0.5),
    *(
        target
        for scenario in (THREADS, PROCESSES)
        for target in (
            Target(GROUP, scenario, "sessions with a snapshot", peers.LEASE, 0),
            Target(GROUP, scenario, "left after kill -9", peers.LEASE, 0),
        )
    ),
)


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """Let many wait for a lock that is held throughout, watch, and kill them."""
    for scenario, processes, threads in (
        (THREADS, 1, effort.waiters),
        (PROCESSES, effort.waiters, 1),
    ):
        sheet = Sheet(GROUP, scenario)
        for entry in peers.entries(site, peers.LIBRARIES):
            with crew(processes + 1) as workers:
                watch(site, entry, workers, threads, effort, sheet)
        yield from sheet.figures()


def watch(
    site: Site, entry: Entry, workers: list[Worker], threads: int, effort: Effort, sheet: Sheet
) -> None:
    holder, *waiters = workers
    holder.begin(hold, entry, 600.0)
    holder.hear()
    alone = read(site, entry.url)
    for waiter in waiters:
        waiter.begin(wait, entry, threads)
    for waiter in waiters:
        waiter.hear()
    sleep(effort.report)
    before = read(site, entry.url)
    sleep(effort.watch)
    after = read(site, entry.url)
    for waiter in waiters:
        waiter.kill()
    sleep(effort.notice)
    left = read(site, entry.url)
    holder.answer()
    holder.hear()
    requests = after.requests - before.requests - before.itself
    for what, unit, value in (
        ("connections", "", after.connections - alone.connections),
        ("statements", "/s", requests / effort.watch),
        ("sessions with a snapshot", "", after.snapshots),
        ("left after kill -9", "", max(0, left.connections - alone.connections)),
    ):
        sheet.add(entry.name, what, unit, float(value))


def wait(channel: Channel, entry: Entry, threads: int) -> None:
    """Let so many threads wait for the lock, by one client where that is how it is used."""
    shared = entry.connect(600.0) if entry.contender.shared else None

    def blocked() -> None:
        with suppress(Exception):  # some give up, say for want of a connection
            client = shared or entry.connect(600.0)
            lock = client.lock("awaited")
            peers.take(lock)
            lock.release()

    waiting = [threading.Thread(target=blocked) for _ in range(threads)]
    for thread in waiting:
        thread.start()
    channel.tell(None)
    for thread in waiting:
        thread.join()
