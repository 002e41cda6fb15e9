"""The quorum in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dblock import LockLost, NotAcquired, Unsupported
from dblock.aio import AsyncQuorum
from tests.patience import SECONDS
from tests.quorum.conftest import PATIENT

LONG = 60.0


def run(three: list[str], body: Callable[[AsyncQuorum], Awaitable[Any]]) -> None:
    async def main() -> None:
        async with AsyncQuorum(three, timeouts=PATIENT) as quorum, asyncio.timeout(10 * SECONDS):
            await body(quorum)

    asyncio.run(main())


def test_a_lease_in_tasks(three: list[str]) -> None:
    async def body(quorum: AsyncQuorum) -> None:
        fences: list[int] = []

        async def work() -> None:
            async with quorum.lease("report", ttl=LONG, wait=SECONDS) as lease:
                fences.append(lease.fence)
                await asyncio.sleep(0.01)
                lease.check()

        await asyncio.gather(*(work() for _ in range(5)))
        assert fences == sorted(set(fences))
        assert [status.state for status in await quorum.check()] == ["votes"] * 3
        with pytest.raises(Unsupported):
            quorum.row("report")

    run(three, body)


def test_several_leases_are_taken_as_one(files: list[str]) -> None:
    async def body(quorum: AsyncQuorum) -> None:
        both = quorum.all(quorum.lease("b", ttl=LONG), quorum.lease("a", ttl=LONG), wait=SECONDS)
        async with both:
            assert both.held
            assert await quorum.lease("a").locked()
            assert await quorum.lease("b").locked()
        assert not await quorum.lease("b").locked()
        with pytest.raises(TypeError, match="takes the leases of an AsyncQuorum"):
            quorum.all("a")  # type: ignore[arg-type]

    run(files, body)


def test_it_is_renewed_and_refused_and_lost(files: list[str]) -> None:
    async def body(quorum: AsyncQuorum) -> None:
        lost: list[LockLost] = []
        lease = quorum.lease("report", ttl=1.5, wait=0, on_lost=lost.append)
        async with AsyncQuorum(files, timeouts=PATIENT) as other:
            assert await lease.acquire()
            start = lease.sync._holds.get().lease.term.start
            while lease.sync._holds.get().lease.term.start == start:
                await asyncio.sleep(0.01)
            with pytest.raises(NotAcquired):
                async with other.lease("report", wait=0):
                    pass
            assert (await other.show("report")).held
            assert len(await other.list()) == 1
            assert await other.release("report", force=True)
        await lease.lost.wait(SECONDS)
        with pytest.raises(LockLost):
            await lease.release()
        assert len(lost) == 1

    run(files, body)


def test_a_cancelled_caller_leaves_nothing_behind(three: list[str]) -> None:
    async def body(quorum: AsyncQuorum) -> None:
        async with AsyncQuorum(three, timeouts=PATIENT) as other:
            async with quorum.lease("report", ttl=LONG, wait=0):
                waiting = asyncio.create_task(other.lease("report", ttl=LONG).acquire())
                while not any(state.waiters for state in await quorum.list()):
                    await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            async with quorum.lease("report", ttl=LONG, wait=SECONDS):
                pass
            begun = asyncio.create_task(other.lease("report", ttl=LONG).acquire())
            await asyncio.sleep(0)
            begun.cancel()
            with pytest.raises(asyncio.CancelledError):
                await begun
            async with quorum.lease("report", ttl=LONG, wait=SECONDS):
                pass

    run(three, body)
