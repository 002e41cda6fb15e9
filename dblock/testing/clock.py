"""The time of a test. It stands still until a caller moves it; then everything due happens."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

from ..io.runtime import Runtime

#: Seconds between two checks of a thread that really waits.
LOOK = 0.005


class Clock:
    """The time of one test, for holders and for the database.

    :meth:`move` moves it. So does every caller that waits: see :meth:`wait`.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._began = datetime.now(UTC).replace(tzinfo=None)
        self._lock = threading.RLock()
        self._moving = False
        self._waited = 0.0
        #: Seconds. A test that waits for longer waits for an event that never happens.
        self.longest = 3600.0
        self._staffs: list[Staff] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def now(self) -> float:
        """Return the holders' clock."""
        return self._now

    def stamp(self) -> str:
        """Return the database's clock, as SQLite writes a moment."""
        moment = self._began + timedelta(seconds=self._now)
        return moment.isoformat(" ", "milliseconds")

    def staff(self) -> Staff:
        """Return a :class:`Staff` for one more process."""
        made = Staff()
        self._staffs.append(made)
        return made

    def at(self, moment: float, call: Callable[[], None]) -> None:
        """Call a function at a moment."""
        heapq.heappush(self._later, (moment, next(self._numbers), call))

    def move(self, to: float, *, paused: Staff | None = None) -> None:
        """Move the clock to a moment. On the way every due event happens at its own time.

        The ``paused`` staff does its missed work at the end.
        """
        with self._lock:
            if self._moving:  # an event on the way has called it
                self._now = max(self._now, to)
                return
            self._moving = True
            try:
                while (moment := self._due(paused)) <= to:
                    self._now = max(self._now, moment)
                    self._do(paused)
                self._now = max(self._now, to)
                while self._due(None) <= self._now:
                    self._do(None)
            finally:
                self._moving = False

    def _due(self, paused: Staff | None) -> float:
        moments = [staff.due for staff in self._staffs if staff is not paused]
        return min([*moments, self._later[0][0] if self._later else math.inf])

    def _do(self, paused: Staff | None) -> None:
        for staff in list(self._staffs):
            if staff is not paused:
                staff.work(self._now)
        while self._later and self._later[0][0] <= self._now:
            heapq.heappop(self._later)[2]()

    def wait(self, seconds: float) -> None:
        """Move the clock instead of waiting, because no other caller could act meanwhile."""
        self._waited += seconds
        if self._waited > self.longest:
            raise RuntimeError(
                f"this test has waited for {self.longest:g} s of its own time, and no process "
                "will release the lock that it waits for: limit the wait, or let the other holder "
                "end with held_by_another(name, seconds=...)"
            )
        self.move(self._now + seconds)

    def really_wait(
        self, done: Callable[[], object], pause: Callable[[float], object], seconds: float | None
    ) -> None:
        """Wait for another thread or task of the test. Time passes as usual."""
        start, began = self._now, Runtime.now()
        until = math.inf if seconds is None else start + seconds
        while self._now < until and not done():
            pause(min(until - self._now, LOOK))
            self.move(min(until, start + Runtime.now() - began))


class Staff:
    """The workers of one process's keeper. They have no threads: the clock calls them."""

    def __init__(self) -> None:
        self._busy: dict[SimulatedWorker, None] = {}
        #: Whether their process has ended.
        self.dead = False

    def employ(
        self, name: str, work: Callable[[], float], end: Callable[[], object] = lambda: None
    ) -> SimulatedWorker:
        """Return a worker, as a :class:`~dblock.holding.keeper.WorkerMaker` does."""
        return SimulatedWorker(self, work, end)

    def wake(self, worker: SimulatedWorker) -> None:
        self._busy[worker] = None

    def rest(self, worker: SimulatedWorker) -> None:
        self._busy.pop(worker, None)

    @property
    def due(self) -> float:
        """The time of the next work."""
        if self.dead:
            return math.inf
        return min((worker.due for worker in list(self._busy)), default=math.inf)

    def work(self, now: float) -> None:
        """Do the work that is due."""
        for worker in list(self._busy):
            if worker.due <= now and not self.dead:
                worker.work(now)


class SimulatedWorker:
    """Works when it is woken or its own time has come, as dblock.holding.worker.Worker does."""

    def __init__(self, staff: Staff, work: Callable[[], float], end: Callable[[], object]) -> None:
        self._staff = staff
        self._work = work
        self._end = end
        self.due = math.inf
        self.running = False

    def wake(self) -> None:
        self.due = -math.inf
        self.running = True
        self._staff.wake(self)

    def work(self, now: float) -> None:
        self.due = math.inf
        pause = self._work()
        self.due = min(self.due, now + pause)  # a call of `wake` may have set an earlier time
        if self.due == math.inf:
            self.running = False
            self._staff.rest(self)
            self._end()
