"""What filelock's suites ask of a reader-writer lock between tasks, case by case.

Each test is named after what its case is about. What they ask of one caller is asked in
tests/contract/test_reader_writer_suites.py, which runs under asyncio too.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, Locks, NotHeld
from dblock.aio import AsyncLocks
from tests.support import EAGER, LONG, SECONDS, SHORT, queues

NAME = "report"
MODES = pytest.mark.parametrize("mode", ["shared", "lease"])


def lock(locks: AsyncLocks, mode: str, *args: Any, **options: Any) -> Any:
    return getattr(locks, mode)(NAME, LONG, *args, **options)


async def tries(locks: AsyncLocks, mode: str) -> bool:
    """Try it without waiting, as a task of its own, and give it back."""

    async def trying() -> bool:
        one = lock(locks, mode)
        had: bool = await one.acquire(blocking=False)
        if had:
            await one.release()
        return had

    return await asyncio.create_task(trying())


async def queue(engine: Engine, direct: Locks) -> None:
    """Wait until somebody stands in the name's queue."""
    async with asyncio.timeout(SECONDS):
        while not await asyncio.to_thread(queues, engine, direct, NAME):
            await asyncio.sleep(0.01)


def test_tasks_that_share_a_lock_write_one_at_a_time(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:
            writer, inside, most = lock(locks, "lease"), 0, 0

            async def write() -> None:
                nonlocal inside, most
                async with writer:
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0.001)
                    inside -= 1

            await asyncio.gather(*(write() for _ in range(20)))
            assert most == 1

    run(main())


def test_tasks_that_share_a_lock_read_together(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            reader, both = lock(locks, "shared"), asyncio.Barrier(2)

            async def read() -> None:
                async with reader:
                    await both.wait()

            await asyncio.gather(read(), read())
            assert not reader.held

    run(main())


@MODES
def test_another_task_waits_for_the_last_release_of_a_nested_hold(
    url: str, run: Any, mode: str
) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            nested = lock(locks, mode, reentrant=True)
            async with nested:
                async with nested:
                    pass
                assert not await tries(locks, "lease")
            assert await tries(locks, "lease")

    run(main())


@MODES
def test_a_release_by_a_task_that_does_not_hold(url: str, run: Any, mode: str) -> None:
    """Where a hold is its task's. Otherwise it is the handle's, and any task may release it."""

    async def main() -> None:
        async with AsyncLocks(url) as locks, lock(locks, mode, reentrant=True) as held:
            with pytest.raises(NotHeld, match="by this task"):
                await asyncio.create_task(held.release())
            assert held.held

    run(main())


@MODES
def test_a_change_of_mode_in_one_task_is_refused(url: str, run: Any, mode: str) -> None:
    other = "lease" if mode == "shared" else "shared"

    async def main() -> None:
        async with AsyncLocks(url) as locks, lock(locks, mode):
            with pytest.raises(DeadlockDetected, match="this task"):
                await lock(locks, other).acquire()
            assert not await lock(locks, other).acquire(blocking=False)

    run(main())


def test_a_waiting_writer_goes_ahead_of_new_readers(
    url: str, run: Any, direct: Locks, engine: Engine
) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:

            async def write() -> None:
                async with lock(locks, "lease", fair=True):
                    pass

            async with lock(locks, "shared"):
                writer = asyncio.create_task(write())
                await queue(engine, direct)
                assert not await tries(locks, "shared")
            await writer

    run(main())


def test_a_cancelled_waiting_writer_lets_readers_in(
    url: str, run: Any, direct: Locks, engine: Engine
) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks, lock(locks, "shared"):
            writer = asyncio.create_task(lock(locks, "lease", fair=True).acquire())
            await queue(engine, direct)
            writer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writer
            assert await tries(locks, "shared")

    run(main())


@MODES
def test_a_cancelled_wait_holds_nothing(
    url: str, run: Any, direct: Locks, engine: Engine, mode: str
) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:
            waiter = lock(locks, mode, fair=True)
            with direct.lease(NAME, LONG):
                waiting = asyncio.create_task(waiter.acquire())
                await queue(engine, direct)
                waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not waiter.held
            with pytest.raises(NotHeld):
                await waiter.release()
            assert await tries(locks, "lease")

    run(main())


@MODES
def test_a_writer_gives_up_waiting_for_another_task(url: str, run: Any, mode: str) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks, lock(locks, mode):
            writing = lock(locks, "lease").acquire(timeout=SHORT)
            assert not await asyncio.create_task(writing)

    run(main())


@MODES
def test_a_cancelled_release_lets_the_next_task_in(url: str, run: Any, mode: str) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:
            held = lock(locks, mode)
            assert await held.acquire()
            releasing = asyncio.create_task(held.release())
            await asyncio.sleep(0)
            releasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await releasing
            async with asyncio.timeout(SECONDS), lock(locks, "lease"):
                pass

    run(main())


def test_tasks_of_different_event_loops_exclude_each_other(url: str, direct: Locks) -> None:
    inside, met, ready = list[str](), list[list[str]](), threading.Barrier(3)

    async def work(mode: str) -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:
            await asyncio.to_thread(ready.wait, SECONDS)
            for _ in range(10):
                async with lock(locks, mode):
                    inside.append(mode)
                    await asyncio.sleep(0.001)
                    if "lease" in inside and len(inside) > 1:
                        met.append(list(inside))
                    inside.remove(mode)

    modes = ("lease", "shared", "shared")
    with ThreadPoolExecutor(len(modes)) as pool:
        for done in [pool.submit(asyncio.run, work(mode)) for mode in modes]:
            done.result(SECONDS)
    assert met == []
    assert direct.list() == []
