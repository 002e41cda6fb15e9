"""Workers of a quorum: believers in threads and in the tasks of a loop, and a thread in a hurry."""

from __future__ import annotations

import asyncio
import threading

from dblock import Locks, Quorum
from dblock.aio import AsyncQuorum
from tests.aio.support import async_url

from .believing import LONG, SHORT, Believer
from .history import Recorder, now
from .plan import Plan
from .recorded import TIMEOUTS, acquire, begin, got, outcome

THREADS, TASKS = 2, 2
SECTION = 5.0  # seconds, after which the loop and its quorum are new


class Voter(Believer):
    """Holds names of a quorum, in several threads and tasks at once."""

    def __init__(self, plan: Plan, recorder: Recorder, locks: Locks) -> None:
        super().__init__(plan, recorder, locks)
        self._quorum = Quorum(plan.members, timeouts=TIMEOUTS)

    def section(self) -> None:
        until = now() + SECTION
        threads = [threading.Thread(target=self._loop, args=(until,)) for _ in range(THREADS)]
        threads.append(threading.Thread(target=lambda: asyncio.run(self._tasks(until))))
        threads.append(threading.Thread(target=self._hurry, args=(until,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _goes_on(self, until: float) -> bool:
        return now() < until and not self._plan.stopped

    def _loop(self, until: float) -> None:
        while self._goes_on(until):
            self._hold(self._quorum)

    def _hurry(self, until: float) -> None:
        """Take names without a wait and release them at once, as fast as that goes."""
        while self._goes_on(until):
            lease = self._quorum.lease(
                self._chance.choice(self._plan.names), ttl=self._plan.ttl, wait=0
            )
            hold = acquire(self._recorder, lease)
            if hold is not None:
                hold.release()

    async def _tasks(self, until: float) -> None:
        urls = [async_url(url) for url in self._plan.members]
        async with AsyncQuorum(urls, timeouts=TIMEOUTS) as quorum:
            await asyncio.gather(*(self._task(quorum, until) for _ in range(TASKS)))

    async def _task(self, quorum: AsyncQuorum, until: float) -> None:
        while self._goes_on(until):
            await self._hold_in_a_task(quorum)

    async def _hold_in_a_task(self, quorum: AsyncQuorum) -> None:
        """Hold a name as the threads do."""
        chance, ttl = self._chance, self._plan.ttl
        renewing = chance.random() < 0.3
        wait = 0.0 if chance.random() < 0.5 else chance.random() * ttl
        lease = quorum.lease(chance.choice(self._plan.names), ttl=ttl, wait=wait, renew=renewing)
        operation, hold = begin(self._recorder, lease.sync, renewing=renewing), None
        with outcome(operation, nothing_changed=True):
            if await lease.acquire():
                hold = got(self._recorder, operation, lease.sync)
            else:
                operation.tell("failed", error="NotAcquired")
        if hold is None:
            await asyncio.sleep(chance.uniform(0, 0.02) * ttl)
            return
        until = now() + ttl * (chance.uniform(0, SHORT) if renewing else LONG * chance.random())
        while hold.look() and self._goes_on(until):
            await asyncio.sleep(0.02 * ttl)
        release = hold.begin("release")
        with outcome(release):
            await lease.release()
            release.tell("ok")
