"""A try for a name that another has: what it makes the server write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

from dblock import Locks

from . import peers, raw
from .figures import Effort, Figure, Sheet, Target
from .gauges import Wal, wal_of
from .pairs import TRY_ADVISORY
from .site import Site

GROUP, SCENARIO = "failed try", "a held name"
TRIES = 100
UPSERT = "raw INSERT ON CONFLICT DO UPDATE"
HELD = "held"

TARGETS = (
    Target(GROUP, SCENARIO, "WAL", peers.LEASE, 0.0),
    Target(GROUP, SCENARIO, "syncs", peers.LEASE, 0.0),
)


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """By the server's own count, in a quiet server: the least of the rounds is the try's own."""
    url = site.url("postgresql")
    found: dict[str, list[Wal]] = {who: [] for who in TRYING}
    # It writes the witness. The next caller is not refused, and so does not begin to listen.
    with Locks(url) as first, first.lease(HELD, ttl=3600):
        pass
    with Locks(url) as locks:
        lease = locks.lease(HELD, ttl=3600, renew=False)
        lease.acquire()
        locks._database.connections.clear()  # the counts need silence
        with closing(raw.InsertDelete(url)) as other:
            other.lock(HELD).acquire()
        for _ in range(effort.rounds):
            for who, make in TRYING.items():
                with wal_of(url, found[who]), ExitStack() as stack:
                    attempt = make(url, stack)
                    for _ in range(TRIES):
                        attempt()
        lease.release()
    sheet = Sheet(GROUP, SCENARIO)
    for who, rounds in found.items():
        least = min(rounds)
        sheet.add(who, "WAL", "bytes", least.size / TRIES)
        sheet.add(who, "syncs", "", least.syncs / TRIES)
    yield from sheet.figures()


def _lease(url: str, stack: ExitStack) -> Callable[[], object]:
    lease = stack.enter_context(Locks(url)).lease(HELD)

    def attempt() -> None:
        assert not lease.acquire(blocking=False)

    return attempt


def _upsert(url: str, stack: ExitStack) -> Callable[[], object]:
    connection = stack.enter_context(closing(raw.connect(url, autocommit=True)))
    sql = """INSERT INTO raw_lock (name, token) VALUES (%s, %s) ON CONFLICT (name)
        DO UPDATE SET token = excluded.token WHERE raw_lock.token IS NULL"""
    return lambda: connection.execute(sql, (HELD, raw.TOKEN))


def _advisory(url: str, stack: ExitStack) -> Callable[[], object]:
    stack.enter_context(closing(raw.Advisory(url))).lock(HELD).acquire()
    other = stack.enter_context(closing(raw.Advisory(url)))
    return other.refused(HELD)["try"]


TRYING = {peers.LEASE: _lease, UPSERT: _upsert, TRY_ADVISORY: _advisory}
