"""In the user's own transaction: AsyncConnection, AsyncSession and async_scoped_session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, text
from sqlalchemy.engine import Engine, create_engine
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

from dblock import Conflict, DeadlockDetected, LockLost, Locks, NotEnough
from dblock.aio import AsyncLocks
from tests.conftest import BORROWED, SERVERS
from tests.support import EAGER, LONG, MOMENT, Facts, expire

HOW = ("connection", "session", "scoped_session")
how = pytest.mark.parametrize("how", HOW)

product = Table("product", MetaData(), Column("id", Integer, primary_key=True))
product.append_column(Column("stock", Integer))


@contextlib.asynccontextmanager
async def used(url: str) -> AsyncIterator[tuple[AsyncLocks, AsyncEngine]]:
    engine = create_async_engine(url)
    async with AsyncLocks(url) as locks:
        try:
            yield locks, engine
        finally:
            await engine.dispose()


@contextlib.asynccontextmanager
async def borrowed(engine: AsyncEngine, how: str) -> AsyncIterator[Any]:
    if how == "connection":
        async with engine.connect() as connection:
            yield connection
    elif how == "session":
        async with AsyncSession(engine) as session:
            yield session
    else:
        maker = async_sessionmaker(engine)
        scoped = async_scoped_session(maker, scopefunc=asyncio.current_task)
        try:
            yield scoped
        finally:
            await scoped.remove()


@how
def test_a_row_lock_ends_with_the_transaction(
    url: str, run: Any, direct: Locks, facts: Facts, how: str
) -> None:
    async def main() -> None:
        async with used(url) as (locks, engine), borrowed(engine, how) as on:
            async with locks.row("order", on=on, wait=5) as row:
                await on.execute(text("INSERT INTO facts VALUES (1, 0)"))
            assert row.held
            assert not await asyncio.to_thread(direct.lease("order").acquire, blocking=False)
            await on.commit()
            assert not row.held
            assert await asyncio.to_thread(direct.lease("order").acquire, blocking=False)
            assert facts.ids() == {0, 1}

    run(main())


@how
def test_a_guard(url: str, run: Any, direct: Locks, facts: Facts, how: str) -> None:
    async def main() -> None:
        async with used(url) as (locks, engine):
            lease = locks.lease("report", ttl=LONG)
            async with lease, borrowed(engine, how) as on:
                async with lease.guard(on) as fence:
                    assert fence == lease.fence
                    await on.execute(text("UPDATE facts SET n = 7 WHERE id = 0"))
                await on.commit()
            assert facts.n == 7

    run(main())


def test_a_stale_holder_cannot_commit(
    url: str, run: Any, direct: Locks, engine: Engine, facts: Facts
) -> None:
    async def main() -> None:
        async with used(url) as (locks, asynchronous):
            lease = locks.lease("report", ttl=LONG)
            assert await lease.acquire()
            expire(engine, direct, "report")
            assert await asyncio.to_thread(direct.lease("report").acquire, blocking=False)
            with pytest.raises(LockLost) as caught:
                async with borrowed(asynchronous, "session") as on, lease.guard(on):
                    raise AssertionError("not reached")
            assert caught.value.reason == "forced"  # by its own clock it was early
            assert lease.lost.is_set()

    run(main())


@how
def test_counters(url: str, run: Any, db: Any, how: str) -> None:
    engine = create_engine(db.url)
    product.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(product.insert().values(id=7, stock=10))

    async def main() -> None:
        async with used(url) as (locks, asynchronous):
            stock = locks.counter(product.c.stock, key=product.c.id)
            async with borrowed(asynchronous, how) as on:
                assert await stock.take(on, 7, 3, idempotency_key="one")
                assert not await stock.take(on, 7, 3, idempotency_key="one")
                assert await stock.value(on, 7) == 7
                with pytest.raises(NotEnough):
                    await stock.take(on, 7, 8)
                assert await stock.add(on, 7, 1)
                assert not await stock.compare_and_update(on, 7, seen=7, new=0)
                assert await stock.update(on, 7, lambda value: value * 2) == 16
                await on.commit()

    run(main())
    with Session(engine) as session:
        assert session.execute(product.select()).one().stock == 16
    engine.dispose()


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_counter_with_two_drivers(url: str, run: Any, db: Any) -> None:
    """Whose statements are written differently."""
    engine = create_engine(db.url)
    product.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(product.insert().values(id=7, stock=10))
    engine.dispose()
    other = replace(db, driver="asyncpg").users_url

    async def main() -> None:
        async with used(url) as (locks, ours), used(other) as (_, theirs):
            stock = locks.counter(product.c.stock, key=product.c.id)
            for number, engine in enumerate((theirs, ours, theirs)):
                async with borrowed(engine, "session") as on:
                    assert await stock.take(on, 7, 1)
                    assert await stock.value(on, 7) == 9 - number
                    await on.commit()

    run(main())


def test_the_same_task_would_wait_for_itself(url: str, run: Any) -> None:
    async def main() -> None:
        async with used(url) as (locks, engine), borrowed(engine, "session") as on:
            assert await locks.row("order", on=on).acquire()
            with pytest.raises(DeadlockDetected, match="this task"):
                await locks.row("order").acquire()

    run(main())


def test_what_cannot_be_borrowed(url: str, run: Any, engine: Engine) -> None:
    async def main() -> None:
        async with used(url) as (locks, asynchronous):
            with pytest.raises(TypeError, match="AsyncConnection, AsyncSession"):
                locks.row("order", on=Session(engine))  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="not open yet"):
                locks.row("order", on=asynchronous.connect())
            async with borrowed(asynchronous, "connection") as on:
                await on.execution_options(isolation_level="AUTOCOMMIT")
                with pytest.raises(ValueError, match="autocommit"):
                    await locks.row("order", on=on).acquire()

    run(main())


def test_a_row_lock_waits_in_the_users_transaction(url: str, run: Any) -> None:
    async def main() -> None:
        async with used(url) as (locks, engine), AsyncLocks(url, retry=EAGER) as others:
            async with others.row("order"):
                started = asyncio.Event()

                async def second() -> None:
                    async with borrowed(engine, "session") as on:
                        started.set()
                        while True:
                            try:
                                async with locks.row("order", on=on, wait=20):
                                    await on.commit()
                                    return
                            except Conflict:
                                await on.rollback()

                waiter = asyncio.create_task(second())
                await started.wait()
                await asyncio.sleep(0.2)
                assert not waiter.done()
            await waiter

    run(main())


@pytest.mark.parametrize("db", [*SERVERS, *BORROWED["asyncio"]], indirect=True)
def test_a_cancelled_wait_leaves_nothing_locked(url: str, run: Any) -> None:
    """Its transaction is gone with its connection, and the engine has others."""

    async def main() -> None:
        async with used(url) as (locks, engine), AsyncLocks(url, retry=EAGER) as others:

            async def wait(name: str) -> None:
                async with borrowed(engine, "connection") as on:
                    assert await locks.row("before", on=on).acquire()
                    begun.set()
                    await locks.row(name, on=on, wait=LONG).acquire()

            async with others.row("order"):
                begun = asyncio.Event()
                task = asyncio.create_task(wait("order"))
                await begun.wait()
                await asyncio.sleep(MOMENT)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            for name in ("before", "order"):
                async with borrowed(engine, "session") as on, locks.row(name, on=on, wait=LONG):
                    await on.commit()

    run(main())
