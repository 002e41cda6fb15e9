"""The worker: whoever wakes it has its work done after that, by one thread at a time."""

from __future__ import annotations

import math

from dblock.holding.worker import Worker

from .exploring import scenario
from .scheduler import Run

LINGER = 5.0


class Work:
    """What a worker does: it takes note of all that was asked for."""

    def __init__(self, run: Run, *pauses: float) -> None:
        self._run = run
        self._pauses = list(pauses)
        self._working = False
        self._due = math.inf
        self.asked = self.seen = self.ends = 0
        self.worker = Worker("worker", self.work, self.end, linger=LINGER)

    def ask(self) -> None:
        self.asked += 1
        self.worker.wake()

    def work(self) -> float:
        self._run.expect(not self._working, "two threads do the work of one")
        self._run.expect(self._run.now <= self._due, "it does not work in its own time")
        self._working = True
        self.seen = self.asked
        self._run.pause("working")
        self._working = False
        pause = self._pauses.pop(0) if self._pauses else math.inf
        self._due = self._run.now + pause
        return pause

    def end(self) -> None:
        self._run.expect(not self._working, "it ends in the middle of its work")
        self.ends += 1

    def check(self) -> None:
        assert self.seen == self.asked, "a wake was lost"
        assert self._due == math.inf, "it has not done all its work"
        assert not self.worker.running, "it goes on with nothing to do"
        assert self.ends


@scenario(Worker, early=False)
def wakes(run: Run) -> None:
    """Two wake it at the same time, and it works at once."""
    work = Work(run)
    began = run.now
    for name in ("one", "two"):
        run.start(name, work.ask, alike=work)
    run.go()
    work.check()
    assert run.now == began + LINGER, "a wake was heard late"


@scenario(Worker, preemptions=3)
def wakes_at_its_end(run: Run) -> None:
    """It is woken in the moment in which nobody has called for a while."""
    work = Work(run)

    def ask() -> None:
        work.ask()
        run.sleep(LINGER)
        work.ask()

    run.start("one", ask)
    run.go()
    work.check()


@scenario(Worker, early=False)
def has_its_own_time(run: Run) -> None:
    """It works when it said it would, and when it is woken before."""
    work = Work(run, 2.0, 2.0, 2.0, 2.0)

    def ask() -> None:
        work.ask()
        run.sleep(1.0)
        work.ask()

    run.start("one", ask)
    run.go()
    work.check()
