"""Many leases held by one process: ``python -m benchmarks.keeper``."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from unittest.mock import patch

import click
from rich.console import Console
from rich.table import Table

from dblock import Locks
from dblock.io.connections import Connections

from .pairs import KINDS
from .site import Site


class Counted:
    """Counts the statements that renew, on whichever thread."""

    def __init__(self) -> None:
        self._run: Callable[..., object] = Connections.execute
        self.statements = 0
        self.connections: set[int] = set()

    def __call__(self, of: object, connection: object, *rest: object, **how: object) -> object:
        if threading.current_thread().name == "dblock renewer":
            self.statements += 1
            self.connections.add(id(connection))
        return self._run(of, connection, *rest, **how)


def hold(url: str, number: int, ttl: float, seconds: float) -> list[str]:
    """Hold so many leases for so long; return the figures, as text."""
    with Locks(url) as locks:
        locks.list()
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        leases = [locks.lease(f"lease {index}", ttl=ttl) for index in range(number)]
        for lease in leases:
            assert lease.acquire()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        counted = Counted()
        with patch.object(Connections, "execute", lambda *of, **how: counted(*of, **how)):
            began, used = time.monotonic(), time.process_time()
            time.sleep(seconds)
            took, cpu = time.monotonic() - began, time.process_time() - used
            lost = sum(not lease.held for lease in leases)
        return [
            str(lost),
            f"{counted.statements / took:.1f}",
            str(len(counted.connections)),
            f"{100 * cpu / took:.1f} %",
            f"{(after - before) / number:.0f}",
        ]


@click.command()
@click.option("--number", default=10_000, show_default=True, help="How many leases.")
@click.option("--ttl", default=30.0, show_default=True, help="Their TTL, in seconds.")
@click.option("--seconds", default=45.0, show_default=True, help="How long to hold them.")
@click.option("--databases", default=",".join(KINDS), show_default=True)
def main(number: int, ttl: float, seconds: float, databases: str) -> None:
    """Hold leases for some time, and say what their renewal costs."""
    table = Table(title=f"{number:,} leases with a TTL of {ttl:g} s, for {seconds:g} s")
    for column in ("database", "lost", "statements/s", "connections", "CPU", "bytes a lease"):
        table.add_column(column, justify="left" if column == "database" else "right")
    for kind in databases.split(","):
        with Site() as site:
            table.add_row(kind, *hold(site.url(kind), number, ttl, seconds))
    Console().print(table)


if __name__ == "__main__":
    main()
