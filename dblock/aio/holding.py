"""The holds of tasks, and the keeper that renews them.

The keeper is a :class:`~dblock.holding.keeper.Keeper` whose workers are tasks. There is one for
each loop. With ``keeper="thread"`` there is one in a thread with a loop of its own, which goes on
while the application's loop is blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakSet, ref

from ..holding.callers import CallerRegistry
from ..holding.holds import CallerHolds
from ..holding.keeper import Call, Keeper, logger
from ..holding.worker import AGAIN, start_quietly
from ..io.fork import leave_to_parent
from ..io.process_lock import lock
from ..system.platform import at_fork
from .bridge import GRACE, run, whose
from .runtime import AsyncioRuntime


class TaskHolds(CallerRegistry):
    """The holds of each task.

    A context variable would not do: a task's children inherit it, and two tasks would count as one.
    """

    caller = "task"

    def __init__(self) -> None:
        self._all: WeakKeyDictionary[object, CallerHolds] = WeakKeyDictionary()

    def mine(self) -> CallerHolds:
        key = whose() or self
        found = self._all.get(key)
        if found is None:
            found = self._all[key] = CallerHolds()
        return found


_keepers: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopKeeper] = WeakKeyDictionary()


def keeper_here() -> LoopKeeper:
    """Return the running loop's own keeper."""
    loop = asyncio.get_running_loop()
    found = _keepers.get(loop)
    if found is None:
        found = _keepers[loop] = LoopKeeper(loop)
    return found


class LoopKeeper(Keeper):
    """A keeper whose workers are tasks of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._workers: WeakSet[TaskWorker] = WeakSet()
        super().__init__(AsyncioRuntime(), self._employ)

    def _employ(self, name: str, work: Callable[[], float], end: Call = lambda: None) -> TaskWorker:
        worker = TaskWorker(self._loop, name, work, end)
        self._workers.add(worker)
        return worker

    async def rest(self) -> None:
        """Let the tasks end, if there is nothing to keep."""
        tasks = [worker.task for worker in self._workers if worker.task is not None]
        if tasks and len(self) == 0:
            self._came = False
            self._timer.wake()
            await asyncio.wait(tasks, timeout=GRACE)


class TaskWorker:
    """A task that works when it is woken, or at the time that its work asked for: see ``Worker``.

    It ends with its loop, or if the application cancels all tasks. The next call starts it again.
    """

    def __init__(
        self,
        loop: Callable[[], asyncio.AbstractEventLoop | None],
        name: str,
        work: Callable[[], float],
        end: Call = lambda: None,
    ) -> None:
        self._loop = loop
        self._name = name
        self._work = work
        self._end = end
        self._woken = False
        self.task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.running = False

    def wake(self) -> None:
        loop = self._loop()
        if loop is None:
            return
        with lock:
            self._woken = True
            self.running = True
        # Any thread may call this. If the loop is closed, it is too late for anything.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._go)

    def _go(self) -> None:
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._run(), name=self._name)
        self._wake.set()

    async def _run(self) -> None:
        try:
            while await self._once():
                pass
        except BaseException:
            with lock:
                self._stop()
            raise

    async def _once(self) -> bool:
        """Work, and wait until there is more to do; return False if there is nothing."""
        with lock:
            self._woken = False
        self._wake.clear()
        try:
            pause = await run(self._work)
        except Exception:
            logger.exception("the keeper failed")
            pause = AGAIN
        if pause < math.inf and not self._woken:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
        with lock:
            if pause == math.inf and not self._woken:
                self._stop()
                return False
        return True

    def _stop(self) -> None:
        self.task = None
        self.running = False
        self._end()


class KeeperThread:
    """A thread with an event loop for the keeper. It starts when it is first needed."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.keeper = LoopKeeper(self.loop)
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="dblock keeper", daemon=True
        )
        start_quietly(self._thread)


_thread: KeeperThread | None = None


def keeper_thread() -> KeeperThread:
    global _thread
    with lock:
        if _thread is None:
            _thread = KeeperThread()
        return _thread


def keeper_in_thread() -> Keeper:
    """Return the keeper that has a thread of its own."""
    return keeper_thread().keeper


def _after_fork_in_child() -> None:
    global _thread
    leave_to_parent(_thread)
    _thread = None


at_fork(after_in_child=_after_fork_in_child)
