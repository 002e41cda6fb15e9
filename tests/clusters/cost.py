"""What a grant costs on a cluster, compared with one server of the same machine."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from typing import Any

from benchmarks.measure import TOTAL, Cycle, interleave
from dblock import Locks
from dblock.schema import upgrade
from tests.clusters.cluster import Cluster
from tests.clusters.galera import Galera
from tests.clusters.group import Group
from tests.clusters.patroni import Patroni
from tests.clusters.replicas import Replicas
from tests.servers import MariaDB, MySQL, OwnServer, PostgreSQL

DATABASE, NAME = "measured", "report"

#: The URLs of a set-up, each of which a client uses in its turn. All servers wait for the disk.
SetUp = Callable[[ExitStack], Sequence[str]]


def one_server(kind: type[PostgreSQL | MariaDB | MySQL]) -> SetUp:
    def start(stack: ExitStack) -> Sequence[str]:
        server: OwnServer = stack.enter_context(kind(durable=True))
        server.create_database(DATABASE)
        return [server.url_for(DATABASE)]

    return start


def primary_of(make: Callable[..., Cluster[Any]], *how: Any) -> SetUp:
    def start(stack: ExitStack) -> Sequence[str]:
        cluster = stack.enter_context(make(*how, durable=True))
        cluster.create_database(DATABASE)
        return [cluster.primary.url_for(DATABASE)]

    return start


def galera(writers: int) -> SetUp:
    def start(stack: ExitStack) -> Sequence[str]:
        cluster = stack.enter_context(Galera(durable=True))
        cluster.nodes[0].create_database(DATABASE)
        return [node.url_for(DATABASE) for node in cluster.nodes[:writers]]

    return start


#: Of each set-up: the one server that it is compared with, and how it is started.
SET_UPS: dict[str, tuple[SetUp, SetUp]] = {
    "Patroni, asynchronous, 2 nodes": (one_server(PostgreSQL), primary_of(Patroni, "async", 2)),
    "Patroni, synchronous, 2 nodes": (one_server(PostgreSQL), primary_of(Patroni, "sync", 2)),
    "Patroni, quorum, 3 nodes": (one_server(PostgreSQL), primary_of(Patroni, "quorum", 3)),
    "MariaDB, semi-synchronous replica": (one_server(MariaDB), primary_of(Replicas, "mariadb")),
    "MySQL, semi-synchronous replica": (one_server(MySQL), primary_of(Replicas, "mysql")),
    "MySQL, group of 3, one primary": (one_server(MySQL), primary_of(Group)),
    "Galera, one of 3 nodes written to": (one_server(MariaDB), galera(1)),
    "Galera, 3 nodes written to": (one_server(MariaDB), galera(3)),
}


def costs(rounds: int, seconds: float) -> Iterator[tuple[str, float, float, list[float]]]:
    """Of each set-up: how long a pair takes on one server and there, in us; the rounds' ratios.

    A pair is an acquire and a release by one client, without contention. The two take turns, so
    what else the machine does slows both.
    """
    for name, pair in SET_UPS.items():
        with ExitStack() as stack:
            cycles = [stack.enter_context(client(start(stack))) for start in pair]
            alone, there = (
                [medians[TOTAL] for medians in found]
                for found in interleave(cycles, rounds, seconds)
            )
            ratios = [b / a for a, b in zip(alone, there, strict=True)]
            yield name, statistics.median(alone), statistics.median(there), ratios


@contextmanager
def client(urls: Sequence[str]) -> Iterator[Cycle]:
    """One client. Where it has several URLs, each pair is on the next one."""
    upgrade(urls[0])
    with ExitStack() as stack:
        turns = cycle([stack.enter_context(Locks(url)) for url in urls])
        lease = next(turns).lease(NAME)

        def acquire() -> None:
            nonlocal lease
            lease = next(turns).lease(NAME)
            lease.acquire()

        yield {"acquire": acquire, "release": lambda: lease.release()}
