"""The runtime for tasks: how they wait, and how they are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any, TypeVar

from ..io.process_lock import lock
from ..io.runtime import Event, Runtime, Turns
from . import bridge
from .bridge import await_

T = TypeVar("T")

# Seconds between two checks whether a renewal has ended.
LOOK = 0.005


class AsyncioRuntime(Runtime):
    """See :class:`dblock.io.runtime.Runtime`."""

    lingers = True

    def sleep(self, seconds: float) -> None:
        await_(asyncio.sleep(seconds))

    def wait(self, event: Event, seconds: float | None) -> bool:
        return bool(await_(event.wait(seconds)))

    def readable(self, descriptor: int, seconds: float) -> bool:
        return bridge.ready(descriptor, seconds)

    def turns(self, limit: int) -> Turns:
        return TaskTurns(limit)

    def connect(self, make: Callable[[], T], keep: Callable[[T], None]) -> T:
        return bridge.connect(make, keep)

    def finish(self, function: Callable[[], T], *, cancelled: bool = False) -> T | None:
        return bridge.finish(function, bridge.GRACE if cancelled else None)

    def apart(self, function: Callable[[], object]) -> None:
        bridge.finish(function, None)

    def event(self) -> Event:
        event: Any = TaskEvent()  # its wait is awaited
        return event  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def settled(self, done: Callable[[], bool], patience: float) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while True:
            with lock:
                if done() or loop.time() >= until:
                    yield
                    return
            self.sleep(LOOK)

    check: Callable[[], None] | None = staticmethod(bridge.check)


class TaskTurns:
    """The permits of a semaphore, for tasks."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)

    def get(self, block: bool = True, timeout: float | None = None) -> None:
        if self._free.locked():
            if not block:
                raise Empty
            await_(self._acquire(timeout))
            return
        try:
            self._free.acquire().send(None)
        except StopIteration:  # as it does at once, without the loop
            return

    async def _acquire(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._free.acquire()
        except TimeoutError:
            raise Empty from None

    def put(self, turn: None) -> None:
        self._free.release()


class TaskEvent:
    """An :class:`asyncio.Event` that any thread may set."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._waiting: set[asyncio.Future[None]] = set()

    def is_set(self) -> bool:
        return self._set.is_set()

    def set(self) -> None:
        self._set.set()
        with lock:
            waiting = list(self._waiting)
        for future in waiting:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                future.get_loop().call_soon_threadsafe(_wake, future)

    def clear(self) -> None:
        self._set.clear()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds until it is set; return whether it is."""
        future = asyncio.get_running_loop().create_future()
        with lock:
            self._waiting.add(future)
        try:
            if not self.is_set():
                async with asyncio.timeout(timeout):
                    await future
        except TimeoutError:
            pass
        finally:
            with lock:
                self._waiting.discard(future)
        return self.is_set()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
