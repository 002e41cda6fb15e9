"""Every name of the sync surface, under await, on every database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dblock import Locks, NotAcquired
from dblock.aio import AsyncLocks
from tests.support import LONG


def test_a_lease(url: str, run: Any, direct: Locks) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lease = locks.lease("report", ttl=LONG)
            async with lease:
                assert lease.held
                assert lease.fence == 1
                assert direct.show("report").fence == lease.fence
                await lease.renew()
                lease.check()
                assert await lease.locked()
                assert [state.name for state in await locks.list()] == ["report"]
                with pytest.raises(NotAcquired):
                    async with AsyncLocks(url) as others, others.lease("report", wait=0):
                        raise AssertionError("not reached")
            assert not lease.held
            assert await locks.list() == []
            assert await lease.acquire(blocking=False)
            assert await locks.release("report", force=True)
            assert not (await locks.show("report")).held

    run(main())


def test_a_row(url: str, run: Any, direct: Locks) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            row = locks.row("order:42", wait=5)
            async with row:
                assert row.held
                await row.check()
                assert not await asyncio.to_thread(direct.lease("order:42").acquire, blocking=False)
            assert not row.held
            assert await asyncio.to_thread(direct.lease("order:42").acquire, blocking=False)

    run(main())


def test_several(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            both = locks.all(locks.lease("b"), locks.lease("a"), wait=5)
            async with both:
                assert both.held
                assert [state.name for state in await locks.list()] == ["a", "b"]
            assert await locks.list() == []

    run(main())
