"""Reading all names, beside the event loop: with many names that would hold up every request.

::

    a request's task ── read ──> a thread with its own event loop and connections
                     <─────────  the finished JSON, metrics or events
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ...aio import AsyncLocks

T = TypeVar("T")


class ReaderThread:
    """A thread that reads names. It starts with its first user, and ends with its last."""

    def __init__(self, locks: AsyncLocks) -> None:
        self._locks = locks
        self._users = 0
        self._thread: _Thread | None = None

    @asynccontextmanager
    async def thread(self) -> AsyncIterator[_Thread]:
        """Keep the thread until the block ends."""
        if self._thread is None:
            self._thread = _Thread(self._locks.for_another_loop())
        thread = self._thread
        self._users += 1
        try:
            yield thread
        finally:
            self._users -= 1
            if not self._users:
                self._thread = None
                thread.end()

    async def read(self, function: Callable[[AsyncLocks], Coroutine[Any, Any, T]]) -> T:
        """Call a coroutine function in the thread, with locks for it, and return its result."""
        async with self.thread() as thread:
            return await thread.read(function)


class _Thread:
    def __init__(self, locks: AsyncLocks) -> None:
        self._locks = locks
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._reads = set[asyncio.Task[Any]]()
        threading.Thread(target=self._run, name="dblock reader", daemon=True).start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_the_end())

    async def _until_the_end(self) -> None:
        async with self._locks:
            await self._ending.wait()
            # A cancelled read still waits for its statement's answer, and returns its connection.
            if self._reads:
                await asyncio.wait(set(self._reads))

    def end(self) -> None:
        """Close the connections, and end the thread."""
        self._loop.call_soon_threadsafe(self._ending.set)

    async def read(self, function: Callable[[AsyncLocks], Coroutine[Any, Any, T]]) -> T:
        """Call a coroutine function in the thread, with its locks."""
        reading = asyncio.run_coroutine_threadsafe(self._call(function), self._loop)
        return await asyncio.wrap_future(reading)

    async def _call(self, function: Callable[[AsyncLocks], Coroutine[Any, Any, T]]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._reads.add(task)
        try:
            return await function(self._locks)
        finally:
            self._reads.discard(task)
