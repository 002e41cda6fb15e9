"""The local line: one of a process's waiters is the first, and who leaves wakes the next."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from dblock.io.local_queue import LocalQueue, LocalWaiter

from .exploring import scenario
from .scheduler import Run
from .standard import RunRuntime

LINE = "name"
WAIT = 5.0


class Line:
    """A line whose first does something that takes a while. No database has a part in it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        nothing = cast(Any, None)
        self.local_queue = LocalQueue(nothing, nothing, RunRuntime(run))
        self._inside = 0
        self.been: list[str] = []

    def be_first(self, name: str, waiter: LocalWaiter, seconds: float | None = None) -> None:
        """Wait to be the first, and be it."""
        while not waiter.stand(seconds)[0]:
            pass
        self._inside += 1
        self._run.expect(self._inside == 1, "two are the first")
        self._run.pause("first")
        self.been.append(name)
        self._inside -= 1

    def visit(self, name: str, seconds: float | None = None) -> None:
        waiter = self.local_queue.waiter(LINE)
        try:
            self.be_first(name, waiter, seconds)
        finally:
            waiter.leave()

    def check(self, *visitors: str) -> None:
        assert sorted(self.been) == sorted(visitors), self.been
        assert self.local_queue.waiter(LINE).stand(0)[0], "somebody stands in line who is not there"


@scenario(LocalQueue, LocalWaiter, preemptions=1)
def three_in_line(run: Run) -> None:
    """Each is the first once, and nobody waits for longer than it has to."""
    line = Line(run)
    for name in ("one", "two", "three"):
        run.start(name, partial(line.visit, name), alike=line)
    run.go()
    line.check("one", "two", "three")


@scenario(LocalQueue, LocalWaiter)
def one_leaves_as_one_comes(run: Run) -> None:
    line = Line(run)
    for name in ("one", "two"):
        run.start(name, partial(line.visit, name), alike=line)
    run.go()
    line.check("one", "two")


@scenario(LocalQueue, LocalWaiter)
def one_gives_up(run: Run) -> None:
    """Whoever waits no longer is in nobody's way."""
    line = Line(run)

    def give_up() -> None:
        waiter = line.local_queue.waiter(LINE)
        try:
            waiter.stand(WAIT)
        finally:
            waiter.leave()

    run.start("one", partial(line.visit, "one"))
    run.start("impatient", give_up)
    run.go()
    line.check("one")


@scenario(LocalQueue, LocalWaiter, preemptions=1)
def one_is_interrupted(run: Run) -> None:
    """Who is gone without leaving holds the others up no longer than they wait at a time."""
    line = Line(run)

    def vanish() -> None:
        line.local_queue.waiter(LINE).stand(0)

    run.start("interrupted", vanish)
    for name in ("one", "two"):
        run.start(name, partial(line.visit, name, WAIT), alike=line)
    began = run.now
    run.go()
    line.check("one", "two")
    assert run.now <= began + 2 * WAIT


@scenario(LocalQueue, LocalWaiter)
def an_alarm(run: Run) -> None:
    """It reaches who stands in line, wherever that is just then; and it is over then."""
    line = Line(run)
    alarmed: list[str] = []

    def raise_alarm() -> None:
        waiter = line.local_queue.waiter(LINE)
        try:
            line.be_first("first", waiter)
            run.wait(lambda: line.local_queue.lengths() == [2])
            waiter.alarm()
            run.wait(lambda: bool(alarmed))  # it stays the first until that was heard
        finally:
            waiter.leave()

    def hear() -> None:
        run.wait(lambda: bool(line.been))
        waiter = line.local_queue.waiter(LINE)
        try:
            assert waiter.stand(None) == (False, True)
            alarmed.append("other")
            assert waiter.stand(None) == (True, False)
        finally:
            waiter.leave()

    run.start("first", raise_alarm)
    run.start("other", hear)
    run.go()
    line.check("first")
