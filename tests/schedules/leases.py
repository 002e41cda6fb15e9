"""Leases in a real SQLite database. Its clock is the run's, and so is the keeper."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine

from dblock import Danger, Lease, LockLost, Locks
from dblock.holding.keeper import Keeper
from dblock.io.connecting import OwnConnection
from dblock.schema import upgrade

from .scheduler import Run
from .standard import RunRuntime

_numbers = itertools.count()
_directory = tempfile.TemporaryDirectory(prefix="schedules-")
#: The idle connections, handed from run to run: to make one takes longer than a run.
_idle: deque[OwnConnection] = deque()


@cache
def _engine() -> Engine:
    url = f"sqlite:///{Path(_directory.name) / 'locks.db'}"
    upgrade(url)
    engine = create_engine(url)
    event.listen(engine, "connect", _set_clock)
    return engine


#: The run whose time the database has.
_runs: list[Run] = []


def _set_clock(connection: sqlite3.Connection, record: object) -> None:
    """Let the database have the time of the run."""
    own = sqlite3.connect(":memory:", check_same_thread=False)

    def of(function: str) -> Callable[..., str | float]:
        def told(*given: str) -> str | float:
            moments: list[str] = []
            for one in given:
                moments += [f"{_runs[-1].now:.3f}", "unixepoch"] if one == "now" else [one]
            places = ", ".join("?" * len(moments))
            (moment,) = own.execute(f"SELECT {function}({places})", moments).fetchone()
            return cast(str | float, moment)

        return told

    for function in ("strftime", "julianday"):
        connection.create_function(function, -1, of(function))


class LocksHere(Locks):
    """Those of the threads of a run: their leases are renewed by a keeper of that run."""

    def __init__(self, run: Run) -> None:
        keeper = Keeper(RunRuntime(run))
        self._runtime = lambda: RunRuntime(run)
        self._keeper = lambda: keeper
        super().__init__(_engine())


class Leases:
    """The leases of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        _runs[:] = [run]
        self.locks = LocksHere(run)
        database = self.locks._database
        self.keeper = database.keeper()
        #: What the holders were told, in order.
        self.told: list[Danger | LockLost] = []
        database.connections._idle = _idle

    def lease(self, ttl: float = 30.0, *, renew: bool = True) -> Lease:
        """A lease on a name that no other run has."""
        told = self.told.append
        return self.locks.lease(
            f"{next(_numbers)}", ttl=ttl, wait=0, renew=renew, on_danger=told, on_lost=told
        )

    def held(self, age: float, ttl: float = 30.0, *, renew: bool = True) -> Lease:
        """A lease that was taken so long ago, and has not been looked at since."""
        lease = self.lease(ttl, renew=renew)
        lease.acquire()
        self._run.now += age
        return lease

    def unkept(self) -> Lease:
        """A lease that was just taken, and is not looked at by the keeper."""
        lease = self.held(0.0)
        hold = lease._current()
        assert hold is not None
        self.keeper.drop(hold)
        self._run.threads.clear()  # the keeper's: it is not to begin
        return lease

    def idle(self, moment: float) -> None:
        """Insist that nobody sleeps while there is something to do."""
        for reference in list(self.keeper._kept):
            hold = reference()
            if hold is not None and hold.loss is None and not hold.ended:
                self._run.expect(
                    moment <= hold.schedule.wake,
                    f"{moment - self._run.now:g} s pass, with something to do in "
                    f"{hold.schedule.wake - self._run.now:g} s",
                )
