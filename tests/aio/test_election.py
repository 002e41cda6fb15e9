"""Elections in asyncio: what is cancelled, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dblock import LockLost, NotAcquired
from dblock.aio import AsyncLeadership, AsyncLocks
from tests.support import LONG, SECONDS


def test_run_cancels_its_work_when_the_term_is_lost(url: str, run: Any) -> None:
    """And campaigns again."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            election = locks.election("leader", ttl=3, cancel_on_loss=True)
            begun: list[int] = []
            cancelled: list[int] = []
            working = asyncio.Event()

            async def work(term: AsyncLeadership) -> str:
                begun.append(term.fence)
                if len(begun) == 1:
                    working.set()
                    try:
                        await asyncio.sleep(SECONDS)
                    except asyncio.CancelledError:
                        cancelled.append(begun[0])
                        raise
                return "done"

            running = asyncio.create_task(election.run(work))
            await working.wait()
            await locks.release("leader", force=True)
            assert await asyncio.wait_for(running, SECONDS) == "done"
            assert cancelled == begun[:1] < begun[1:]
            assert await election.leader() is None

    run(main())


def test_a_cancelled_task_resigns(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            election = locks.election("leader", ttl=LONG)
            leading = asyncio.Event()

            async def lead() -> None:
                async with election.campaign():
                    leading.set()
                    await asyncio.sleep(SECONDS)

            task = asyncio.create_task(lead())
            await leading.wait()
            with pytest.raises(NotAcquired):
                await election.campaign(wait=0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await election.leader() is None

    run(main())


def test_an_observer_can_be_cancelled(url: str, run: Any) -> None:
    """And goes on where it was."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            election = locks.election("leader", ttl=LONG)
            observation = election.observe(0.02)
            assert await anext(observation) is None
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await anext(observation)
            async with election.campaign() as term:
                async with asyncio.timeout(SECONDS):
                    leader = await anext(observation)
                assert leader is not None
                assert leader.fence == term.fence

    run(main())


def test_a_deposed_term_ends_its_block(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            with pytest.raises(TypeError, match="not a coroutine function"):
                await locks.election("leader").run(lambda term: None)  # type: ignore[arg-type, return-value]
            term = await locks.election("leader").campaign()
            await locks.release("leader", force=True)
            with pytest.raises(LockLost):
                await term.proclaim(1)
            with pytest.raises(LockLost):
                await term.resign()

    run(main())
