"""Waiters that are blocked: how soon all of them are served, and what a dead holder costs them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from time import monotonic, sleep

from . import peers
from .figures import Effort, Figure, Sheet, Target
from .peers import Entry
from .site import Site
from .workers import Channel, Worker, crew

DRAIN, DEAD = "drain", "dead holder"
BLOCKED, CROWD = "32 blocked waiters", "125 blocked waiters"
KILLED, BOTH = "the holder is killed", "so is the first waiter"
#: The part of the TTL in which a waiter comes to wait: all is over before the first renewal.
BEFORE = 0.1

TARGETS = (
    Target(DRAIN, BLOCKED, "until all are served", peers.LEASE, 1.6, peers.ADVISORY),
    Target(DRAIN, CROWD, "until all are served", peers.LEASE, 2.5, peers.ADVISORY),
    Target(DRAIN, BLOCKED, "until all are served", peers.LEASE, 1.5, peers.BARE_QUEUE),
    Target(DRAIN, CROWD, "until all are served", peers.LEASE, 1.5, peers.BARE_QUEUE),
    Target(DEAD, KILLED, "late", peers.LEASE, 50.0),
    Target(DEAD, BOTH, "late", peers.LEASE, 500.0),
)


def run_drain(site: Site, effort: Effort) -> Iterator[Figure]:
    """From the release until the last of them has had the lock and given it back."""
    innodb = [peers.LEASE, peers.USER_LOCK, peers.FOR_UPDATE]
    postgresql = [*peers.LIBRARIES, peers.BARE_QUEUE, peers.FOR_UPDATE]
    for scenario, waiters, names, kind in (
        (BLOCKED, effort.many, postgresql, "postgresql"),
        (CROWD, effort.crowd, [peers.LEASE, peers.ADVISORY, peers.BARE_QUEUE], "postgresql"),
        (f"{BLOCKED}, mariadb", effort.many, innodb, "mariadb"),
        (f"{BLOCKED}, mysql", effort.many, innodb, "mysql"),
    ):
        contenders = peers.entries(site, names, kind)
        sheet = Sheet(DRAIN, scenario)
        with crew(waiters + 1) as workers:
            for _ in range(effort.loops):
                for entry in contenders:
                    took = drain(workers, entry, effort.settle)
                    sheet.add(entry.name, "until all are served", "ms", took * 1e3)
        yield from sheet.figures()


def drain(workers: Sequence[Worker], entry: Entry, settle: float) -> float:
    holder, *waiters = workers
    for waiter in waiters:
        waiter.begin(wait, entry, 30.0)
    for waiter in waiters:
        waiter.hear()
    holder.begin(hold, entry, 30.0)
    holder.hear()
    for waiter in waiters:
        waiter.answer()
    sleep(settle)
    holder.answer()
    released = holder.hear()
    return float(max(waiter.hear()[1] for waiter in waiters) - released)


def run_dead(site: Site, effort: Effort) -> Iterator[Figure]:
    """How long after the TTL the next waiter has it; after the kill where nothing runs out."""
    for scenario, ahead in ((KILLED, 0), (BOTH, 1)):
        sheet = Sheet(DEAD, scenario)
        for entry in peers.entries(site, peers.LIBRARIES):
            for _ in range(effort.loops):
                with crew(2 + ahead) as workers:
                    sheet.add(entry.name, "late", "ms", orphan(workers, entry, effort.ttl) * 1e3)
        yield from sheet.figures()


def orphan(workers: Sequence[Worker], entry: Entry, ttl: float) -> float:
    """Kill the holder and all waiters but the last; return how late that one has the lock."""
    holder, *waiters = workers
    for waiter in waiters:
        waiter.begin(wait, entry, ttl)
    for waiter in waiters:
        waiter.hear()
    holder.begin(hold, entry, ttl)
    due: float = holder.hear() + ttl
    for waiter in waiters:
        waiter.answer()
        sleep(BEFORE * ttl)
    if not entry.contender.expires:
        due = monotonic()
    for dead in (*waiters[:-1], holder):
        dead.kill()
    return float(waiters[-1].hear()[0] - due)


def hold(channel: Channel, entry: Entry, ttl: float) -> float:
    """Hold the lock until told; return when it was given back. Says when it was asked for."""
    client = entry.connect(ttl)
    lock = client.lock("awaited")
    asked = monotonic()  # its TTL begins after this, and not much
    peers.take(lock)
    channel.meet(asked)
    start = monotonic()
    lock.release()
    client.close()
    return start


def wait(channel: Channel, entry: Entry, ttl: float) -> tuple[float, float]:
    """Wait for the lock when told; return when it was had, and when it was given back."""
    client = entry.connect(ttl)
    warm = client.lock(f"warm {os.getpid()}")
    peers.take(warm)
    warm.release()
    lock = client.lock("awaited")
    channel.meet()
    peers.take(lock)
    had = monotonic()
    lock.release()
    done = monotonic()
    client.close()
    return had, done
