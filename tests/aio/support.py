"""What the files of tests for asyncio share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from dblock.aio import AsyncLease, AsyncLocks
from dblock.aio.bridge import drain
from tests.conftest import BORROWED
from tests.support import SECONDS

DRIVERS = {"mysql": "mysql+asyncmy", "sqlite": "sqlite+aiosqlite"}


def async_url(url: str) -> str:
    """The URL of the same database for an event loop's driver: for that of dblock's own
    connections, unless it has another one."""
    name, rest = url.split("://", 1)
    backend, _, driver = name.partition("+")
    if any(driver == kind.partition("+")[2] for kind in BORROWED["asyncio"]):
        return url
    return f"{DRIVERS.get(backend, name)}://{rest}"


class Stepped:
    """A coroutine that is cancelled at its ``at``-th point of waiting, counted from 1.

    ``how`` is "waiting", "answered" (at the very moment when what it waits for is there), or
    "again" (at every point from then on).
    """

    def __init__(self, coroutine: Any, at: int, how: str = "waiting") -> None:
        self._coroutine = coroutine
        self._at = at
        self._how = how
        self.points = 0

    def _arrived(self, waited_for: Any) -> None:
        self.points += 1
        if self.points < self._at or (self.points > self._at and self._how != "again"):
            return
        task = asyncio.current_task()
        assert task is not None
        if self._how == "answered" and waited_for is not None:
            waited_for.add_done_callback(lambda _: task.cancel())
        else:
            asyncio.get_running_loop().call_soon(task.cancel)

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                waited_for = inner.send(None) if thrown is None else inner.throw(thrown)
            except StopIteration as stop:
                return stop.value
            finally:
                thrown = None  # a frame in its own traceback would live on
            self._arrived(waited_for)
            try:
                yield waited_for
            except BaseException as error:
                thrown = error


async def cancelled_at(coroutine: Any, at: int, how: str) -> bool:
    """Whether it was cancelled; False when it ended before it came to the point."""
    stepped = Stepped(coroutine, at, how)

    async def main() -> None:
        await stepped

    task = asyncio.create_task(main())
    try:
        await task
    except asyncio.CancelledError:
        assert stepped.points >= at
        return True
    assert stepped.points < at, "its cancellation was swallowed"
    return False


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def renewed(lease: AsyncLease) -> None:
    """Wait until the keeper has renewed it."""
    hold = lease.sync._current()
    assert hold is not None
    before = hold.lease.term

    def moved() -> bool:
        lease.check()
        return hold.lease.term is not before

    await eventually(moved)


async def settled(locks: AsyncLocks) -> None:
    """No connection of dblock's is in use, and those in its pools are fit for it."""
    async with asyncio.timeout(SECONDS):
        await drain()
    for connections in (locks._database.connections, locks._database.holders):
        for connection in list(connections._idle):
            assert locks._database.dialect.adapter.is_usable(connection.driver)
            assert not await in_transaction(connection.driver)
    turns: Any = locks._database.connections._permits.usual
    assert turns._free._value == 8


async def in_transaction(driver: Any) -> bool:
    if hasattr(driver, "info"):
        return bool(driver.info.transaction_status.name != "IDLE")
    if hasattr(driver, "in_transaction"):
        return bool(driver.in_transaction)
    async with driver.cursor() as cursor:  # only the server's last answer says it
        await cursor.execute("SELECT 1")
    return bool(driver.get_transaction_status())
