"""Workers that wait in many threads or tasks at once, with Locks that nobody has used before."""

from __future__ import annotations

import asyncio
import threading
import time

from dblock import Locks
from dblock.aio import AsyncLocks
from tests.aio.support import async_url

from .recorded import TIMEOUTS, acquire, begin, got, outcome
from .role import Role

HELD = 0.15  # seconds for which the names are held at least, while others come to wait for them


class Fresh(Role):
    """Holds its names while as many threads, or tasks, come to wait for them, one each."""

    def section(self) -> None:
        held = []
        for name in self._plan.own_names:
            lease = self._locks.lease(name, ttl=self._plan.ttl, wait=0)
            hold = acquire(self._recorder, lease, renewing=True)
            if hold is not None:
                held.append(hold)
        wait = self._threads if self._chance.random() < 0.5 else self._tasks
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(self._chance.uniform(HELD, 4 * HELD))
        for hold in held:
            hold.release()
        waiting.join()

    def _threads(self) -> None:
        with Locks(self._plan.url, timeouts=TIMEOUTS) as fresh:
            threads = [
                threading.Thread(target=self._thread, args=(fresh, name))
                for name in self._plan.own_names
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _thread(self, locks: Locks, name: str) -> None:
        lease = locks.lease(name, ttl=self._plan.ttl, wait=10 * self._plan.ttl)
        hold = acquire(self._recorder, lease, renewing=True)
        if hold is not None:
            hold.release()

    def _tasks(self) -> None:
        asyncio.run(self._in_a_loop())

    async def _in_a_loop(self) -> None:
        async with AsyncLocks(async_url(self._plan.url), timeouts=TIMEOUTS) as fresh:
            await asyncio.gather(*(self._task(fresh, name) for name in self._plan.own_names))

    async def _task(self, locks: AsyncLocks, name: str) -> None:
        lease = locks.lease(name, ttl=self._plan.ttl, wait=10 * self._plan.ttl)
        operation = begin(self._recorder, lease.sync, renewing=True)
        with outcome(operation, nothing_changed=True):
            if await lease.acquire():
                release = got(self._recorder, operation, lease.sync).begin("release")
                with outcome(release):
                    await lease.release()
                    release.tell("ok")
            else:
                operation.tell("failed", error="NotAcquired")
