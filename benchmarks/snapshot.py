"""One name in a loop while another session keeps an old snapshot, so that vacuum cannot tidy up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from time import monotonic

from . import peers, raw
from .figures import Effort, Figure, Sheet, Target
from .peers import Client
from .site import Site

GROUP, SCENARIO = "old snapshot", "11 seconds"
SLOWED = "last second / clean"

TARGETS = (Target(GROUP, SCENARIO, SLOWED, peers.LEASE, 0.45, at_least=True),)


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """The rate in the last second with the snapshot, over that without."""
    url = site.url("postgresql")
    names = (peers.LEASE, peers.INSERT_DELETE, peers.ADVISORY)
    sheet = Sheet(GROUP, SCENARIO)
    for entry in peers.entries(site, names):
        with closing(entry.connect()) as client:
            clean = rate(client, effort.snapshot)
            with old_snapshot(url):
                slowed = rate(client, effort.snapshot)
        sheet.add(entry.name, "clean", "/s", clean)
        sheet.add(entry.name, "last second", "/s", slowed)
        sheet.add(entry.name, SLOWED, "", slowed / clean)
    yield from sheet.figures()


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    with closing(raw.connect(url, autocommit=False)) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT FROM ticket")
        yield


def rate(client: Client, seconds: float) -> float:
    """Take and give back for so long; return how often it was done in the last second."""
    stop = monotonic() + seconds
    count = 0
    while (now := monotonic()) < stop:
        lock = client.lock("looped")
        peers.take(lock)
        lock.release()
        count += now > stop - 1
    return float(count)
