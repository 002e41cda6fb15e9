"""The listener: whoever waits with a ticket is woken by the call for it, whoever reads just then.

The database that calls is a stand-in, which does with a socket what PostgreSQL does: it calls those
who listen, and nobody else. What it is asked besides that is nothing that matters here.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import NullPool

from dblock.dialects.adapter import ServerSession
from dblock.dialects.sqlite.adapter import SQLite3
from dblock.io.connecting import Connector
from dblock.io.connections import Connections
from dblock.io.listener import Listener
from dblock.io.local_queue import LocalQueue
from dblock.io.notifier import Notifier, Subscription
from dblock.policy import Timeouts
from dblock.protocol.faults import Fault
from dblock.protocol.state import Passed

from .exploring import scenario
from .scheduler import Run
from .standard import RunRuntime

SERVER = "server"
WIDTH = 24  # of a ticket on the wire
LONG, SHORT = 100.0, 10.0
TOPIC = "topic".ljust(WIDTH)


class Wire:
    """A connection to the database that calls."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.observes = False
        self.far, self.near = socket.socketpair()
        self.near.setblocking(False)
        self.closed = False

    def fileno(self) -> int:
        return self.near.fileno()

    def cut(self) -> None:
        self.far.close()

    def close(self) -> None:
        assert not self.closed, "it is closed twice"
        self.closed = True
        self.near.close()
        self.far.close()


class Database:
    """The far end of all connections."""

    def __init__(self) -> None:
        self.wires: list[Wire] = []
        self._numbers = itertools.count(1)

    def connect(self) -> Wire:
        self.wires.append(Wire(f"{next(self._numbers):08x}"))
        return self.wires[-1]

    def call(self, ticket: str) -> None:
        """Subscription a ticket, if anybody listens for it."""
        for wire in self.wires:
            if not wire.closed and wire.far.fileno() >= 0 and ticket.startswith(wire.channel):
                with contextlib.suppress(BrokenPipeError):  # it has just gone
                    wire.far.send(ticket.ljust(WIDTH).encode())

    def proclaim(self) -> None:
        """Send the topic to all connections that observe."""
        for wire in self.open:
            if wire.observes:
                with contextlib.suppress(BrokenPipeError):  # it has just gone
                    wire.far.send(TOPIC.encode())

    def cut(self) -> None:
        """Cut all connections."""
        for wire in self.wires:
            wire.cut()

    @property
    def open(self) -> list[Wire]:
        return [wire for wire in self.wires if not wire.closed]


class Calling(SQLite3):
    """The adapter of the database that calls."""

    def prepare_connection(self, connection: Any) -> ServerSession:
        return ServerSession(SERVER)

    def listen(
        self,
        connection: Any,
        session: ServerSession,
        token: Callable[[int], str],
        *,
        observes: bool = False,
    ) -> str | None:
        connection.observes = observes
        return cast(str, connection.channel)

    def called(self, connection: Any) -> list[tuple[str, Passed | None]]:
        read = connection.near.recv(100 * WIDTH).decode()
        if not read:
            raise ConnectionResetError("it was cut")
        return [(read[at : at + WIDTH], None) for at in range(0, len(read), WIDTH)]

    def classify(self, error: BaseException) -> Fault | None:
        return Fault.DISCONNECTED if isinstance(error, OSError) else None


class Waiters:
    """Those who wait for calls, and who calls them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.database = Database()
        adapter = Calling(Timeouts())
        pool = NullPool(self.database.connect)  # type: ignore[arg-type] # it is one for us
        engine = cast(Any, SimpleNamespace(pool=pool))
        runtime = RunRuntime(run)
        self.connections = Connections(Connector(engine, adapter), runtime=runtime)
        self.local_queue = LocalQueue(self.connections, adapter, runtime)
        self.queue: dict[str, str] = {}
        #: Who was woken when.
        self.woken: dict[str, float] = {}

    def wait(self, name: str) -> None:
        """Wait until one is called; with another ticket where the first is called no more."""
        waiter = self.local_queue.waiter(name)
        try:
            while True:
                ticket, is_called = waiter.ticket(SERVER, look=True)
                if ticket is None or not is_called:  # nobody listens yet: it would look itself
                    self.queue.pop(name, None)
                    self.woken[name] = self._run.now
                    return
                self.queue[name] = ticket
                if waiter.wait(LONG)[0] and waiter._call is not None and not waiter._call.over:
                    self.woken[name] = self._run.now
                    return
        finally:
            waiter.leave()

    def call(self, *names: str) -> None:
        """Subscription each of them, once it waits; unless it looks itself."""
        for name in names:
            self._run.wait(lambda name=name: name in self.queue or name in self.woken)  # type: ignore[misc]
            if name in self.queue:
                self.database.call(self.queue[name])

    def call_all(self) -> None:
        """Subscription those who wait already."""
        for ticket in self.queue.values():
            self.database.call(ticket)

    def check(self, *names: str) -> None:
        assert set(self.woken) == set(names), f"woken were {self.woken}"
        assert not self.local_queue.notifier._calls
        assert len(self.database.open) <= 1, "more than one connection listens"


LOOKED_AT = (Notifier, Listener, Subscription.hear)


@scenario(*LOOKED_AT, early=False)
def one_is_called(run: Run) -> None:
    """It is woken by its call, not by its clock."""
    waiters = Waiters(run)
    began = run.now
    run.start("one", partial(waiters.wait, "one"))
    run.start("database", partial(waiters.call, "one"))
    run.go()
    waiters.check("one")
    assert run.now == began, "a call was lost"


@scenario(*LOOKED_AT, preemptions=1, early=False)
def two_are_called(run: Run) -> None:
    """Both are woken by their calls, not by their clocks."""
    waiters = Waiters(run)
    began = run.now
    for name in ("one", "two"):
        run.start(name, partial(waiters.wait, name), alike=waiters)
    run.start("database", partial(waiters.call, "one", "two"))
    run.go()
    waiters.check("one", "two")
    assert run.now == began, "a call was lost"


@scenario(*LOOKED_AT, preemptions=1, early=False)
def the_reader_goes_first(run: Run) -> None:
    """The reading is handed on, whenever the other comes."""
    waiters = Waiters(run)
    began = run.now

    def call() -> None:
        waiters.call("one")
        run.wait(lambda: "one" in waiters.woken)
        waiters.call("two")

    run.start("one", partial(waiters.wait, "one"))
    run.start("two", partial(waiters.wait, "two"))
    run.start("database", call)
    run.go()
    waiters.check("one", "two")
    assert run.now == began, "a call was lost"


@scenario(*LOOKED_AT, preemptions=1, early=False)
def the_reader_gives_up(run: Run) -> None:
    """So it is when who reads waits no longer."""
    waiters = Waiters(run)
    began = run.now

    def give_up() -> None:
        waiter = waiters.local_queue.waiter("impatient")
        try:
            if waiter.ticket(SERVER, look=True)[1]:
                waiter.wait(SHORT)
            run.sleep(SHORT)  # it looks itself, which takes its time
        finally:
            waiter.leave()

    def call() -> None:
        run.sleep(SHORT)
        waiters.call("one")

    run.start("impatient", give_up)
    run.start("one", partial(waiters.wait, "one"))
    run.start("database", call)
    run.go()
    waiters.check("one")
    assert waiters.woken["one"] <= began + SHORT, "a call was heard late"


@scenario(*LOOKED_AT, preemptions=1, early=False)
def the_connection_is_lost(run: Run) -> None:
    """All are told, and wait by another connection."""
    waiters = Waiters(run)
    began = run.now

    def lose() -> None:
        run.wait(lambda: len(waiters.queue) + len(waiters.woken) == 2)
        before = set(waiters.queue.values())
        waiters.database.cut()
        run.wait(lambda: before.isdisjoint(waiters.queue.values()))
        waiters.call("one", "two")

    for name in ("one", "two"):
        run.start(name, partial(waiters.wait, name), alike=waiters)
    run.start("database", lose)
    run.go()
    waiters.check("one", "two")
    assert run.now == began, "not all were told"


@scenario(Notifier.ticket, Notifier.disconnect, Listener.connect, preemptions=1, early=False)
def one_observes(run: Run) -> None:
    """It hears the topic, also if another waiter was about to listen for tickets alone."""
    waiters = Waiters(run)
    proclaimed = run.now + 1.5 * SHORT

    def observe() -> None:
        waiter = waiters.local_queue.waiter("observer")
        try:
            while run.now <= proclaimed:
                if not waiter.ticket(SERVER, look=False, topic=TOPIC)[1]:
                    run.sleep(SHORT)  # it looks itself
                elif waiter.wait(LONG)[0] and waiter._call and not waiter._call.over:
                    waiters.woken["observer"] = run.now
                    return
        finally:
            waiter.leave()

    def proclaim() -> None:
        run.sleep(1.5 * SHORT)
        waiters.database.proclaim()
        waiters.call("one")

    run.start("one", partial(waiters.wait, "one"))
    run.start("observer", observe)
    run.start("database", proclaim)
    run.go()
    waiters.check("one", "observer")
    assert waiters.woken["observer"] == proclaimed, "a topic was not heard"


@scenario(*LOOKED_AT, preemptions=1, early=False)
def it_is_closed(run: Run) -> None:
    """Who waits is told, and no connection stays open."""
    close(run, "one", "two")


@scenario(*LOOKED_AT, preemptions=1, early=False)
def it_is_closed_as_one_is_called(run: Run) -> None:
    """Nor does it when the one who reads is just about to go."""
    close(run, "one", called=True)


def close(run: Run, *names: str, called: bool = False) -> None:
    waiters = Waiters(run)
    began = run.now

    def wait(name: str) -> None:
        with contextlib.suppress(ValueError):  # it came too late
            waiters.wait(name)

    def user() -> None:
        waiters.local_queue.close()
        waiters.connections.close()

    for name in names:
        run.start(name, partial(wait, name), alike=waiters)
    run.start("user", user)
    if called:
        run.start("database", waiters.call_all)
    run.go()
    assert run.now == began, "not all were told"
    assert not waiters.database.open, "a connection stays open"
