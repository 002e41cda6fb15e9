"""A loss is told to tasks: by the event, by callbacks, by cancelling the body if asked."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import Danger, LockLost, Locks
from dblock.aio import AsyncLocks
from dblock.holding.lease_hold import LeaseHold
from tests.aio.support import eventually
from tests.support import LONG, SECONDS, SHORT, expire

keepers = pytest.mark.parametrize("keeper", ["task", "thread"])

TTL = 0.6


async def forever() -> None:
    await asyncio.sleep(SECONDS)


@keepers
def test_the_body_is_cancelled_by_its_loss(
    url: str, run: Any, direct: Locks, engine: Engine, keeper: str
) -> None:
    async def main() -> None:
        async with AsyncLocks(url, keeper=keeper) as locks:  # type: ignore[arg-type]
            task = asyncio.current_task()
            assert task is not None
            lease = locks.lease("report", ttl=TTL, cancel_on_loss=True)

            async def work() -> None:
                async with lease:
                    await asyncio.to_thread(direct.release, "report", force=True)
                    await forever()

            with pytest.raises(LockLost) as caught:
                await work()
            assert caught.value.reason == "forced"
            assert isinstance(caught.value.__cause__, asyncio.CancelledError)
            assert lease.lost.is_set()
            assert not lease.held
            assert task.cancelling() == 0
            await asyncio.sleep(0)  # and nothing comes of it afterwards
            async with locks.lease("report", ttl=LONG):
                pass

    run(main())


@keepers
def test_without_asking_for_it_the_body_goes_on(url: str, run: Any, keeper: str) -> None:
    async def main() -> None:
        told: list[LockLost] = []

        async def on_lost(loss: LockLost) -> None:
            await asyncio.sleep(0)
            told.append(loss)

        async with AsyncLocks(url, keeper=keeper) as locks:  # type: ignore[arg-type]

            async def work() -> None:
                async with locks.lease("report", ttl=SHORT, renew=False, on_lost=on_lost) as lease:
                    assert await lease.lost.wait()
                    await asyncio.sleep(SHORT)

            with pytest.raises(LockLost) as caught:
                await work()
            assert told == [caught.value]

    run(main())


@keepers
def test_the_event_and_the_danger_before(url: str, run: Any, keeper: str) -> None:
    async def main() -> None:
        dangers: list[Danger] = []
        loop = asyncio.get_running_loop()

        def on_danger(danger: Danger) -> None:
            assert asyncio.get_running_loop() is loop
            dangers.append(danger)

        async with AsyncLocks(url, keeper=keeper) as locks:  # type: ignore[arg-type]
            lease = locks.lease("report", ttl=TTL, renew=False, on_danger=on_danger)
            assert await lease.acquire()
            assert not await lease.lost.wait(0.001)
            assert await lease.lost.wait(SECONDS)
            assert [danger.name for danger in dangers] == ["report"]
            assert 0 < dangers[0].remaining < TTL / 2
            with pytest.raises(LockLost):
                lease.check()

    run(main())


def test_a_cancellation_from_elsewhere_stays_one(url: str, run: Any) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            started = asyncio.Event()

            async def work() -> None:
                async with locks.lease("report", ttl=LONG, cancel_on_loss=True):
                    started.set()
                    await forever()

            task = asyncio.create_task(work())
            await started.wait()
            task.cancel("from elsewhere")
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await locks.list() == []

    run(main())


def test_both_at_the_same_moment(url: str, run: Any, direct: Locks) -> None:
    """Whoever cancelled the task from outside is not robbed of it."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            task: asyncio.Task[None]

            async def work() -> None:
                lease = locks.lease(
                    "report", ttl=TTL, cancel_on_loss=True, on_lost=lambda loss: task.cancel()
                )
                async with lease:
                    await asyncio.to_thread(direct.release, "report", force=True)
                    await forever()

            task = asyncio.create_task(work())
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

    run(main())


@pytest.mark.parametrize("order", ["inside", "outside"])
@pytest.mark.parametrize("first", ["loss", "timeout", "both"])
def test_a_timeout_around_and_inside(
    url: str, run: Any, direct: Locks, order: str, first: str
) -> None:
    """Each turns only its own cancellation into its error; the outer one counts for both."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            timeout = asyncio.timeout(None)

            def on_lost(loss: LockLost) -> None:
                if first == "both":
                    timeout.reschedule(0)

            lease = locks.lease("report", ttl=TTL, cancel_on_loss=True, on_lost=on_lost)

            async def body() -> None:
                if first == "timeout":
                    timeout.reschedule(0)
                else:
                    await asyncio.to_thread(direct.release, "report", force=True)
                if first == "both":  # neither is dealt with before the other has come
                    try:
                        await forever()
                    finally:
                        await asyncio.sleep(0)
                await forever()

            async def work() -> None:
                if order == "outside":
                    async with timeout, lease:
                        await body()
                else:
                    async with lease, timeout:
                        await body()

            expected: type[Exception] = LockLost if first == "loss" else TimeoutError
            if first == "both":
                expected = LockLost if order == "inside" else TimeoutError
            with pytest.raises(expected):
                await work()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    run(main())


@pytest.mark.parametrize("kind", ["lease", "term"])
def test_a_loss_that_is_told_while_the_body_gives_back(url: str, run: Any, kind: str) -> None:
    """Its cancellation is not left behind where the hold is gone already."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            task = asyncio.current_task()
            assert task is not None
            loss = LockLost("taken", name="report", reason="taken over")
            election = locks.election("report", ttl=LONG, cancel_on_loss=True)
            lease = locks.lease("report", ttl=LONG, cancel_on_loss=True)

            def lose(hold: LeaseHold | None) -> None:
                assert hold is not None
                hold.lose(loss)
                assert hold.callbacks.on_lost is not None
                hold.callbacks.on_lost(loss)

            async def work() -> None:
                async with election.campaign() if kind == "term" else lease as held:
                    asyncio.get_running_loop().call_soon(lose, held.sync._current())
                    await held.release()

            with pytest.raises(LockLost) as caught:
                await work()
            assert caught.value is loss
            assert task.cancelling() == 0

    run(main())


def test_in_a_task_group(url: str, run: Any, direct: Locks) -> None:
    """The loss cancels the one task; its LockLost ends the group, as any error does."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            others: list[bool] = []

            async def locked() -> None:
                async with locks.lease("report", ttl=TTL, cancel_on_loss=True):
                    await asyncio.to_thread(direct.release, "report", force=True)
                    await forever()

            async def other() -> None:
                try:
                    async with locks.lease("another", ttl=LONG, cancel_on_loss=True):
                        await forever()
                finally:
                    others.append(True)

            async def work() -> None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(locked())
                    group.create_task(other())

            with pytest.raises(ExceptionGroup) as caught:
                await work()
            assert [type(error) for error in caught.value.exceptions] == [LockLost]
            assert others == [True]
            assert await locks.list() == []

    run(main())


def test_a_group_inside_is_ended_by_the_loss(url: str, run: Any, direct: Locks) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            ended: list[bool] = []

            async def child() -> None:
                try:
                    await forever()
                finally:
                    ended.append(True)

            async def work() -> None:
                lease = locks.lease("report", ttl=TTL, cancel_on_loss=True)
                async with lease, asyncio.TaskGroup() as group:
                    group.create_task(child())
                    group.create_task(child())
                    await asyncio.to_thread(direct.release, "report", force=True)

            with pytest.raises(LockLost):
                await work()
            assert ended == [True, True]

    run(main())


def test_a_loss_that_the_body_finds_itself_does_not_cancel_it(
    url: str, run: Any, direct: Locks, engine: Engine
) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            told: list[LockLost] = []
            lease = locks.lease("report", ttl=LONG, cancel_on_loss=True, on_lost=told.append)
            found: list[LockLost] = []
            cleaned = asyncio.Event()

            async def work() -> None:
                async with lease:
                    expire(engine, direct, "report")
                    try:
                        await lease.renew()
                    except LockLost as loss:
                        found.append(loss)
                    await asyncio.sleep(0)  # it can clean up
                    cleaned.set()

            with pytest.raises(LockLost) as caught:
                await work()
            assert cleaned.is_set()
            assert told == found == [caught.value]
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    run(main())


def test_only_the_body_of_the_lost_hold_is_cancelled(url: str, run: Any, direct: Locks) -> None:
    """Two tasks share a handle; the second has it when the first learns of its loss."""

    async def main() -> None:
        async with AsyncLocks(url) as locks, AsyncLocks(url) as second:
            lease = locks.lease("report", ttl=TTL, cancel_on_loss=True)
            inside = asyncio.Event()

            async def loser() -> None:
                async with lease:
                    inside.set()
                    await forever()

            async def winner() -> str:
                await inside.wait()
                await second.release("report", force=True)
                async with lease:
                    await eventually(losing.done)
                    assert lease.held
                return "fine"

            losing = asyncio.create_task(loser())
            winning = asyncio.create_task(winner())
            with pytest.raises(LockLost):
                await losing
            assert await winning == "fine"

    run(main())


def test_the_bodys_own_error_goes_on(url: str, run: Any, direct: Locks) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:

            async def work() -> None:
                async with locks.lease("report", ttl=TTL, cancel_on_loss=True):
                    await asyncio.to_thread(direct.release, "report", force=True)
                    try:
                        await forever()
                    except asyncio.CancelledError:
                        raise KeyError("cleaning up") from None

            with pytest.raises(KeyError) as caught:
                await work()
            assert "LockLost" in caught.value.__notes__[0]

    run(main())


@keepers
def test_a_loop_that_was_blocked_is_told_afterwards(url: str, run: Any, keeper: str) -> None:
    """In the loop nobody renews it meanwhile, and it is over; a thread renews it."""

    async def main() -> None:
        async with AsyncLocks(url, keeper=keeper) as locks:  # type: ignore[arg-type]
            told: list[LockLost] = []
            ttl = TTL if keeper == "task" else 4.0  # for the thread to make its connection in
            lease = locks.lease("report", ttl=ttl, on_lost=told.append)
            assert await lease.acquire()
            time.sleep(1.2 * ttl)
            if keeper == "thread":
                assert lease.held
                lease.check()
                await lease.release()
                assert told == []
                return
            assert not lease.held  # before the keeper had its turn
            assert await lease.lost.wait(SECONDS)
            with pytest.raises(LockLost):
                lease.check()
            await eventually(lambda: bool(told))
            assert [loss.reason for loss in told] == ["expired"]

    run(main())


def test_a_loop_that_was_blocked_for_less_is_told_of_the_danger_or_renewed(
    url: str, run: Any
) -> None:
    async def main() -> None:
        async with AsyncLocks(url) as locks:
            dangers: list[Danger] = []
            lease = locks.lease("report", ttl=4, on_danger=dangers.append)
            while True:
                assert await lease.acquire()
                time.sleep(2.8)  # past two thirds of the term
                if lease.held:
                    break
                with pytest.raises(LockLost):  # it was blocked for longer: once more
                    await lease.release()
                dangers.clear()
            before = lease.remaining
            await eventually(lambda: lease.remaining > before)
            assert [danger.name for danger in dangers] == ["report"]
            await lease.release()

    run(main())


@pytest.mark.parametrize("asked", [True, False])
def test_a_dropped_handle_goes_at_once(url: str, run: Any, asked: bool) -> None:
    """And its lease is renewed no more: no cycle keeps it."""

    async def main() -> None:
        async with AsyncLocks(url) as locks:
            lease = locks.lease(
                "report", ttl=LONG, cancel_on_loss=asked, on_lost=print, on_danger=print
            )
            assert await lease.acquire()
            gc.disable()
            try:
                dropped = weakref.ref(lease.sync._holds.find())
                del lease
                assert dropped() is None
            finally:
                gc.enable()

    run(main())
