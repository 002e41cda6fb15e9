"""The test's time for tasks, and locks for them that need no asyncio driver.

The standard library's sqlite3 runs the statements here too: they are too short to need a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ..aio import locks
from ..aio.bridge import Home, await_
from ..aio.runtime import AsyncioRuntime
from ..io.target import resolve
from .process import Process, SimulatedHolds, SimulatedRuntime
from .standing_in import stand_in
from .store import Store


class SimulatedTaskRuntime(SimulatedRuntime, AsyncioRuntime):
    """The same as SimulatedRuntime, for tasks."""

    def sleep(self, seconds: float) -> None:
        await_(asyncio.sleep(0))  # other tasks get their turn
        super().sleep(seconds)


class SimulatedTaskHolds(SimulatedHolds):
    caller = "task"


class _BridgedInStore(locks.Bridged):
    _resolve = staticmethod(resolve)


class LocksOfTasks(locks.AsyncLocks):
    """AsyncLocks in a test's database, without an asyncio driver."""

    def __init__(self, store: Store) -> None:
        self.for_another_loop = partial(LocksOfTasks, store)
        self._keeper_thread = False
        self.sync = _BridgedInStore(store.engine, keeper_thread=False)
        self._database = self.sync._database
        self._home = Home(repr(self))


def stand_in_for_tasks(process: Process, made: locks.AsyncLocks) -> Callable[[], None]:
    """The same as :func:`.stand_in`. Until the end the locks belong to the loop that uses them."""
    stop = stand_in(process, made.sync, SimulatedTaskRuntime, SimulatedTaskHolds)
    home = made._home
    loop, home._loop = home._loop, None

    def leave() -> None:
        home._loop = loop
        stop()

    return leave
