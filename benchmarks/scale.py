"""Many names: a table in which many are held, and more once were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from random import Random
from typing import Any

from dblock import Locks
from dblock.dialects.query import Query
from dblock.protocol import commands

from . import raw
from .figures import Effort, Figure, Sheet, Target
from .measure import Cycle, interleave
from .site import Site

GROUP = "many names"
NEW, KNOWN, SIZE = "a new name", "a known name", "the table"
EMPTY, FULL = "empty table", "full table"
#: The names that the loop over known ones uses.
KNOWN_NAMES = 50
#: Of those that are held for good, in seconds.
TTL = 3600.0

TARGETS = (
    Target(GROUP, NEW, "acquire", FULL, 1.2, EMPTY),
    Target(GROUP, KNOWN, "acquire", FULL, 1.2, EMPTY),
)


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """Side by side in two databases of one server, by dblock's leases."""
    empty, full = site.url("postgresql"), site.database("postgresql")
    fill(full, "released", effort.released, release=True)
    fill(full, "held", effort.held, release=False)
    with closing(raw.connect(full, autocommit=True)) as connection:
        connection.execute("VACUUM ANALYZE")  # as autovacuum does within a minute
    sheet = Sheet(GROUP, SIZE)
    sheet.add(FULL, "held", "", float(effort.held))
    sheet.add(FULL, "released", "", float(effort.released))
    sheet.add(FULL, "table", "MB", size(full, "pg_table_size") / 1e6)
    sheet.add(FULL, "indexes", "MB", size(full, "pg_indexes_size") / 1e6)
    yield from sheet.figures()
    with ExitStack() as stack:
        locks = {
            EMPTY: stack.enter_context(Locks(empty)),
            FULL: stack.enter_context(Locks(full)),
        }
        for scenario, names in ((NEW, new_names), (KNOWN, known_names)):
            cycles = {who: pair(its, names(effort.released)) for who, its in locks.items()}
            found = interleave(list(cycles.values()), effort.rounds, effort.turn)
            sheet = Sheet(GROUP, scenario)
            for who, rounds in zip(cycles, found, strict=True):
                for medians in rounds:
                    sheet.add(who, "acquire", "us", medians["acquire"])
                    sheet.add(who, "release", "us", medians["release"])
            yield from sheet.figures()


def new_names(released: int) -> Iterator[str]:
    return (f"new {number}" for number in count())


def known_names(released: int) -> Iterator[str]:
    choose = Random(7)
    known = [f"released {choose.randrange(released)}" for _ in range(KNOWN_NAMES)]
    return (known[number % KNOWN_NAMES] for number in count())


def pair(locks: Locks, names: Iterator[str]) -> Cycle:
    held = locks.lease("pair")

    def acquire() -> None:
        nonlocal held
        held = locks.lease(next(names))
        held.acquire()

    return {"acquire": acquire, "release": lambda: held.release()}


def fill(url: str, what: str, number: int, *, release: bool) -> None:
    """Grant, and release, that many names by dblock's own statements, many to a transaction."""
    with Locks(url) as locks, locks.lease("first", ttl=TTL):
        pass  # from now on such a TTL is known: nothing is granted for longer than that
    dialect = raw.dialect_of(url)
    names = [f"{what} {n}" for n in range(number)]
    with closing(raw.connect(url, autocommit=False)) as connection:
        cursor = connection.cursor()
        for some in range(0, number, 10_000):
            batch = names[some : some + 10_000]
            steps: list[list[Query[Any]]] = [
                [dialect.query(commands.Grant(name, raw.TOKEN, raw.OWNER, TTL)) for name in batch]
            ]
            if release:
                steps.append([dialect.query(commands.Release(name, raw.TOKEN)) for name in batch])
            for queries in steps:
                cursor.executemany(queries[0].sql, [query.params for query in queries])
                if cursor.rowcount != len(batch):
                    raise AssertionError(f"{cursor.rowcount} of {len(batch)} names were {what}")
                connection.commit()


def size(url: str, function: str) -> float:
    table = raw.dialect_of(url).table("lock")
    with closing(raw.connect(url, autocommit=True)) as connection:
        row = connection.execute(f"SELECT {function}('{table}')").fetchone()
        return float(row[0])
