"""The command ``python -m benchmarks.aio``: what a lease pair costs under ``await``.

In turns of ten, as in :mod:`.measure`: dblock in asyncio, dblock in threads, and the same two
statements through the bare driver of an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from statistics import median
from time import perf_counter_ns
from typing import Any

import click
from rich.console import Console
from sqlalchemy import URL, make_url

from dblock import Locks
from dblock.aio import AsyncLocks
from dblock.protocol.steps import Query
from tests.servers import ServerMissing

from . import report, scenarios
from .measure import TOTAL, TURN, Effort, ratio
from .raw import OWNER, TOKEN

DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+asyncmy"}
DRIVERS["sqlite"] = "sqlite+aiosqlite"

Pair = Callable[[], Awaitable[None]]
Send = Callable[[Query], Awaitable[None]]


@click.command()
@click.option("--quick", is_flag=True, help="A look, in some seconds.")
@click.option("--databases", default=",".join(scenarios.KINDS), show_default=True)
def main(quick: bool, databases: str) -> None:
    """Measure a lease pair in asyncio against threads and against the bare driver."""
    effort = Effort(5, 0.05) if quick else Effort(15, 0.2)
    console, err = Console(), Console(stderr=True)
    if not console.is_terminal:
        console.width = 120
    results: list[scenarios.Result] = []
    for kind in databases.split(","):
        err.print(f"measuring {kind}")
        try:
            with scenarios.database(kind) as url:
                results += asyncio.run(measure(kind, url, effort))
        except ServerMissing as error:
            err.print(str(error).replace("tests skipped", "not measured"))
    report.show(results, console)


async def measure(kind: str, url: str, effort: Effort) -> list[scenarios.Result]:
    async with AsyncExitStack() as stack:
        by_await = await stack.enter_async_context(
            AsyncLocks(make_url(url).set(drivername=DRIVERS[kind]))
        )
        by_thread = stack.enter_context(Locks(url))
        send = await SENDERS[kind](make_url(url), stack)
        grant = by_thread.dialect.grant("same", TOKEN, OWNER, 30.0)
        release = by_thread.dialect.release("same", TOKEN)

        async def ours() -> None:
            async with by_await.lease("await"):
                pass

        async def threads() -> None:
            with by_thread.lease("thread"):
                pass

        async def raw() -> None:
            await send(grant)
            await send(release)

        mine, *others = await interleave((ours, threads, raw), effort)
        return [
            scenarios.Result(
                database=kind,
                scenario="lease under await",
                step=TOTAL,
                yardstick=name,
                raw=median(times[TOTAL] for times in theirs),
                ours=median(times[TOTAL] for times in mine),
                ratio=ratio(mine, theirs, TOTAL),
                target=None,
            )
            for name, theirs in zip(("in a thread", "same statements"), others, strict=True)
        ]


async def interleave(pairs: Sequence[Pair], effort: Effort) -> list[list[dict[str, float]]]:
    """Time the pairs in turn, all in one loop; return, for each, its rounds' medians in us."""
    for pair in pairs:
        await timed(pair)
    slowest = max([median(await timed(pair)) for pair in pairs])
    turns = max(2, round(effort.seconds * 1e9 / slowest / TURN))
    rounds: list[list[dict[str, float]]] = [[] for _ in pairs]
    for _ in range(effort.rounds):
        times: list[list[int]] = [[] for _ in pairs]
        for _ in range(turns):
            for pair, taken in zip(pairs, times, strict=True):
                taken += await timed(pair)
        for medians, taken in zip(rounds, times, strict=True):
            medians.append({TOTAL: median(taken) / 1000})
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
    async def send(query: Query) -> None:
        await cursor.execute(query.sql, query.params)
        if cursor.description:
            await cursor.fetchall()

    return send


SENDERS = {"postgresql": psycopg, "mariadb": asyncmy, "sqlite": aiosqlite}


if __name__ == "__main__":
    main()
