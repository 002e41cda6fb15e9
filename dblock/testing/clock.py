"""Time in a test: it stands still until it is moved, and then all that is due is done."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

from ..io.runtime import Runtime

#: Seconds between two looks of a thread that really waits.
LOOK = 0.005


class Clock:
    """The time of one test, for holders and for the database.

    It is moved by :meth:`move`, and by those who wait, as if they had: see :meth:`wait`.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._began = datetime.now(UTC).replace(tzinfo=None)
        self._lock = threading.RLock()
        self._moving = False
        self._waited = 0.0
        #: More than that nobody waits in a test, in seconds, unless for what will never be.
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
        """Return the place for the workers of one more process."""
        made = Staff()
        self._staffs.append(made)
        return made

    def at(self, moment: float, call: Callable[[], None]) -> None:
        """Have something called when it is so late."""
        heapq.heappush(self._later, (moment, next(self._numbers), call))

    def move(self, to: float, *, paused: Staff | None = None) -> None:
        """Let it become so late: what is due on the way is done, each when it is due.

        Those who are ``paused`` do what they have missed at the end.
        """
        with self._lock:
            if self._moving:  # by what is done on the way
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
        """Wait without waiting: nobody is there for whom it would be done."""
        self._waited += seconds
        if self._waited > self.longest:
            raise RuntimeError(
                f"this test has waited for {self.longest:g} s of its clock: nobody will ever give "
                "back what it waits for. Give the wait an end, or the other holder "
                "(held_by_another(name, seconds=...))"
            )
        self.move(self._now + seconds)

    def really_wait(
        self, done: Callable[[], object], pause: Callable[[float], object], seconds: float | None
    ) -> None:
        """Wait for another thread or task of the test, while time goes by as usual."""
        start, began = self._now, Runtime.now()
        until = math.inf if seconds is None else start + seconds
        while self._now < until and not done():
            pause(min(until - self._now, LOOK))
            self.move(min(until, start + Runtime.now() - began))


class Staff:
    """The workers of one process's keeper, which have no threads: the clock has them work."""

    def __init__(self) -> None:
        self._busy: dict[Worker, None] = {}
        #: They ended with their process.
        self.dead = False

    def employ(
        self, name: str, work: Callable[[], float], end: Callable[[], object] = lambda: None
    ) -> Worker:
        """Return a worker; as a :class:`~dblock.holding.keeper.WorkerMaker` does."""
        return Worker(self, work, end)

    def wake(self, worker: Worker) -> None:
        self._busy[worker] = None

    def rest(self, worker: Worker) -> None:
        self._busy.pop(worker, None)

    @property
    def due(self) -> float:
        """When there is first something to be done."""
        if self.dead:
            return math.inf
        return min((worker.due for worker in list(self._busy)), default=math.inf)

    def work(self, now: float) -> None:
        """Do what is due."""
        for worker in list(self._busy):
            if worker.due <= now and not self.dead:
                worker.work(now)


class Worker:
    """Does something when woken, or when its own time has come: as dblock.holding.worker.Worker."""

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
        self.due = min(self.due, now + pause)  # it may have been woken meanwhile
        if self.due == math.inf:
            self.running = False
            self._staff.rest(self)
            self._end()
