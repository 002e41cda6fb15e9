"""Cancelled at each of its points of waiting in turn, an operation leaves no orphan behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from dblock import LockLost, Locks, NotAcquired, Timeouts
from dblock.aio import AsyncDetachedLease, AsyncLease, AsyncLocks
from dblock.dialects.query import Query
from tests.aio.support import Stepped, cancelled_at, settled
from tests.conftest import Database
from tests.servers import mariadb, mysql
from tests.support import EAGER, LONG, SECONDS, Facts, blocked
from tests.waiting.watching import before_each
from tests.worlds.behind import timed

HOW = ("waiting", "answered", "again")
how = pytest.mark.parametrize("how", HOW)
#: A TTL of a lease that is not renewed within a test: a renewal has a connection too, for a moment.
AGES = 20 * LONG


def is_free(direct: Locks, name: str = "report") -> bool:
    """Whether another program gets the lease, and a row lock, long before an orphan runs out.

    Not at once: the server takes a moment to notice that a connection was closed.
    """
    lease = direct.lease(name, ttl=LONG)
    if not lease.acquire(timeout=LONG / 3):
        return False
    lease.release()
    row = direct.row(name, wait=LONG / 3)
    if not row.acquire():
        return False
    row.release()
    return True


async def at_each_point(
    locks: AsyncLocks,
    operation: Callable[[], Awaitable[Any]],
    how: str,
    afterwards: Callable[[bool], Awaitable[None]],
) -> int:
    """Cancel it at the first, the second, ... point, until it comes to its end before."""
    for at in count(1):
        cancelled = await cancelled_at(operation(), at, how)
        await settled(locks)
        await afterwards(cancelled)
        if not cancelled:
            return at
    raise AssertionError("not reached")


async def once(lock: Any) -> None:
    async with lock:
        pass


@how
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "warm"])
@pytest.mark.parametrize("kind", ["lease", "row", "all"])
def test_acquire(url: str, run: Any, direct: Locks, how: str, kind: str, fresh: bool) -> None:
    async def main() -> None:
        for at in count(1):
            async with AsyncLocks(url) as locks:
                lock: Any = locks.lease("report", ttl=AGES)
                if kind == "row":
                    lock = locks.row("report")
                elif kind == "all":
                    lock = locks.all(locks.lease("a", ttl=AGES), locks.lease("report", ttl=AGES))
                if not fresh:  # by another task: who never took it releases what that one took
                    await asyncio.create_task(once(lock))
                cancelled = await cancelled_at(lock.acquire(), at, how)
                await settled(locks)
                assert lock.held is not cancelled
                if not cancelled:
                    await lock.release()
                assert await asyncio.to_thread(is_free, direct)
                if not cancelled:
                    return

    run(main())


@how
@pytest.mark.parametrize("kind", ["lease", "row"])
def test_a_waiting_acquire(url: str, run: Any, direct: Locks, how: str, kind: str) -> None:
    """It looks, sleeps and tries; in the end it gets the lock, which is free then."""

    async def main() -> None:
        # Who waits to be told, or in the server, looks as often as others.
        eager = timed(AsyncLocks(url, retry=EAGER), poll=0.01, server_wait=0.01)
        async with eager as locks, AsyncLocks(url) as others:
            lock: Any = locks.lease("report", ttl=AGES) if kind == "lease" else locks.row("report")
            await asyncio.create_task(once(lock))

            async def release_when(told: asyncio.Event, other: AsyncLease) -> None:
                await told.wait()
                await other.release()

            for at in (*range(1, 16), 10_000):
                other = others.lease("report", ttl=LONG)
                assert await other.acquire()
                told = asyncio.Event()
                releasing = asyncio.create_task(release_when(told, other))
                if at == 10_000:
                    asyncio.get_running_loop().call_later(0.1, told.set)
                cancelled = await cancelled_at(lock.acquire(), at, how)
                assert cancelled is (at != 10_000)
                await settled(locks)
                assert lock.held is not cancelled
                told.set()
                await releasing
                if not cancelled:
                    await lock.release()
                assert await asyncio.to_thread(is_free, direct)

    run(main())


@how
def test_a_waiting_take_by_token(url: str, run: Any, direct: Locks, how: str) -> None:
    """It leaves the queue, and no hold but that of the token."""

    async def main() -> None:
        async def release_when(told: asyncio.Event, other: AsyncDetachedLease) -> None:
            await told.wait()
            await other.release()

        eager = timed(AsyncLocks(url, retry=EAGER), poll=0.01, server_wait=0.01)
        async with eager as locks, AsyncLocks(url) as others:
            for at in (*range(1, 30), 10_000):
                other, detached = others.detached("report"), locks.detached("report")
                await other.take(LONG)
                told = asyncio.Event()
                releasing = asyncio.create_task(release_when(told, other))
                if at > 10:  # it gets the name, and then the token
                    asyncio.get_running_loop().call_later(0.1, told.set)
                await cancelled_at(detached.take(AGES, wait=SECONDS), at, how)
                await settled(locks)
                told.set()
                await releasing
                same = direct.detached("report", detached.token)
                await asyncio.to_thread(same.take, AGES, LONG / 3)
                await asyncio.to_thread(same.release)
                assert await asyncio.to_thread(is_free, direct)

    run(main())


@how
@pytest.mark.parametrize("kind", ["lease", "row", "all"])
def test_release(url: str, run: Any, direct: Locks, how: str, kind: str) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lock: Any = locks.lease("report", ttl=AGES)
            if kind == "row":
                lock = locks.row("report")
            elif kind == "all":
                lock = locks.all(locks.lease("a", ttl=AGES), locks.lease("report", ttl=AGES))

            for at in count(1):
                assert await lock.acquire()
                cancelled = await cancelled_at(lock.release(), at, how)
                await settled(locks)
                assert not lock.held
                assert await asyncio.to_thread(is_free, direct)
                if not cancelled:
                    return

    run(main())


@how
def test_the_body_of_with(url: str, run: Any, direct: Locks, how: str) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lease = locks.lease("report", ttl=AGES)

            async def body() -> None:
                async with lease:
                    await asyncio.sleep(0)
                    await lease.renew()

            async def afterwards(cancelled: bool) -> None:
                assert not lease.held
                assert await asyncio.to_thread(is_free, direct)

            assert await at_each_point(locks, body, how, afterwards) > 4

    run(main())


@how
def test_renew_and_look(url: str, run: Any, direct: Locks, how: str) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lease = locks.lease("report", ttl=AGES)
            assert await lease.acquire()

            async def use() -> None:
                await lease.renew()
                await lease.locked()
                await locks.list()

            async def afterwards(cancelled: bool) -> None:
                assert lease.held
                assert direct.show("report").fence == lease.fence
                # The holder believes in no more than the database knows.
                state = direct.show("report")
                assert state.remaining is not None
                assert lease.remaining <= state.remaining + 0.01

            await at_each_point(locks, use, how, afterwards)
            await lease.release()

    run(main())


@pytest.mark.parametrize("how", ["waiting", "answered"])  # "again" is too much for SQLAlchemy
def test_guard(url: str, run: Any, direct: Locks, facts: Facts, how: str) -> None:
    async def main() -> None:
        engine = create_async_engine(url, pool_size=1, max_overflow=0)
        async with AsyncLocks(url) as locks:
            lease = locks.lease("report", ttl=AGES)
            assert await lease.acquire()

            async def prove(session: AsyncSession) -> None:
                async with lease.guard(session):
                    await asyncio.sleep(0)

            for at in count(1):
                gc.collect()  # SQLAlchemy's traceback of a cancellation keeps SQLite's cursor
                async with AsyncSession(engine) as session:  # on the pool's one connection
                    await session.execute(text("UPDATE facts SET n = n + 1 WHERE id = 0"))
                    cancelled = await cancelled_at(prove(session), at, how)
                    await settled(locks)
                    assert lease.held
                    if not cancelled:
                        await session.commit()
                        break
            assert facts.n == 1
            await lease.release()
            assert await asyncio.to_thread(is_free, direct)
        await engine.dispose()

    run(main())


@pytest.mark.parametrize("kind", ["lease", "row"])
@pytest.mark.parametrize("held_by", ["lease", "row"])
def test_a_timeout_around_acquire(
    url: str, run: Any, direct: Locks, engine: Engine, kind: str, held_by: str
) -> None:
    direct.lease("report").acquire()
    direct.release("report", force=True)
    with contextlib.ExitStack() as stack:
        if held_by == "row":
            stack.enter_context(blocked(engine, direct, "report"))
        else:
            assert direct.lease("report", ttl=LONG, renew=False).acquire()

        async def main() -> None:
            timeouts = Timeouts(query=SECONDS / 2, socket=SECONDS)  # no end of itself
            async with AsyncLocks(url, timeouts=timeouts) as locks:
                lock: Any = locks.lease("report") if kind == "lease" else locks.row("report")
                start = time.monotonic()
                with pytest.raises(TimeoutError) as caught:
                    async with asyncio.timeout(0.3):
                        await lock.acquire()
                assert not isinstance(caught.value, NotAcquired)
                assert time.monotonic() - start < timeouts.query / 2
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0
                await settled(locks)
                assert not lock.held
                assert await lock.acquire(blocking=False) is False

        run(main())
        stack.close()
        direct.release("report", force=True)
        assert is_free(direct)


# How many sessions wait for a row.
WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()",
    "mariadb": "SELECT count(*) FROM information_schema.processlist"
    f" WHERE {mariadb.WAITS_FOR_A_ROW} AND db = database()",
    "mysql": "SELECT count(*) FROM information_schema.processlist"
    f" WHERE {mysql.WAITS_FOR_A_ROW} AND db = database()",
    "sqlite": "SELECT 0",
}


def test_a_cancelled_wait_for_a_row_leaves_no_ghost(
    url: str, run: Any, direct: Locks, engine: Engine, db: Database
) -> None:
    """Its session, which would get the lock one day, is ended on the server."""
    direct.lease("report").acquire()
    direct.release("report", force=True)

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            with blocked(engine, direct, "report"), engine.connect() as watching:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await locks.row("report").acquire()
                await settled(locks)
                assert watching.execute(text(WAITING[db.kind])).scalar_one() == 0
            assert await asyncio.to_thread(is_free, direct)

    run(main())


def test_cancelled_before_it_waits(
    url: str, run: Any, direct: Locks, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes with the answer to BEGIN is told before the row is waited for."""

    async def main() -> None:
        timeouts = Timeouts(query=SECONDS / 2, socket=SECONDS)  # no end of itself
        soon = asyncio.timeout(SECONDS / 4)
        in_one_piece = timed(AsyncLocks(url, timeouts=timeouts), visible_after=SECONDS)
        async with in_one_piece as locks, soon:
            for _ in range(2):
                await asyncio.create_task(once(locks.row("report")))
            begun, stepped = 0, Stepped(once(locks.row("report")), 10_000)

            def note(query: Query[Any]) -> None:
                nonlocal begun
                if query.sql.startswith("BEGIN"):
                    begun = stepped.points + 1

            async def dry_run() -> None:
                await stepped

            with monkeypatch.context() as patch:
                before_each(locks._database, patch, note)
                await asyncio.create_task(dry_run())
            with blocked(engine, direct, "report"):
                assert await cancelled_at(locks.row("report").acquire(), begun, "answered")
                assert not soon.expired()
                await settled(locks)
            assert await asyncio.to_thread(is_free, direct)

    run(main())


def test_a_cancelled_release_goes_on(url: str, run: Any, direct: Locks, engine: Engine) -> None:
    """Its row is in use, so it cannot be done at once."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lease = locks.lease("report", ttl=AGES)
            assert await lease.acquire()
            with blocked(engine, direct, "report"), pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await lease.release()
            await settled(locks)
            assert not lease.held
            assert await asyncio.to_thread(is_free, direct)

    run(main())


@how
def test_attach(url: str, run: Any, direct: Locks, how: str) -> None:
    """It was not attached, and can be yet; or the name is free."""

    def detached() -> str:
        with direct.lease("report", ttl=LONG, wait=LONG / 3) as lease:
            return lease.detach()

    def is_over(text: str) -> bool:
        try:
            with direct.attach(text, ttl=LONG):
                return True
        except LockLost:
            return is_free(direct)

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            for at in count(1):
                text = await asyncio.to_thread(detached)
                lease = locks.attach(text, ttl=AGES)
                cancelled = await cancelled_at(lease.acquire(), at, how)
                await settled(locks)
                assert lease.held is not cancelled
                if not cancelled:
                    await lease.release()
                    return
                assert await asyncio.to_thread(is_over, text)

    run(main())


@how
def test_detach(url: str, run: Any, direct: Locks, how: str) -> None:
    """It is detached all the same, or held yet: nobody else gets it, nor does it stay for ever."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            for at in count(1):
                lease = locks.lease("report", ttl=AGES)
                assert await lease.acquire()
                cancelled = await cancelled_at(lease.detach(), at, how)
                await settled(locks)
                assert not lease.held
                await asyncio.to_thread(direct.release, "report", force=True)
                if not cancelled:
                    return

    run(main())
