"""How long it takes from a fault of a Patroni cluster to the next grant of a name that was held."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from dblock import DBLockError, Locks
from dblock.schema import upgrade
from tests.clusters.patroni import Mode, Node, Patroni
from tests.support import eventually

TTL = 5.0
DATABASE, NAME = "measured", "report"


def kill_database(cluster: Patroni, old: Node) -> None:
    old.kill_database()


def switch_over(cluster: Patroni, old: Node) -> None:
    cluster.switch_over()


def kill(cluster: Patroni, old: Node) -> None:
    old.kill()


def freeze(cluster: Patroni, old: Node) -> None:
    old.pause()


FAULTS: dict[str, Callable[[Patroni, Node], None]] = {
    "PostgreSQL killed": kill_database,
    "switchover": switch_over,
    "machine killed": kill,
    "machine frozen": freeze,
}


def measure(mode: Mode, nodes: int, times: int) -> Iterator[tuple[str, float, float, float]]:
    """Of each fault: the shortest, the median and the longest time."""
    with Patroni(mode, nodes) as cluster:
        cluster.create_database(DATABASE)
        upgrade(cluster.url_for(DATABASE))
        for name, fault in FAULTS.items():
            took = sorted(_next_grant(cluster, fault) for _ in range(times))
            yield name, took[0], statistics.median(took), took[-1]


def _next_grant(cluster: Patroni, fault: Callable[[Patroni, Node], None]) -> float:
    """The holder has just renewed its lease when the fault comes, and does not do so again."""
    url, old = cluster.url_for(DATABASE), cluster.primary
    with Locks(url) as locks, Locks(url) as others, ThreadPoolExecutor() as pool:
        lease = locks.lease(NAME, ttl=TTL, renew=False)
        assert lease.acquire()
        granted = pool.submit(_wait, others)
        eventually(lambda: bool((state := locks.show(NAME)) and state.waiters))
        lease.renew()
        start = time.monotonic()
        fault(cluster, old)
        end = granted.result()
    if not old.running:
        old.start()
    cluster.resume()
    cluster.settle()
    return end - start


def _wait(locks: Locks) -> float:
    """Wait for the name, as a program does that goes on whatever happens to the database."""
    while True:
        with contextlib.suppress(DBLockError), locks.lease(NAME, ttl=TTL):
            return time.monotonic()
