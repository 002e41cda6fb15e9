"""Units of work under await, run again on real conflicts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from tenacity import stop_after_attempt, wait_none

from dblock import Conflict, RetryPolicy
from dblock.aio import retry_on_conflict
from tests.conftest import BORROWED, SERVERS
from tests.support import LONG


@pytest.mark.parametrize("db", [*SERVERS, *BORROWED["asyncio"]], indirect=True)
def test_a_deadlock(url: str, run: Any) -> None:
    """Two take two rows in opposite order: one is undone by the database, and comes again."""
    tries: list[int] = []

    async def main() -> None:
        engine = create_async_engine(url)
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE p (id INTEGER PRIMARY KEY, n INTEGER)"))
            await connection.execute(text("INSERT INTO p VALUES (1, 0), (2, 0)"))
        both, through = asyncio.Barrier(2), asyncio.Event()

        async def add(session: AsyncSession, key: int) -> None:
            await session.execute(text("UPDATE p SET n = n + 1 WHERE id = :id"), {"id": key})

        @retry_on_conflict(async_sessionmaker(engine))
        async def work(session: AsyncSession, first: int, second: int) -> int:
            tries.append(first)
            if tries.count(first) > 1:  # not at once, or they could meet like this again
                async with asyncio.timeout(LONG):
                    await through.wait()
            await add(session, first)
            if len(tries) <= 2:
                async with asyncio.timeout(LONG):
                    await both.wait()
            await add(session, second)
            through.set()
            return first

        assert [*await asyncio.gather(work(1, 2), work(2, 1))] == [1, 2]
        async with engine.begin() as connection:
            rows = (await connection.execute(text("SELECT n FROM p"))).all()
            assert rows == [(2,), (2,)]
            await connection.execute(text("DROP TABLE p"))
        await engine.dispose()

    run(main())
    assert len(tries) == 3


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_others_and_the_last_one(url: str, run: Any) -> None:
    tries: list[int] = []

    async def main() -> None:
        engine = create_async_engine(url)
        policy = RetryPolicy(wait=wait_none(), stop=stop_after_attempt(3))
        again = retry_on_conflict(async_sessionmaker(engine), retry=policy)

        @again
        async def never(session: AsyncSession) -> None:
            tries.append(1)
            raise Conflict("of the unit's own")

        @again
        async def wrong(session: AsyncSession) -> None:
            tries.append(2)
            nameless = "INSERT INTO dblock_lock (lock_name, fence) VALUES (NULL, 0)"
            await session.execute(text(nameless))

        with pytest.raises(Conflict, match="in each of 3 tries: of the unit's own"):
            await never()
        with pytest.raises(IntegrityError):
            await wrong()
        with pytest.raises(TypeError, match="is not a coroutine function"):
            again(print)  # type: ignore[arg-type]
        await engine.dispose()

    run(main())
    assert tries == [1, 1, 1, 2]
