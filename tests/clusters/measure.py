"""How long it takes from a fault of a cluster to the next grant of a name that was held."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dblock import DBLockError, Locks
from dblock.schema import upgrade
from tests.clusters.cluster import Cluster
from tests.clusters.galera import Galera
from tests.clusters.patroni import Patroni
from tests.support import eventually

TTL = 5.0
DATABASE, NAME = "measured", "report"

Faults = Mapping[str, Callable[[Any], None]]

#: What happens to the node that grants.
OF_PATRONI: Faults = {
    "PostgreSQL killed": Patroni.kill_database,
    "switchover": Patroni.switch_over,
    "machine killed": Patroni.kill,
    "machine frozen": Patroni.pause,
}
OF_GALERA: Faults = {"node killed": Galera.kill, "node frozen": Galera.pause}


def measure(cluster: Cluster[Any], times: int) -> Iterator[tuple[str, float, float, float]]:
    """Of each fault: the shortest, the median and the longest time."""
    with cluster:
        cluster.create_database(DATABASE)
        upgrade(cluster.url_for(DATABASE))
        for name, fault in (OF_PATRONI if isinstance(cluster, Patroni) else OF_GALERA).items():
            took = sorted(_next_grant(cluster, fault) for _ in range(times))
            yield name, took[0], statistics.median(took), took[-1]


def _next_grant(cluster: Cluster[Any], fault: Callable[[Any], None]) -> float:
    """The holder has just renewed its lease when the fault comes, and does not do so again."""
    here, there = cluster.url_for(DATABASE), _elsewhere(cluster)
    with Locks(here) as locks, Locks(there) as others, ThreadPoolExecutor() as pool:
        lease = locks.lease(NAME, ttl=TTL, renew=False)
        assert lease.acquire()
        granted = pool.submit(_wait, others)
        eventually(lambda: bool((state := locks.show(NAME)) and state.waiters))
        lease.renew()
        start = time.monotonic()
        fault(cluster)
        end = granted.result()
    for node in cluster.nodes:
        node.start()
    cluster.resume()
    cluster.settle()
    return end - start


def _elsewhere(cluster: Cluster[Any]) -> str:
    """Where the waiter is: at the holder's node, or the one that follows it; but if all nodes are
    written to, at one that nothing happens to."""
    if isinstance(cluster, Galera) and cluster.writers == "all":
        return cluster.nodes[-1].url_for(DATABASE)
    return cluster.url_for(DATABASE)


def _wait(locks: Locks) -> float:
    """Wait for the name, as a program does that goes on whatever happens to the database."""
    while True:
        with contextlib.suppress(DBLockError), locks.lease(NAME, ttl=TTL):
            return time.monotonic()
