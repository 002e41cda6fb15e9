"""Event loops: uvloop's, several in one process, one that is gone; and what is left in them."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop
from sqlalchemy.ext.asyncio import create_async_engine

from dblock import Locks
from dblock.aio import AsyncLocks
from tests.aio.support import async_url, renewed
from tests.conftest import NewDatabase
from tests.support import EAGER, LONG, SECONDS

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
loops = pytest.mark.parametrize("loop", LOOPS)


async def used(url: str, keeper: Any = "task") -> None:
    """A bit of everything."""
    async with AsyncLocks(url, keeper=keeper, retry=EAGER) as locks:
        async with locks.lease("report", ttl=3.0) as lease:
            await renewed(lease)
            waiter = asyncio.create_task(locks.row("report").acquire())
            await asyncio.sleep(0.05)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
        async with locks.row("report"):
            pass


@loops
@pytest.mark.parametrize("keeper", ["task", "thread"])
def test_a_loop_that_watches(
    url: str, loop: str, keeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is left in it, and in debug mode it has nothing to say."""
    with asyncio.Runner(debug=True, loop_factory=LOOPS[loop]) as runner:
        complaints: list[Any] = []
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
        runner.run(used(url, keeper))
        assert asyncio.all_tasks(runner.get_loop()) == set()
        assert complaints == []
    gc.collect()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@loops
def test_one_in_each_of_two_threads(url: str, loop: str, direct: Locks) -> None:
    """Their locks exclude each other."""
    inside: list[str] = []
    ready = threading.Barrier(2)

    async def work(name: str) -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:
            await asyncio.to_thread(ready.wait, SECONDS)
            for _ in range(10):
                async with locks.lease("report", ttl=LONG):
                    inside.append(name)
                    await asyncio.sleep(0.001)
                    assert inside == [name]
                    inside.clear()

    def run(name: str) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(work(name))

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(run, "one"), pool.submit(run, "two")]:
            done.result(SECONDS)
    assert direct.list() == []


def test_a_second_loop_is_told(url: str) -> None:
    async def take(locks: AsyncLocks) -> None:
        async with locks.lease("report", ttl=LONG):
            pass

    async def first(locks: AsyncLocks) -> None:
        await take(locks)
        with pytest.raises(RuntimeError, match="another event loop, in which it was first used: "):
            await asyncio.to_thread(lambda: asyncio.run(take(locks)))
        await take(locks)
        await locks.close()

    locks = AsyncLocks(url)
    asyncio.run(first(locks))
    with pytest.raises(RuntimeError, match="and which is closed"):
        asyncio.run(take(locks))


def test_closed(url: str, run: Any) -> None:
    async def main() -> None:
        locks = AsyncLocks(url)
        async with locks, locks.lease("report", ttl=LONG):
            pass
        with pytest.raises(ValueError, match="closed"):
            await locks.list()
        await locks.close()
        await AsyncLocks(url).close()

    run(main())


def test_a_lent_engine_is_left_alone(url: str, run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        engine = create_async_engine(url, pool_size=1, max_overflow=0)
        async with engine.connect() as connection:  # its one connection is in use
            async with AsyncLocks(engine) as locks, locks.lease("report", ttl=LONG):
                assert not connection.closed
            async with connection.begin():
                pass
        await engine.dispose()

    run(main())


async def kept(url: str) -> list[AsyncLocks]:
    locks = AsyncLocks(url)
    async with locks.lease("report", ttl=LONG):
        pass
    return [locks]


def test_dropped_without_being_closed(url: str, run: Any) -> None:
    """Its connections are closed all the same, and in another thread if it comes there."""

    async def main() -> None:
        await asyncio.to_thread((await kept(url)).clear)
        gc.collect()
        await asyncio.sleep(0.05)

    run(main())


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])  # asyncmy's need the loop for that
def test_dropped_after_its_loop(new_database: NewDatabase, kind: str) -> None:
    asyncio.run(kept(async_url(new_database(kind, migrated=True).url))).clear()
    gc.collect()


def test_a_loop_that_ends_with_a_lease_in_it(
    url: str, direct: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio.run cancels the body and the keeper; the body's end gives the lease back."""

    async def work(locks: AsyncLocks, inside: asyncio.Event) -> None:
        async with locks.lease("report", ttl=3):
            inside.set()
            await asyncio.sleep(SECONDS)

    async def closing() -> None:
        locks, inside = AsyncLocks(url), asyncio.Event()
        async with locks:
            task = asyncio.create_task(work(locks, inside))
            await inside.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(closing())
    assert direct.list() == []
    assert caplog.records == []


def test_a_process_ends_with_its_keepers(url: str) -> None:
    """In asyncio's debug mode, with every warning: nothing is said, and nothing hangs."""
    script = f"""
        import asyncio
        from dblock.aio import AsyncLocks
        from tests.aio.support import renewed

        async def main():
            asyncio.get_running_loop().slow_callback_duration = 10
            async with AsyncLocks({url!r}) as one, AsyncLocks({url!r}, keeper="thread") as two:
                async with one.lease("a"), two.lease("b", ttl=3) as lease:
                    await renewed(lease)

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_outside_of_a_task(url: str) -> None:
    locks = AsyncLocks(url)
    lease = locks.lease("report")
    assert not lease.held
    assert lease.remaining == 0.0
    assert not lease.lost.is_set()
    coroutine = lease.acquire()
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


def test_in_a_callback_of_the_loop(url: str, run: Any) -> None:
    """No task calls there, so nobody could hold or give back anything."""

    async def main() -> None:
        told: list[str] = []

        def call() -> None:
            coroutine = lease.release()
            try:
                coroutine.send(None)
            except RuntimeError as error:
                told.append(str(error))
            coroutine.close()

        async with AsyncLocks(url) as locks, locks.lease("report") as lease:
            asyncio.get_running_loop().call_soon(call)
            await asyncio.sleep(0.1)
            assert lease.held
        assert told == ["use dblock.aio in a task: this is a callback of the event loop"]

    run(main())
