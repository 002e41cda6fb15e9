"""What a program with asyncio uses of dblock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from decimal import Decimal
from typing import Any, assert_type

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dblock import DetachedHold, Leader, LockState, MemberStatus, Rate, RunState
from dblock.aio import (
    AsyncCounter,
    AsyncCron,
    AsyncCronJob,
    AsyncDetachedLease,
    AsyncDetachedSemaphore,
    AsyncElection,
    AsyncHandle,
    AsyncLeadership,
    AsyncLease,
    AsyncLocks,
    AsyncMultiLock,
    AsyncObservation,
    AsyncOnce,
    AsyncQuorum,
    AsyncQuorumLease,
    AsyncRowLock,
    AsyncSemaphore,
    AsyncSharedLease,
    Campaign,
    retry_on_conflict,
)
from dblock.aio.fencing import gate
from dblock.testing import Faults


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "product"

    id: Mapped[int] = mapped_column(primary_key=True)
    stock: Mapped[int]


engine = create_async_engine("postgresql+asyncpg://app@db/app")
sessions = async_sessionmaker(engine)
locks = AsyncLocks(engine, keeper="thread")
AsyncLocks(engine, keeper="process")  # type: ignore[arg-type]


async def stop(loss: object) -> None:
    print(loss)


@locks.lease("nightly", wait=0)
async def nightly(day: int) -> str:
    return str(day)


@locks.skip("cleanup", ttl=60, cancel_on_loss=True, on_lost=stop)
async def cleanup(day: int) -> str:
    return str(day)


@locks.cron("figures", once_per="day", cancel_on_loss=True)
async def figures(day: int) -> str:
    return str(day)


@retry_on_conflict(sessions)
async def rename(session: AsyncSession, product: int) -> int:
    return product


def decorated() -> None:
    assert_type(locks.cron("figures", once_per="day"), AsyncCron)
    assert_type(asyncio.run(nightly(1)), str)
    assert_type(asyncio.run(cleanup(1)), str | None)
    made: Coroutine[Any, Any, int] = rename(7)
    print(made)
    asyncio.run(cleanup("1"))  # type: ignore[arg-type]
    locks.skip("cleanup", wait=5)  # type: ignore[call-arg]
    locks.lease("nightly")(str)  # type: ignore[arg-type]


async def calls() -> None:
    task = asyncio.create_task(nightly(1))
    assert_type(await task, str)
    assert_type(await figures(1), str | None)
    job: AsyncCronJob[[int], str] = figures
    assert_type(await job.last_run(), RunState | None)


async def limited() -> None:
    rate = locks.rate("api", 100, per=60, wait=5)
    assert_type(rate, AsyncHandle[Rate])
    assert_type(await rate.acquire(), bool)
    async with rate:
        pass
    locks.rate("api")  # type: ignore[call-arg]


async def handle(lock: AsyncHandle[Any]) -> None:
    assert_type(lock.wait, float | None)
    assert_type(await lock.acquire(timeout=3), bool)
    await lock.release()


async def leases(session: AsyncSession) -> None:
    lease = locks.lease("report", ttl=30, wait=5, cancel_on_loss=True, on_lost=stop)
    async with lease as held:
        assert_type(held, AsyncLease)
    await handle(lease)
    assert_type(lease.name, str)
    assert_type(lease.ttl, float)
    assert_type(lease.renew_every, float)
    assert_type(lease.held, bool)
    assert_type(await lease.locked(), bool)
    assert_type(lease.fence, int)
    assert_type(lease.token, str)
    assert_type(lease.remaining, float)
    assert_type(lease.margin, float)
    assert_type(lease.lost.is_set(), bool)
    await lease.lost.wait()
    lease.check()
    await lease.renew(30)
    async with lease.guard(session) as fence:
        assert_type(fence, int)
    assert_type(await lease.detach(), str)
    await lease.release(after=3)
    assert_type(locks.attach("text", ttl=30), AsyncLease)
    detached = locks.detached("report", "f" * 32, owner="worker")
    assert_type(detached, AsyncDetachedLease)
    assert_type((detached.name, detached.token, detached.owner), tuple[str, str, str])
    assert_type(await detached.take(ttl=30, wait=None), DetachedHold)
    assert_type(await detached.renew(), DetachedHold)
    assert_type(locks.detached_from("text"), AsyncDetachedLease)
    await detached.release()
    await detached.proclaim(1)
    assert_type(locks.detached("report", shared=True), AsyncDetachedLease)
    slots = locks.detached_semaphore("api", 3, "f" * 32, owner="worker")
    assert_type(slots, AsyncDetachedSemaphore)
    assert_type((slots.name, slots.limit, slots.token), tuple[str, int, str])
    assert_type(await slots.take(30), DetachedHold)
    assert_type(locks.shared("prices"), AsyncSharedLease)
    row = locks.row("order:42", on=session)
    assert_type(row, AsyncRowLock)
    assert_type((row.name, row.borrowed, row.held), tuple[str, bool, bool])
    await row.check()
    both = locks.all(lease, row, wait=5)
    assert_type(both, AsyncMultiLock)
    assert_type(both.held, bool)
    semaphore = locks.semaphore("api", limit=3)
    assert_type(semaphore, AsyncSemaphore)
    async with semaphore as slot:
        assert_type(slot, AsyncLease)
    assert_type((semaphore.name, semaphore.limit), tuple[str, int])
    assert_type(semaphore.slot, AsyncLease)
    assert_type(await semaphore.resize(4), int)
    with lease:  # type: ignore[attr-defined]
        pass
    locks.lease("report", ttl="30")  # type: ignore[arg-type]
    locks.row("order:42", on="session")  # type: ignore[arg-type]


async def lead(term: AsyncLeadership) -> None:
    await term.proclaim({"url": "http://10.0.0.7"})
    await term.resign()


async def elections() -> None:
    election = locks.election("scheduler", ttl=10)
    assert_type(election, AsyncElection)
    assert_type((election.name, election.ttl), tuple[str, float])
    assert_type(election.campaign(), Campaign)
    async with election.campaign(wait=5) as term:
        assert_type(term, AsyncLeadership)
    assert_type(await election.leader(), Leader | None)
    observation = election.observe()
    assert_type(observation, AsyncObservation)
    async for seen in observation:
        print(seen)
    await election.run(lead)


async def counters(session: AsyncSession) -> None:
    stock = locks.counter(Product.stock, key=Product.id)
    assert_type(stock, AsyncCounter)
    assert_type(await stock.take(session, 7, 3), bool)
    assert_type(await stock.add(session, 7, Decimal("0.1")), bool)
    assert_type(await stock.compare_and_update(session, 7, seen=3, new=4), bool)
    assert_type(await stock.update(session, 7, int), int)
    left: int = await stock.value(session, 7)
    print(left)
    await stock.spread(session, 7)
    await stock.take(session, 7, "3")  # type: ignore[arg-type]
    await stock.add(session, 7, "3")  # type: ignore[arg-type]
    await stock.compare_and_update(session, 7, seen="3", new=4)  # type: ignore[arg-type]
    async with locks.once(session, "order:42", keep=3600) as call:
        assert_type(call, AsyncOnce)
        assert_type((call.key, call.replayed, call.active), tuple[str, bool, bool])
        call.result = {"id": 7}
    await gate(session, "report", 7)
    await gate(session, "report", "7")  # type: ignore[arg-type]


async def operate() -> None:
    async with locks as same:
        assert_type(same, AsyncLocks)
    assert_type(await locks.list(), list[LockState])
    assert_type(await locks.show("report"), LockState)
    assert_type(await locks.release("report", force=True), bool)
    assert_type(await locks.last_run("figures"), RunState | None)
    assert_type(await locks.runs("figures"), list[RunState])
    assert_type(await locks.last_runs(), list[RunState])
    assert_type(await locks.reopen("figures", "2026-11-23"), bool)
    print((await locks.prune(older_than=86400)).runs)
    assert_type(await locks.prune_names(idle=86400), int)
    assert_type(await locks.pause(), float)
    await locks.close()
    await locks.show(42)  # type: ignore[arg-type]


async def majority(url: str) -> None:
    async with AsyncQuorum([url, url, engine], label="me") as quorum:
        lease = quorum.lease("report", ttl=30, wait=0, cancel_on_loss=True)
        assert_type(lease, AsyncQuorumLease)
        async with lease as held:
            assert_type(held.fence, int)
            await held.renew(5)
        election = quorum.election("main", ttl=30, cancel_on_loss=True)
        assert_type(election, AsyncElection)
        async with election.campaign(wait=5) as term:
            await term.proclaim({"address": "10.0.0.1"})
        assert_type(await quorum.check(), list[MemberStatus])
        assert_type(await quorum.rejoin(url), float)
        assert_type(await quorum.show("report"), LockState)
        assert_type(await quorum.list(), list[LockState])
        assert_type(await quorum.release("report", force=True), bool)
    await quorum.close()


def faults(made: Faults) -> None:
    assert_type(made.async_locks, AsyncLocks)


plain: Callable[[int], Awaitable[str]] = nightly
