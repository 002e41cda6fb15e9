"""What a lease pair costs under ``await``.

In turns of ten, as in :mod:`.measure`: dblock in asyncio, dblock in threads, and the same two
statements through the bare driver of an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from statistics import median
from time import perf_counter_ns
from typing import Any

from sqlalchemy import URL, make_url

from dblock import Locks
from dblock.aio import AsyncLocks
from dblock.dialects.query import Query
from dblock.protocol import commands

from .figures import Effort, Figure, Sheet, Target
from .measure import TURN
from .pairs import KINDS
from .raw import OWNER, TOKEN
from .site import Site

DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+asyncmy", "mysql": "mysql+asyncmy"}
DRIVERS["sqlite"] = "sqlite+aiosqlite"
AWAIT, THREAD, RAW = "dblock, await", "dblock, a thread", "raw, dblock's statements, await"

Pair = Callable[[], Awaitable[None]]
Send = Callable[[Query[Any]], Awaitable[None]]


GROUP = "asyncio"

TARGETS = (Target(GROUP, "lease, postgresql", "pair", AWAIT, 1.3, THREAD),)


def run(site: Site, effort: Effort) -> Iterator[Figure]:
    """Measure a lease pair in asyncio against threads and against the bare driver."""
    for kind, url in site.urls(KINDS):
        yield from asyncio.run(measure(kind, url, effort))


async def measure(kind: str, url: str, effort: Effort) -> Iterator[Figure]:
    async with AsyncExitStack() as stack:
        by_await = await stack.enter_async_context(
            AsyncLocks(make_url(url).set(drivername=DRIVERS[kind]))
        )
        by_thread = stack.enter_context(Locks(url))
        send = await SENDERS[kind](make_url(url), stack)
        grant = by_thread._database.dialect.query(commands.Grant("same", TOKEN, OWNER, 30.0))
        release = by_thread._database.dialect.query(commands.Release("same", TOKEN))

        async def ours() -> None:
            async with by_await.lease("await"):
                pass

        async def threads() -> None:
            with by_thread.lease("thread"):
                pass

        async def raw() -> None:
            await send(grant)
            await send(release)

        pairs = {AWAIT: ours, THREAD: threads, RAW: raw}
        sheet = Sheet(GROUP, f"lease, {kind}")
        for found in await interleave(list(pairs.values()), effort):
            for who, taken in zip(pairs, found, strict=True):
                sheet.add(who, "pair", "us", taken)
        return sheet.figures()


async def interleave(pairs: Sequence[Pair], effort: Effort) -> list[list[float]]:
    """Time the pairs in turn, all in one loop; return each round's median of each, in us."""
    for pair in pairs:
        await timed(pair)
    slowest = max([median(await timed(pair)) for pair in pairs])
    turns = max(2, round(effort.turn * 1e9 / slowest / TURN))
    rounds = []
    for _ in range(effort.rounds):
        times: list[list[int]] = [[] for _ in pairs]
        for _ in range(turns):
            for pair, taken in zip(pairs, times, strict=True):
                taken += await timed(pair)
        rounds.append([median(taken) / 1000 for taken in times])
    return rounds


async def timed(pair: Pair) -> list[int]:
    durations = []
    for _ in range(TURN):
        start = perf_counter_ns()
        await pair()
        durations.append(perf_counter_ns() - start)
    return durations


# --- the bare drivers ------------------------------------------------------------------------


async def psycopg(url: URL, stack: AsyncExitStack) -> Send:
    import psycopg

    connection = await psycopg.AsyncConnection.connect(
        host=url.host,
        port=url.port or 5432,
        user=url.username,
        password=url.password,
        dbname=url.database,
        autocommit=True,
    )
    stack.push_async_callback(connection.close)
    return sender(connection.cursor())


async def asyncmy(url: URL, stack: AsyncExitStack) -> Send:
    import asyncmy

    connection = await asyncmy.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        db=url.database,
        autocommit=True,
    )
    stack.push_async_callback(connection.ensure_closed)
    return sender(connection.cursor())


async def aiosqlite(url: URL, stack: AsyncExitStack) -> Send:
    import aiosqlite

    assert url.database is not None
    connection = await aiosqlite.connect(url.database, isolation_level=None)
    stack.push_async_callback(connection.close)
    await connection.execute("PRAGMA synchronous = NORMAL")
    return sender(await connection.cursor())


def sender(cursor: Any) -> Send:
    async def send(query: Query[Any]) -> None:
        await cursor.execute(query.sql, query.params)
        if cursor.description:
            await cursor.fetchall()

    return send


SENDERS = {"postgresql": psycopg, "mariadb": asyncmy, "mysql": asyncmy, "sqlite": aiosqlite}
