"""Workers that wait in vain, are cancelled or interrupted; and one that keeps their row busy."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import ClassVar

from dblock import Lease, Locks
from dblock.aio import AsyncLocks
from tests.aio.support import async_url

from .history import Recorder
from .plan import Plan
from .recorded import TIMEOUTS, acquire, begin, got, outcome
from .role import Role

THREADS, TASKS = 4, 4


class Leaver(Role):
    """Threads that wait too short, tasks that are cancelled, and a wait that is interrupted.

    The first of them has the names, and renews them all the time: whoever leaves finds a row that
    is just being committed.
    """

    #: Seconds: how long they wait, at least and at most; and how long they hold what they get.
    waits: ClassVar[tuple[float, float]] = 0.05, 0.6
    longest: ClassVar[float] = 0.02
    #: Whether their leases are renewed.
    renews: ClassVar[bool] = False

    def __init__(self, plan: Plan, recorder: Recorder, locks: Locks) -> None:
        super().__init__(plan, recorder, locks)
        signal.signal(signal.SIGALRM, _interrupt)
        # As many as there are lines in a process: each is one for its names and its way of waiting.
        self._fresh = [Locks(plan.url, timeouts=TIMEOUTS) for _ in range(THREADS)]

    def section(self) -> None:
        """Work until it is calm; then wait for that to end."""
        if self._plan.calm:
            time.sleep(0.01)
        elif self._plan.place == 1:
            self._together(*(partial(self._holds, name) for name in self._plan.names))
        else:
            vain = (partial(self._waits_in_vain, locks) for locks in self._fresh)
            self._together(self._cancels, *vain, meanwhile=self._is_interrupted)

    def _together(
        self, *functions: Callable[[], None], meanwhile: Callable[[], None] | None = None
    ) -> None:
        threads = [threading.Thread(target=function) for function in functions]
        for thread in threads:
            thread.start()
        while meanwhile is not None and not self._over:
            meanwhile()
        for thread in threads:
            thread.join()

    def _holds(self, name: str) -> None:
        lease = self._locks.lease(name, ttl=self._plan.ttl, wait=5 * self._plan.ttl, renew=False)
        hold = acquire(self._recorder, lease)
        if hold is not None:
            while not self._over and hold.lease.held:
                hold.renew()
            hold.release()

    @property
    def _over(self) -> bool:
        return self._plan.calm or self._plan.stopped

    def _lease(self, locks: Locks) -> Lease:
        return locks.lease(
            self._chance.choice(self._plan.names),
            ttl=self._plan.ttl,
            wait=self._chance.uniform(*self.waits),
            renew=self.renews,
        )

    def _waits_in_vain(self, locks: Locks) -> None:
        while not self._over:
            hold = acquire(self._recorder, self._lease(locks), renewing=self.renews)
            if hold is not None:
                time.sleep(self._chance.uniform(0, self.longest))
                hold.release()

    def _is_interrupted(self) -> None:
        lease = self._lease(self._locks)
        operation = begin(self._recorder, lease, renewing=self.renews)
        try:
            with outcome(operation, nothing_changed=True):
                signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(*self.waits))
                acquired = lease.acquire()
                signal.setitimer(signal.ITIMER_REAL, 0)
                if acquired:
                    got(self._recorder, operation, lease).release()
                else:
                    operation.tell("failed", error="NotAcquired")
        except KeyboardInterrupt:
            operation.tell("unknown", error="KeyboardInterrupt")
            if lease.held:  # it came when that was done
                lease.release()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _cancels(self) -> None:
        asyncio.run(self._in_a_loop())

    async def _in_a_loop(self) -> None:
        async with AsyncLocks(async_url(self._plan.url), timeouts=TIMEOUTS) as locks:
            await asyncio.gather(*(self._is_cancelled(locks) for _ in range(TASKS)))

    async def _is_cancelled(self, locks: AsyncLocks) -> None:
        while not self._over:
            name, wait = self._chance.choice(self._plan.names), self._chance.uniform(*self.waits)
            longer = 2 * self.waits[1]
            lease = locks.lease(name, ttl=self._plan.ttl, wait=longer, renew=self.renews)
            operation = begin(self._recorder, lease.sync, renewing=self.renews)
            with outcome(operation, nothing_changed=True):
                try:
                    acquired = await asyncio.wait_for(lease.acquire(), wait)
                except TimeoutError:
                    operation.tell("unknown", error="CancelledError")
                    continue
                if not acquired:
                    operation.tell("failed", error="NotAcquired")
                    continue
                release = got(self._recorder, operation, lease.sync).begin("release")
                with outcome(release):
                    await lease.release()
                    release.tell("ok")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
