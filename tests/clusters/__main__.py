"""The command: ``python -m tests.clusters``."""

from __future__ import annotations

import contextlib
import signal
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from tests.clusters.cluster import Cluster
from tests.clusters.cost import costs
from tests.clusters.galera import Galera, Writers
from tests.clusters.measure import measure
from tests.clusters.patroni import FRONTS, SETTING, Mode, Patroni
from tests.clusters.replicas import Replicas
from tests.servers.base import ServerMissing

MISSING = 69  # EX_UNAVAILABLE
#: What can be measured. Patroni's are told how many nodes there are.
CLUSTERS: dict[str, Callable[..., Cluster[Any]]] = {
    **{mode: partial(Patroni, mode) for mode in SETTING},
    "galera-one": partial(Galera, "one"),
    "galera-all": partial(Galera, "all"),
}


@click.group()
def main() -> None:
    """Start a cluster on this machine, which Ctrl-C ends; print how to reach it.

    Of each node: its URL, its directory, where its log is, and the URL of Patroni's own interface.
    """


@main.command()
@click.option("--mode", type=click.Choice(list(SETTING)), default="sync", show_default=True)
@click.option("--nodes", type=click.IntRange(2, 3), default=2, show_default=True)
def patroni(mode: Mode, nodes: int) -> None:
    """PostgreSQL under Patroni, with HAProxy and PgBouncer in front."""
    with until_interrupted(), Patroni(mode, nodes) as cluster:
        for front in FRONTS:
            click.echo(f"{front:10} {cluster.through(front)}")
        for node in cluster.nodes:
            click.echo(f"{node.member:10} {node.url} {node.directory} http://127.0.0.1:{node.rest}")
        serve()


@main.command("measure")
@click.option("--mode", type=click.Choice(list(CLUSTERS)), default="sync", show_default=True)
@click.option("--nodes", type=click.IntRange(2, 3), help="Of Patroni: 2, where nothing is said.")
@click.option("--times", type=click.IntRange(1), default=3, show_default=True)
def measure_(mode: str, nodes: int | None, times: int) -> None:
    """How long it takes from a fault to the next grant of a name that was held for 5 s."""
    with until_interrupted():
        click.echo("| fault | least | median | most, in seconds |\n|---|---|---|---|")
        cluster = CLUSTERS[mode](*([nodes] if nodes else []))
        for fault, *took in measure(cluster, times):
            click.echo(f"| {fault} | {' | '.join(f'{seconds:.1f}' for seconds in took)} |")


@main.command("cost")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1), default=3.0, show_default=True)
def cost(rounds: int, seconds: float) -> None:
    """What an acquire and a release cost on each cluster, compared with one server."""
    with until_interrupted():
        click.echo("| set-up | one server, us | there, us | times | least | most |")
        click.echo("|---|---|---|---|---|---|")
        for name, alone, there, ratios in costs(rounds, seconds):
            found = (statistics.median(ratios), min(ratios), max(ratios))
            shown = " | ".join(f"{ratio:.2f}" for ratio in found)
            click.echo(f"| {name} | {alone:.0f} | {there:.0f} | {shown} |")


@main.command()
@click.option("--writers", type=click.Choice(["one", "all"]), default="all", show_default=True)
def galera(writers: Writers) -> None:
    """MariaDB with Galera: three nodes, each of which can be written to; or HAProxy to one."""
    with until_interrupted(), Galera(writers) as cluster:
        if writers == "one":
            click.echo(f"{'haproxy':10} {cluster.url}")
        show_nodes(cluster)
        serve()


@main.command()
def replicas() -> None:
    """MariaDB with a semi-synchronous replica, and HAProxy in front."""
    with until_interrupted(), Replicas() as cluster:
        click.echo(f"{'haproxy':10} {cluster.url}")
        show_nodes(cluster)
        serve()


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    try:
        yield
    except ServerMissing as missing:
        click.echo(str(missing).replace("tests skipped", "not started"), err=True)
        sys.exit(MISSING)
    except KeyboardInterrupt:
        click.echo("ended")


def show_nodes(cluster: Galera | Replicas) -> None:
    for number, node in enumerate(cluster.nodes, 1):
        click.echo(f"{f'n{number}':10} {node.url} {node.directory}")


def serve() -> None:
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
