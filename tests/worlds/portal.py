"""The world of asyncio: a loop in a thread of its own, in which the cases' threads have tasks."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Self, cast
from weakref import WeakValueDictionary, ref

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import create_async_engine

import dblock.aio.holding
from dblock import Locks
from dblock.aio import AsyncHandle, AsyncLocks
from dblock.aio.bridge import await_
from dblock.aio.holding import TaskWorker
from dblock.aio.runtime import AsyncioRuntime
from dblock.holding.keeper import Keeper
from tests.aio.support import async_url
from tests.worlds.flow import Flow
from tests.worlds.surface import BridgedEngine, Surface
from tests.worlds.world import World


class Asyncio(World):
    name = "asyncio"

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._complaints: list[str] = []
        self._loop.set_exception_handler(lambda _, told: self._complaints.append(f"{told}"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="event loop")
        self._mine = threading.local()
        self._flows: list[Flow] = []  # they end with the world, not with their threads
        self._surfaces: WeakValueDictionary[Any, Surface] = WeakValueDictionary()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert not self._complaints, "\n".join(self._complaints)

    # --- from threads to tasks ------------------------------------------------------------------

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call in the calling thread's task, and await what it returns if that is a coroutine."""
        do = partial(function, *args, **kwargs)
        if threading.current_thread() is not self._thread:
            return self._flow.call(do)
        result = do()  # a callback from inside of dblock
        return await_(result) if inspect.iscoroutine(result) else result

    def locked(self, lock: Any, function: Callable[[], Any]) -> Any:
        """Call in the calling thread, its task being inside what the lock decorates."""
        return self._flow.locked(lock, function)

    @property
    def _flow(self) -> Flow:
        if not hasattr(self._mine, "flow"):
            self._mine.flow = Flow(self._loop)
            self._flows.append(self._mine.flow)
        flow: Flow = self._mine.flow
        return flow

    def surface(self, found: Any) -> Any:
        """What a case gets to see of an object: the same for the same one."""
        decorator = isinstance(getattr(found, "__self__", None), AsyncHandle)
        if not (
            decorator
            or type(found).__module__.startswith("dblock.aio.")
            or hasattr(found, "__aenter__")
        ):
            return found
        return self._surfaces.setdefault(found, Surface(self, found))

    # --- what the cases ask for -----------------------------------------------------------------

    def locks(self, url: str, **options: Any) -> Locks:
        return cast(Locks, self.surface(AsyncLocks(async_url(url), **options)))

    def engine(self, url: str, **options: Any) -> Engine:
        made = create_async_engine(async_url(url), **options)
        return cast(Engine, BridgedEngine(self, made))

    def keeper(self) -> Keeper:
        made: Keeper = self.call(dblock.aio.holding.keeper_here)
        return made

    def use_keeper(self, patch: pytest.MonkeyPatch, kind: Callable[..., Keeper]) -> Keeper:
        made = kind(AsyncioRuntime(), partial(TaskWorker, ref(self._loop)))
        patch.setitem(dblock.aio.holding._keepers, self._loop, made)
        return made


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


WORLDS = {world.name: world for world in (World, Asyncio)}
