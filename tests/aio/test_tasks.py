"""A task is who holds: reentrancy, self-wait, sharing; and what is expected of asyncio.Lock."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from typing import Any

import pytest

from dblock import DeadlockDetected, NotAcquired, NotHeld
from dblock.aio import AsyncLocks
from tests.aio.support import eventually
from tests.support import EAGER, LONG

kinds = pytest.mark.parametrize("kind", ["lease", "row"])


def lock_of(locks: AsyncLocks, kind: str, **options: Any) -> Any:
    return locks.lease("report", ttl=LONG, **options) if kind == "lease" else locks.row("report")


def test_reentrant_is_by_task(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lease = locks.lease("report", ttl=LONG, reentrant=True)

            async def other() -> bool:
                return await lease.acquire(blocking=False)

            async with lease:
                fence = lease.fence
                async with lease:
                    assert lease.fence == fence
                    # Not even a task that it began itself, with its context.
                    assert not await asyncio.create_task(other())
                    assert not await asyncio.create_task(
                        other(), context=contextvars.copy_context()
                    )
                assert lease.held
            assert not lease.held

    run(main())


@kinds
def test_a_task_that_would_wait_for_itself_is_told(url: str, run: Any, kind: str) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks, lock_of(locks, kind):
            with pytest.raises(DeadlockDetected, match="this task"):
                await lock_of(locks, kind).acquire()
            assert not await lock_of(locks, kind).acquire(blocking=False)

    run(main())


def test_another_task_waits_and_is_not_taken_for_the_holder(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:
            order: list[str] = []

            async def wait() -> None:
                async with locks.lease("report", ttl=LONG):
                    order.append("second")

            async with locks.lease("report", ttl=LONG):
                waiter = asyncio.create_task(wait())
                await asyncio.sleep(0.1)
                assert not waiter.done()
                order.append("first")
            await waiter
            assert order == ["first", "second"]

    run(main())


@kinds
def test_one_handle_excludes_the_tasks_that_share_it(url: str, run: Any, kind: str) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:
            lock, inside, most = lock_of(locks, kind), 0, 0

            async def work() -> None:
                nonlocal inside, most
                async with lock:
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0)
                    inside -= 1

            async with asyncio.TaskGroup() as group:
                for _ in range(12):
                    group.create_task(work())
            assert most == 1
            assert not lock.held

    run(main())


@kinds
def test_what_one_task_took_another_may_release(url: str, run: Any, kind: str) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lock = lock_of(locks, kind)
            assert await lock.acquire()
            await asyncio.create_task(lock.release())
            with pytest.raises(NotHeld):
                await lock.release()
            assert await asyncio.create_task(lock.acquire())
            await lock.release()  # though this task has had one of its own
            assert not lock.held

    run(main())


def test_tasks_leave_nothing_behind_in_a_handle(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lease = locks.lease("report", ttl=LONG)

            async def once() -> None:
                async with lease:
                    pass

            for _ in range(5):
                await asyncio.create_task(once())
            holds: Any = locks._database.callers

            def known() -> set[asyncio.Task[Any]]:
                gc.collect()
                return {key for key in holds._all if isinstance(key, asyncio.Task)}

            # The loop itself knows the last one for a moment.
            await eventually(lambda: known() <= asyncio.all_tasks())

    run(main())


# --- the list of the standard library's tests of asyncio.Lock --------------------------------


@kinds
def test_as_a_context_manager_and_by_hand(url: str, run: Any, kind: str) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lock = lock_of(locks, kind)
            assert "not held" in repr(lock)
            async with lock as entered:
                assert entered is lock
                assert "not held" not in repr(lock)
            assert not lock.held
            with pytest.raises(TypeError), lock:
                pass
            with pytest.raises(NotHeld):
                await lock.release()

    run(main())


def test_a_cancelled_waiter_does_not_break_the_others(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:
            got: list[int] = []

            async def wait(number: int) -> None:
                async with locks.lease("report", ttl=LONG):
                    got.append(number)

            async with locks.lease("report", ttl=LONG):
                waiters = [asyncio.create_task(wait(number)) for number in range(6)]
                await asyncio.sleep(0.05)
                for waiter in waiters[::2]:
                    waiter.cancel()
                outcomes = await asyncio.gather(*waiters[::2], return_exceptions=True)
                assert all(isinstance(one, asyncio.CancelledError) for one in outcomes)
            await asyncio.gather(*waiters[1::2])
            assert sorted(got) == [1, 3, 5]

    run(main())


def test_a_waiter_that_is_cancelled_as_it_is_its_turn_passes_it_on(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:
            for _ in range(10):
                lease = locks.lease("report", ttl=LONG)
                await lease.acquire()
                first = asyncio.create_task(once(locks))
                second = asyncio.create_task(once(locks))
                await asyncio.sleep(0.02)
                await lease.release()
                first.cancel()
                await asyncio.wait((first,))
                await second

    run(main())


async def once(locks: AsyncLocks) -> None:
    async with locks.lease("report", ttl=LONG):
        pass


def test_more_tasks_than_connections(url: str, run: Any) -> None:
    """They take turns, in the order in which they came; a cancelled one gives its turn up."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:

            async def work(number: int) -> None:
                async with locks.lease(f"report {number}", ttl=LONG):
                    await asyncio.sleep(0)

            tasks = [asyncio.create_task(work(number)) for number in range(60)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            for number, outcome in enumerate(outcomes):
                assert outcome is None or number % 3 == 0, outcome
            assert await locks.list() == []

    run(main())


# --- decorators ------------------------------------------------------------------------------


def test_a_coroutine_function_is_decorated(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url, retry=EAGER) as locks:

            @locks.lease("report", ttl=LONG)
            async def report(number: int, *, twice: bool = False) -> int:
                """Make it."""
                assert [state.name for state in await locks.list()] == ["report"]
                return number * 2 if twice else number

            assert report.__name__ == "report"
            assert report.__doc__ == "Make it."
            assert await report(3, twice=True) == 6
            assert await asyncio.gather(*(report(number) for number in range(4))) == [0, 1, 2, 3]
            assert await asyncio.create_task(report(5)) == 5  # a type checker wants a coroutine

            @locks.lease("report", wait=0)
            async def refused() -> None:
                raise AssertionError("not reached")

            async with AsyncLocks(url) as others, others.lease("report", ttl=LONG):
                with pytest.raises(NotAcquired):
                    await refused()

    run(main())


def test_what_is_no_coroutine_function_is_not_decorated(url: str) -> None:
    lease = AsyncLocks(url).lease("report")
    with pytest.raises(TypeError, match="is not a coroutine function"):
        lease(print)  # type: ignore[arg-type]

    async def generator() -> Any:
        yield 1

    with pytest.raises(TypeError, match="is not a coroutine function"):
        lease(generator)
