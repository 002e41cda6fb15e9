"""Jobs that are coroutine functions: what a cancellation and a loss make of a run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dblock import LockLost, Locks
from dblock.aio import AsyncLocks
from tests.support import LONG


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_a_cancelled_run_leaves_its_slot_open(url: str, run: Any, direct: Locks) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            begun = asyncio.Event()

            @locks.cron("a", ttl=LONG, once_for="slot")
            async def job(last: bool = False) -> str:
                begun.set()
                if not last:
                    await asyncio.Event().wait()
                return "done"

            task = asyncio.create_task(job())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not (await locks.show("a")).held
            failed = await job.last_run()
            assert failed is not None
            assert failed.exit_status == 1
            assert await job(last=True) == "done"
            assert await job(last=True) is None

    run(main())
    last = direct.last_run("a")
    assert last is not None
    assert last.exit_status == 0


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_a_run_is_ended_by_its_loss(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:

            @locks.cron("a", at_most=0.4, cancel_on_loss=True)
            async def job() -> None:
                await job.lease.lost.wait()
                await asyncio.sleep(5)
                raise AssertionError("it went on")

            with pytest.raises(LockLost, match="max_hold") as caught:
                await job()
            assert not hasattr(caught.value, "__notes__")
            last = await job.last_run()
            assert last is not None
            assert last.exit_status == 1

    run(main())
