"""The local line: one of a process's waiters is the first, and who leaves wakes the next."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from dblock.waiting import Room, Spot

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
        self.room = Room(nothing, nothing, RunRuntime(run))
        self._inside = 0
        self.been: list[str] = []

    def be_first(self, name: str, spot: Spot, seconds: float | None = None) -> None:
        """Wait to be the first, and be it."""
        while not spot.stand(seconds)[0]:
            pass
        self._inside += 1
        self._run.insist(self._inside == 1, "two are the first")
        self._run.pause("first")
        self.been.append(name)
        self._inside -= 1

    def visit(self, name: str, seconds: float | None = None) -> None:
        spot = self.room.spot(LINE)
        try:
            self.be_first(name, spot, seconds)
        finally:
            spot.leave()

    def check(self, *visitors: str) -> None:
        assert sorted(self.been) == sorted(visitors), self.been
        assert self.room.spot(LINE).stand(0)[0], "somebody stands in line who is not there"


@scenario(Room, Spot, preemptions=1)
def three_in_line(run: Run) -> None:
    """Each is the first once, and nobody waits for longer than it has to."""
    line = Line(run)
    for name in ("one", "two", "three"):
        run.start(name, partial(line.visit, name), alike=line)
    run.go()
    line.check("one", "two", "three")


@scenario(Room, Spot)
def one_leaves_as_one_comes(run: Run) -> None:
    line = Line(run)
    for name in ("one", "two"):
        run.start(name, partial(line.visit, name), alike=line)
    run.go()
    line.check("one", "two")


@scenario(Room, Spot)
def one_gives_up(run: Run) -> None:
    """Whoever waits no longer is in nobody's way."""
    line = Line(run)

    def give_up() -> None:
        spot = line.room.spot(LINE)
        try:
            spot.stand(WAIT)
        finally:
            spot.leave()

    run.start("one", partial(line.visit, "one"))
    run.start("impatient", give_up)
    run.go()
    line.check("one")


@scenario(Room, Spot, preemptions=1)
def one_is_interrupted(run: Run) -> None:
    """Who is gone without leaving holds the others up no longer than they wait at a time."""
    line = Line(run)

    def vanish() -> None:
        line.room.spot(LINE).stand(0)

    run.start("interrupted", vanish)
    for name in ("one", "two"):
        run.start(name, partial(line.visit, name, WAIT), alike=line)
    began = run.now
    run.go()
    line.check("one", "two")
    assert run.now <= began + 2 * WAIT


@scenario(Room, Spot)
def an_alarm(run: Run) -> None:
    """It reaches who stands in line, wherever that is just then; and it is over then."""
    line = Line(run)
    alarmed: list[str] = []

    def raise_alarm() -> None:
        spot = line.room.spot(LINE)
        try:
            line.be_first("first", spot)
            run.wait(lambda: line.room.lengths() == [2])
            spot.alarm()
            run.wait(lambda: bool(alarmed))  # it stays the first until that was heard
        finally:
            spot.leave()

    def hear() -> None:
        run.wait(lambda: bool(line.been))
        spot = line.room.spot(LINE)
        try:
            assert spot.stand(None) == (False, True)
            alarmed.append("other")
            assert spot.stand(None) == (True, False)
        finally:
            spot.leave()

    run.start("first", raise_alarm)
    run.start("other", hear)
    run.go()
    line.check("first")
