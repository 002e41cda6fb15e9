"""dblock's own connections: as many as there may be, and none left open that nobody has.

They are SQLite's, in memory, and it is counted how many are open.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any, ClassVar

from sqlalchemy import create_engine

from dblock.dialects.sqlite.adapter import SQLite3
from dblock.io.connecting import Connector, OwnConnection
from dblock.io.connections import Connections, Permits
from dblock.policy import Timeouts
from dblock.protocol.faults import Fault, StatementError

from .exploring import scenario
from .scheduler import Run
from .standard import RunRuntime

TIMEOUTS = Timeouts()


class Counted(sqlite3.Connection):
    """A connection of which it is known whether it is open."""

    open: ClassVar[set[sqlite3.Connection]] = set()
    closed_twice: ClassVar[int] = 0

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self.open.add(self)

    def __del__(self) -> None:
        super().close()  # what a run leaves open is not warned of

    def close(self) -> None:
        Counted.closed_twice += self not in self.open
        self.open.discard(self)
        super().close()


_engine = create_engine("sqlite://", connect_args={"factory": Counted, "check_same_thread": False})


def some(run: Run, adapter: SQLite3 | None = None, **how: Any) -> Connections:
    """Connections that are new, and none that were there before."""
    Counted.open.clear()
    Counted.closed_twice = 0
    return Connections(
        Connector(_engine, adapter or SQLite3(TIMEOUTS)), runtime=RunRuntime(run), **how
    )


class Using:
    """How many are in use at once."""

    def __init__(self, run: Run, connections: Connections) -> None:
        self._run = run
        self._connections = connections
        self.at_once = self.most = 0

    def use(self, end: Callable[[OwnConnection], None] | None = None) -> None:
        """Take one, use it, and give it back, or what else is to be done with it."""
        connection = self._connections.take()
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self._run.expect(connection.driver in Counted.open, "it was closed before it was taken")
        self._run.pause("using")
        self.at_once -= 1
        (end or self._connections.give)(connection)


@scenario(Connections, Permits, early=False)
def two_turns(run: Run) -> None:
    """There is one for two, and each has its turn."""
    connections = some(run, limit=1)
    using = Using(run, connections)
    for name in ("one", "two"):
        run.start(name, using.use, alike=using)
    run.go()
    assert using.most == 1
    assert len(Counted.open) == 1, "more are kept than were ever in use"
    turns_are_whole(connections, 1)


@scenario(Connections, Permits, preemptions=1, early=False)
def three_turns(run: Run) -> None:
    """There are two for three, one of which is dropped."""
    connections = some(run, limit=2)
    using = Using(run, connections)
    for name in ("one", "two"):
        run.start(name, using.use, alike=using)
    run.start("three", partial(using.use, connections.drop))
    run.go()
    assert using.most <= 2
    assert {one.driver for one in connections._idle} == Counted.open
    turns_are_whole(connections, 2)


@scenario(Connections, Permits, early=False)
def one_cannot_be_made(run: Run) -> None:
    """A turn that came to nothing is there for the next."""
    failures = [StatementError(Fault.UNREACHABLE, "as if")]

    def check(connections: Connections, connection: OwnConnection) -> None:
        if failures:
            raise failures.pop()

    connections = some(run, limit=1, check=check)
    using = Using(run, connections)
    failed = []

    def use() -> None:
        try:
            using.use()
        except StatementError as failure:
            failed.append(failure)

    for name in ("one", "two"):
        run.start(name, use, alike=using)
    run.go()
    assert len(failed) == 1
    assert len(Counted.open) == 1
    turns_are_whole(connections, 1)


@scenario(Connections)
def one_waits_too_long(run: Run) -> None:
    """Whoever gives up has no turn, and takes none from the others."""
    connections = some(run, limit=1)
    using = Using(run, connections)
    late = []

    def use() -> None:
        try:
            using.use(give_late)
        except StatementError as failure:
            late.append(failure)

    def give_late(connection: OwnConnection) -> None:
        run.sleep(TIMEOUTS.socket)
        connections.give(connection)

    for name in ("one", "two"):
        run.start(name, use, alike=using)
    run.go()
    assert len(late) <= 1
    turns_are_whole(connections, 1)
    assert len(Counted.open) == 1


@scenario(Connections)
def cleared_while_used(run: Run) -> None:
    """Those that were there when one was found broken are used no more."""
    connections = some(run)
    using = Using(run, connections)
    connections.give(connections.take())
    old = set(Counted.open)
    run.start("one", using.use)
    run.start("other", connections.clear)
    run.go()
    assert not old & Counted.open, "one that was there before is kept"
    assert {one.driver for one in connections._idle} == Counted.open


@scenario(Connections, early=False)
def closed_while_used(run: Run) -> None:
    """None stays open."""
    connections = some(run, limit=1)
    using = Using(run, connections)
    connections.give(connections.take())

    def use() -> None:
        with contextlib.suppress(ValueError):  # it came too late
            using.use()

    for name in ("one", "two"):
        run.start(name, use, alike=using)
    run.start("other", connections.close)
    run.go()
    assert not Counted.open, "one stays open"


@scenario(Connections)
def the_last_is_left(run: Run) -> None:
    """Where a server takes no more, the idle ones of others are used, but for one."""

    def refuse(connections: Connections, connection: OwnConnection) -> None:
        raise StatementError(Fault.UNREACHABLE, "too many connections, as if")

    renewing = some(run)
    for connection in [renewing.take() for _ in range(2)]:
        renewing.give(connection)
    taken = list(renewing._idle)
    holding = Connections(
        renewing.connector, runtime=RunRuntime(run), check=refuse, beside=renewing
    )
    got: list[OwnConnection] = []

    def take() -> None:
        with contextlib.suppress(StatementError):
            got.append(holding.take())

    for name in ("one", "two"):
        run.start(name, take, alike=renewing)
    run.go()
    assert renewing._idle, "leases have none to be renewed by"
    assert sorted(map(id, [*renewing._idle, *got])) == sorted(map(id, taken))


def turns_are_whole(connections: Connections, limit: int) -> None:
    """No turn was lost, none is there twice, and nothing was closed twice."""
    assert Counted.closed_twice == 0
    turns = connections._permits.usual
    assert turns is not None
    found = 0
    with contextlib.suppress(Empty):
        while True:
            turns.get(block=False)
            found += 1
    assert found == limit, f"{found} turns of {limit} are left"
