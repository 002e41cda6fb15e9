"""One hot counter: how many changes a second, by how many processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from time import monotonic

from sqlalchemy import Column, Integer, MetaData, Table, create_engine

from dblock import Locks

from . import raw
from .figures import Effort, Figure, Sheet, Target
from .site import Site
from .transactions import TICKET
from .workers import Channel, crew, race, sleep_until

GROUP = "hot counter"
RATE = "changes"
TAKE, TAKE_ALONE, UPDATE = "dblock take + COMMIT", "dblock take, autocommit", "dblock update"
RAW_UPDATE, RAW_ALONE = "raw UPDATE + COMMIT", "raw UPDATE, autocommit"
RAW_COMPARE, RAW_FOR_UPDATE = "raw compare and update", "raw SELECT FOR UPDATE, UPDATE"
SIZES = ("1 process", "8 processes", "32 processes")

#: Where a commit takes two milliseconds, with its locks; at most so many at once share one sync.
SLOW, STRIPES = "32 processes, syncs of 2 ms", 16
STRIPED = f"dblock take + COMMIT, {STRIPES} stripes"
SLOW_SYNCS = {"commit_delay": 2000, "commit_siblings": 0}

TARGETS = (
    *(Target(GROUP, size, RATE, TAKE, 0.9, RAW_UPDATE, at_least=True) for size in SIZES),
    Target(GROUP, SIZES[0], RATE, UPDATE, 0.85, RAW_COMPARE, at_least=True),
    *(Target(GROUP, size, RATE, UPDATE, 0.8, RAW_FOR_UPDATE, at_least=True) for size in SIZES[1:]),
    Target(GROUP, SLOW, RATE, STRIPED, 3.0, TAKE, at_least=True),
)

PLACE = Table(
    "place",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("stripe", Integer, primary_key=True),
    Column("stock", Integer, nullable=False),
)
_STOCK = "SELECT stock + (SELECT coalesce(sum(stock), 0) FROM place) FROM ticket"

#: Changes the counter by -1 for good, however many tries that needs.
Change = Callable[[], object]


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """Let processes change one row; whatever was told as done must be there in the end."""
    url, slow = site.url("postgresql"), site.database("postgresql")
    for database in (url, slow):
        _prepare(database, slow=database is slow)
    sizes = zip((1, effort.few, effort.many), SIZES, strict=True)
    runs = [(url, number, size, CHANGES) for number, size in sizes]
    with crew(effort.many) as workers:
        for url, number, size, changes in [*runs, (slow, effort.many, SLOW, SLOWLY)]:
            sheet = Sheet(GROUP, size)
            for _ in range(effort.loops):
                for who in changes:
                    before = stock(url)
                    done = sum(race(workers[:number], effort.loop, change, url, who))
                    if before - stock(url) != done + number:  # each made one to warm up
                        raise AssertionError(f"{who}: updates were lost")
                    sheet.add(who, RATE, "/s", done / effort.loop)
            yield from sheet.figures()


def stock(url: str) -> int:
    with closing(raw.connect(url, autocommit=True)) as connection:
        found: int = connection.execute(_STOCK).fetchone()[0]
        return found


def _prepare(url: str, slow: bool) -> None:
    """Let tickets be in stripes too; and a database's commits be slow."""
    with closing(raw.connect(url, autocommit=True)) as connection:
        (name,) = connection.execute("SELECT current_database()").fetchone()
        for setting, value in SLOW_SYNCS.items() if slow else ():
            connection.execute(f'ALTER DATABASE "{name}" SET {setting} = {value}')
    engine = create_engine(url)
    with engine.begin() as connection, Locks(engine) as locks:
        PLACE.create(connection)
        connection.execute(PLACE.insert().values(id=1, stripe=0, stock=2_000_000_000))
        locks.counter(PLACE.c.stock, key=PLACE.c.id, stripes=STRIPES).spread(connection, 1)
    engine.dispose()


def change(channel: Channel, number: int, url: str, who: str) -> int:
    with ExitStack() as stack:
        step = (CHANGES | SLOWLY)[who](url, stack)
        step()
        start, stop = channel.meet()
        sleep_until(start)
        count = 0
        while monotonic() < stop:
            step()
            count += 1
        return count


def _take(
    url: str,
    stack: ExitStack,
    isolation: str = "READ COMMITTED",
    table: Table = TICKET,
    stripes: int | None = None,
) -> Change:
    engine = create_engine(url, isolation_level=isolation)
    stack.callback(engine.dispose)
    locks = stack.enter_context(Locks(engine))
    connection = stack.enter_context(engine.connect())
    counter = locks.counter(table.c.stock, key=table.c.id, stripes=stripes)

    def step() -> None:
        counter.take(connection, 1)
        connection.commit()

    return step


def _update(url: str, stack: ExitStack) -> Change:
    engine = create_engine(url)
    stack.callback(engine.dispose)
    locks = stack.enter_context(Locks(engine))
    connection = stack.enter_context(engine.connect())
    counter = locks.counter(TICKET.c.stock, key=TICKET.c.id)

    def step() -> None:
        counter.update(connection, 1, lambda value: value - 1)
        connection.commit()

    return step


def _raw_update(url: str, stack: ExitStack, autocommit: bool = False) -> Change:
    connection = stack.enter_context(closing(raw.connect(url, autocommit=autocommit)))
    take, commit = raw.single_update(connection).values()
    return take if autocommit else lambda: (take(), commit())


def _raw_compare(url: str, stack: ExitStack) -> Change:
    connection = stack.enter_context(closing(raw.connect(url, autocommit=False)))
    cursor = connection.cursor()

    def step() -> None:
        done = 0
        while not done:
            cursor.execute("SELECT stock FROM ticket WHERE id = %s", (1,))
            (seen,) = cursor.fetchone()
            cursor.execute(
                "UPDATE ticket SET stock = %s WHERE id = %s AND stock = %s", (seen - 1, 1, seen)
            )
            done = cursor.rowcount
            connection.commit()

    return step


def _raw_for_update(url: str, stack: ExitStack) -> Change:
    connection = stack.enter_context(closing(raw.connect(url, autocommit=False)))
    cursor = connection.cursor()

    def step() -> None:
        cursor.execute("SELECT stock FROM ticket WHERE id = %s FOR UPDATE", (1,))
        (seen,) = cursor.fetchone()
        cursor.execute("UPDATE ticket SET stock = %s WHERE id = %s", (seen - 1, 1))
        connection.commit()

    return step


CHANGES: dict[str, Callable[[str, ExitStack], Change]] = {
    TAKE: _take,
    RAW_UPDATE: _raw_update,
    TAKE_ALONE: lambda url, stack: _take(url, stack, "AUTOCOMMIT"),
    RAW_ALONE: lambda url, stack: _raw_update(url, stack, autocommit=True),
    UPDATE: _update,
    RAW_COMPARE: _raw_compare,
    RAW_FOR_UPDATE: _raw_for_update,
}
SLOWLY: dict[str, Callable[[str, ExitStack], Change]] = {
    TAKE: _take,
    STRIPED: lambda url, stack: _take(url, stack, table=PLACE, stripes=STRIPES),
    RAW_UPDATE: _raw_update,
}
