"""The same for coroutines."""

from __future__ import annotations

import asyncio
import sys

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from dblock import Conflict, LockLost, Locks, NotAcquired, OutcomeUnknown, Unavailable
from dblock.aio import AsyncLease, AsyncLocks
from dblock.testing import Faults
from tests.support import SECONDS


def test_a_loss_is_told_in_all_ways(dblock_async_locks: AsyncLocks, dblock_faults: Faults) -> None:
    told: list[LockLost] = []
    awaited = asyncio.Event()

    async def on_danger(_: object) -> None:
        awaited.set()

    async def main() -> None:
        lease = dblock_async_locks.lease("report", ttl=30, on_lost=told.append, on_danger=on_danger)
        async with lease:
            dblock_faults.miss_renewals("report")
            dblock_faults.advance(21)
            await asyncio.wait_for(awaited.wait(), SECONDS)
            waiting = asyncio.create_task(lease.lost.wait())
            dblock_faults.expire("report")
            assert not lease.held
            assert lease.lost.is_set()
            assert [loss.reason for loss in told] == ["expired"]
            assert await waiting
            with pytest.raises(LockLost):
                lease.check()

    with pytest.raises(LockLost):
        asyncio.run(main())


def test_a_body_is_cancelled(dblock_async_locks: AsyncLocks, dblock_faults: Faults) -> None:
    async def main() -> None:
        async with dblock_async_locks.lease("report", cancel_on_loss=True):
            asyncio.get_running_loop().call_soon(dblock_faults.expire, "report")
            await asyncio.sleep(SECONDS)

    with pytest.raises(LockLost):
        asyncio.run(main())


def test_a_name_that_another_holds(dblock_async_locks: AsyncLocks, dblock_faults: Faults) -> None:
    async def main() -> None:
        with (
            dblock_faults.held_by_another("report"),
            pytest.raises(NotAcquired, match="another process"),
        ):
            await dblock_async_locks.lease("report", wait=5).__aenter__()
        async with dblock_async_locks.lease("report", wait=0):
            another = dblock_faults.wanted_by_another("report")
            assert (await dblock_async_locks.show("report")).waiters
        dblock_faults.advance(2)
        assert another.held

    asyncio.run(main())


def test_tasks_wait_for_one_another(dblock_async_locks: AsyncLocks) -> None:
    held = 0

    fences = []

    async def work() -> None:
        nonlocal held
        async with dblock_async_locks.lease("report", wait=60) as lease:
            held += 1
            assert held == 1
            await asyncio.sleep(0.05)
            held -= 1
            fences.append(lease.fence)

    async def main() -> None:
        await asyncio.gather(*(work() for _ in range(4)))

    asyncio.run(main())
    assert fences == [1, 2, 3, 4]


def test_leases_are_renewed_as_time_goes_by(
    dblock_async_locks: AsyncLocks, dblock_faults: Faults
) -> None:
    async def main() -> None:
        async with dblock_async_locks.lease("report", ttl=30) as lease:
            dblock_faults.advance(600)
            assert lease.held
            await lease.renew()
        await dblock_async_locks.close()

    asyncio.run(main())


def test_what_becomes_of_lost_statements(
    dblock_async_locks: AsyncLocks, dblock_faults: Faults
) -> None:
    async def main() -> None:
        for lose in (dblock_faults.lose_request, dblock_faults.lose_reply):
            lose("acquire")
            async with dblock_async_locks.lease("report", wait=0):
                lose("release")
        dblock_faults.lose_reply("acquire", then_unreachable=True)
        with pytest.raises(OutcomeUnknown):
            await dblock_async_locks.lease("report").acquire()
        with pytest.raises(Unavailable):
            await dblock_async_locks.lease("other").acquire()

    asyncio.run(main())


def test_guards(dblock_async_locks: AsyncLocks, dblock_faults: Faults) -> None:
    engine = create_async_engine("sqlite+aiosqlite://")

    async def proves(lease: AsyncLease) -> bool:
        proved = 0
        async with AsyncSession(engine) as session, session.begin(), lease.guard(session) as fence:
            proved = fence
        return proved == lease.fence

    async def main() -> None:
        lease = dblock_async_locks.lease("report")
        await lease.acquire()
        assert await proves(lease)
        dblock_faults.fail_guard("report", conflict=True)
        with pytest.raises(Conflict):
            await proves(lease)
        dblock_faults.fail_guard("report")
        with pytest.raises(LockLost):
            await proves(lease)
        async with (
            AsyncSession(engine) as session,
            session.begin(),
            dblock_async_locks.row("order", on=session) as row,
        ):
            assert row.held
        await engine.dispose()

    asyncio.run(main())


def test_threads_and_tasks_share_the_database(
    dblock_locks: Locks, dblock_async_locks: AsyncLocks
) -> None:
    async def main() -> bool:
        return await dblock_async_locks.lease("report", wait=0).acquire()

    with dblock_locks.lease("report"):
        assert not asyncio.run(main())


def test_no_driver_of_an_event_loop_is_needed(
    dblock_faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiosqlite", None)

    async def main() -> bool:
        return await dblock_faults.async_locks.lease("report", wait=0).acquire()

    assert asyncio.run(main())
