"""Processes that take and give back without a pause: each its own name, or all of them one."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from time import monotonic_ns

from . import peers
from .figures import Effort, Figure, Sheet, Target
from .handoffs import Turn, summary
from .peers import Entry
from .site import Site
from .workers import Channel, Worker, crew, race, sleep_until

DISTINCT, ONE, SLOTS = "distinct names", "one name", "semaphore"
RATE = "pairs"
MANY = {"few": "8 processes", "many": "32 processes"}

WAITED_FOR = {
    "postgresql": (*peers.LIBRARIES, peers.BARE_QUEUE, peers.ROW, peers.FOR_UPDATE),
    "mariadb": (peers.LEASE, peers.USER_LOCK, peers.ROW, peers.FOR_UPDATE),
    "mysql": (peers.LEASE, peers.USER_LOCK, peers.ROW, peers.FOR_UPDATE),
    "sqlite": (peers.LEASE, peers.ROW, peers.FOR_UPDATE),
}
OTHERS = tuple(WAITED_FOR)[1:]

TARGETS = (
    Target(DISTINCT, MANY["few"], RATE, peers.LEASE, 1.2, peers.INSERT_DELETE, at_least=True),
    Target(ONE, MANY["few"], "hand-off p50", peers.LEASE, 3.3, peers.ADVISORY),
    Target(ONE, MANY["many"], "hand-off p50", peers.LEASE, 3.3, peers.ADVISORY),
    Target(ONE, MANY["few"], "hand-off p50", peers.LEASE, 1.5, peers.BARE_QUEUE),
    Target(ONE, MANY["many"], "hand-off p50", peers.LEASE, 2.0, peers.BARE_QUEUE),
    Target(ONE, MANY["many"], "hand-off p50", peers.ROW, 1.2, peers.FOR_UPDATE),
    *(
        target
        for many in MANY.values()
        for target in (
            Target(ONE, many, "max/min", peers.LEASE, 1.1),
            Target(ONE, many, "longest wait", peers.LEASE, 150.0),
        )
    ),
    *(
        Target(SLOTS, f"enough, {kind}", RATE, peers.SEMAPHORE, 0.8, peers.LEASE, at_least=True)
        for kind in WAITED_FOR
    ),
)


def run_distinct(site: Site, effort: Effort) -> Iterator[Figure]:
    """Nobody waits for anybody: what the server and the clients can do side by side."""
    names = (peers.LEASE, peers.VOLATILE_LEASE, peers.STATEMENTS, peers.INSERT_DELETE)
    contenders = peers.entries(site, [*names, *peers.LIBRARIES[1:]])
    with crew(effort.few) as workers:
        yield from _rates(Sheet(DISTINCT, MANY["few"]), workers, contenders, effort)


def run_one(site: Site, effort: Effort) -> Iterator[Figure]:
    """All wait for the same lock."""
    with crew(effort.many) as workers:
        for number, many, database in (
            (effort.few, MANY["few"], "postgresql"),
            (effort.many, MANY["many"], "postgresql"),
            *((effort.few, f"{MANY['few']}, {other}", other) for other in OTHERS),
        ):
            contenders = peers.entries(site, WAITED_FOR[database], database)
            yield from _handoffs(Sheet(ONE, many), workers[:number], contenders, effort)


def run_slots(site: Site, effort: Effort) -> Iterator[Figure]:
    """A semaphore with a slot for each process beside leases on names of their own, as one name
    that all share; and one with one slot, for which all wait, beside a lease."""
    with crew(effort.few) as workers:
        for kind in WAITED_FOR:
            enough = peers.entries(site, (peers.LEASE, peers.SEMAPHORE, peers.SHARED), kind)
            yield from _rates(Sheet(SLOTS, f"enough, {kind}"), workers, enough, effort)
            one = peers.entries(site, (peers.LEASE, peers.ONE_SLOT), kind)
            yield from _handoffs(Sheet(SLOTS, f"one slot, {kind}"), workers, one, effort)


def _rates(
    sheet: Sheet, workers: Sequence[Worker], contenders: Sequence[Entry], effort: Effort
) -> Iterator[Figure]:
    for entry, turns in _rounds(workers, contenders, effort, shared=False):
        sheet.add(entry.name, RATE, "/s", sum(map(len, turns)) / effort.loop)
    yield from sheet.figures()


def _handoffs(
    sheet: Sheet, workers: Sequence[Worker], contenders: Sequence[Entry], effort: Effort
) -> Iterator[Figure]:
    for entry, turns in _rounds(workers, contenders, effort, shared=True):
        found = summary(turns, effort.loop)
        sheet.add(entry.name, "hand-off p50", "us", found.p50)
        sheet.add(entry.name, "hand-off p99", "us", found.p99)
        sheet.add(entry.name, "to another", "/s", found.to_another)
        sheet.add(entry.name, "in all", "/s", found.in_all)
        sheet.add(entry.name, "longest wait", "ms", found.longest_wait)
        sheet.add(entry.name, "max/min", "", found.unfairness)
    yield from sheet.figures()


def _rounds(
    workers: Sequence[Worker], contenders: Sequence[Entry], effort: Effort, *, shared: bool
) -> Iterator[tuple[Entry, list[list[Turn]]]]:
    for number in range(effort.loops):
        for entry in contenders if number % 2 else reversed(contenders):
            stride = effort.stride if shared else 0.0
            seconds = stride + effort.loop
            yield entry, _turns(race(workers, seconds, loop, entry, shared, stride))


def _turns(records: list[bytes]) -> list[list[Turn]]:
    """Return each worker's turns from what it wrote down."""
    found = []
    for record in records:
        times = array("q", record)
        found.append([Turn(*times[at : at + 3]) for at in range(0, len(times), 3)])
    return found


def loop(channel: Channel, number: int, entry: Entry, shared: bool, stride: float) -> bytes:
    """Take and give back; return when each was asked for, had, and given back, in ns.

    What is asked for in the first ``stride`` seconds, while others still connect, is left out.
    """
    client = entry.connect()
    name = "shared" if shared else f"name {number}"
    warm = client.lock(f"warm {number}")
    peers.take(warm)
    warm.release()
    start, stop = channel.meet()
    sleep_until(start)
    turns, counted = array("q"), int((start + stride) * 1e9)
    while (asked := monotonic_ns()) < stop * 1e9:
        lock = client.lock(name)
        peers.take(lock)
        had = monotonic_ns()
        lock.release()
        if asked >= counted:
            turns.extend((asked, had, monotonic_ns()))
    client.close()
    return turns.tobytes()
