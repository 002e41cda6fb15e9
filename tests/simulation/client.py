"""One client: a process with a clock, threads and connections of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from queue import Empty
from random import Random
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy.engine import Connection

from dblock import Locks, Timeouts
from dblock.dialects import Adapter
from dblock.fencing import pass_through
from dblock.holding.callers import CallerRegistry
from dblock.holding.holds import CallerHolds
from dblock.holding.keeper import LINGER, SLICE, Call, Keeper
from dblock.io.process_lock import lock
from dblock.io.runtime import Event, Runtime, Turns
from tests.simulation.lending import LentConnection
from tests.simulation.loop import Actor, Loop, Violation
from tests.simulation.transport import Link, Simulated

if TYPE_CHECKING:
    from tests.simulation.store import Store

# So often a worker has something to do at once, and again.
AT_ONCE_MAX = 100
# Before others see who waits: runs take some seconds.
VISIBLE_AFTER = 0.3
# Between two looks at whether a renewal under way has ended.
LOOK = 0.005


class Client:
    """A process: what a kill ends, a stop halts, and whose clock goes as it likes."""

    def __init__(self, loop: Loop, store: Store, name: str, *, rate: float = 1.0) -> None:
        self.loop = loop
        self.store = store
        self.name = name
        self.rate = rate
        self.alive = True
        self.paused_until = 0.0
        self.links: dict[int, Link] = {}
        self.chance = Random(name)
        self.runtime = SimulatedRuntime(self)
        self._lent: list[LentConnection] = []
        self.keeper = SimulatedKeeper(self)
        self.locks = SimulatedLocks(self, store)

    def now(self) -> float:
        """The process's monotonic clock."""
        return self.at(self.loop.now)

    def at(self, moment: float) -> float:
        """What its clock says at a moment of the loop's."""
        return 1_000.0 + self.rate * moment

    def link(self, driver: Any) -> Link:
        """Return the connection that a driver's object stands for."""
        return self.links[id(driver)]

    def connected(self, store: Store, driver: Any) -> None:
        """Take down a connection that was made."""
        self.links[id(driver)] = self._connect(store, driver)

    def lend(self, store: Store, driver: Any) -> LentConnection:
        """Return a connection that was made for the user's own transactions."""
        link = self._connect(store, driver)
        lent = store.lent(store, link, driver)
        self.links[id(lent)] = link
        self._lent.append(lent)  # or another might get its id
        return lent

    def _connect(self, store: Store, driver: Any) -> Link:
        link = Link(self, store, driver, SimulatedEvent(self.loop))
        store.links[link] = None
        return link

    def pause(self, seconds: float) -> None:
        """Stop the process, as SIGSTOP does."""
        self.paused_until = self.loop.now + seconds

    def end(self) -> None:
        """Let nothing be left of it: what stays of its greenlets would keep all that it had."""
        for link in tuple(self.links.values()):
            link.close()
        self.links.clear()
        for actor in self.loop.actors:
            actor.__dict__.clear()  # some greenlets are never collected
        self.loop.actors.clear()
        del self.locks, self.keeper

    def kill(self) -> None:
        """End the process, as SIGKILL does: its sockets are closed for it."""
        self.alive = False
        for link in tuple(self.links.values()):
            link.close()


class SimulatedLocks(Locks):
    """The Locks of one simulated process."""

    def __init__(self, client: Client, store: Store) -> None:
        self.client = client
        self._runtime = lambda: client.runtime
        self._keeper = lambda: client.keeper
        self._callers = lambda: ActorHolds(client.loop)
        self._resolve = store.resolve
        super().__init__(store.engine, timeouts=Timeouts(connect=3, query=5, socket=10))
        adapter = self._database.dialect.adapter
        assert isinstance(adapter, Simulated)
        adapter.client = client
        self._database.dialect.timing = replace(
            self._database.dialect.timing, visible_after=VISIBLE_AFTER
        )

    def gate(self, connection: Connection, name: str, fence: int) -> None:
        """Pass a gate as :func:`dblock.fencing.gate` does, but with the simulated adapter."""
        dialect = self._database.dialect
        adapters = {dialect.name: cast("type[Adapter]", lambda *given: dialect.adapter)}
        pass_through(connection, name, fence, None, True, adapters)


class SimulatedRuntime(Runtime):
    """Threads that the loop schedules, a clock that goes as it is told, and a seeded chance."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = client.loop
        self.now = client.now
        self.random = client.chance.random
        self.token = lambda size: client.chance.randbytes(size).hex()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._wake_after(seconds, "sleep")
            self._loop.park()

    def wait(self, event: Event, seconds: float | None) -> bool:
        assert isinstance(event, SimulatedEvent)
        return event.wait(seconds)

    def readable(self, descriptor: int, seconds: float) -> bool:
        link = self._client.links[descriptor]
        if link.readable.is_set() or link.over:
            return True
        return link.readable.wait(seconds)

    def hang_up(self, descriptor: int) -> None:
        self._client.links[descriptor].hang_up()

    def turns(self, limit: int) -> Turns:
        return SimulatedTurns(self._loop, limit)

    def event(self) -> Event:
        return SimulatedEvent(self._loop)

    @contextmanager
    def settled(self, done: Callable[[], bool], patience: float) -> Iterator[None]:
        until = self._client.now() + patience
        while not done() and self._client.now() < until:
            self.sleep(LOOK)
        with lock:
            yield

    def _wake_after(self, seconds: float, why: str) -> None:
        actor = self._loop.current
        assert actor is not None
        label = self._loop.label(f"{actor.name}.{why}")
        client = self._client
        self._loop.at(seconds / client.rate, label, lambda: self._loop.resume(actor), client)


class ActorHolds(CallerRegistry):
    """What each thread of a simulated process holds."""

    caller = "thread"

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._all: WeakKeyDictionary[object, CallerHolds] = WeakKeyDictionary()

    def mine(self) -> CallerHolds:
        key = self._loop.current or self._loop
        found = self._all.get(key)
        if found is None:
            found = self._all[key] = CallerHolds()
        return found


class SimulatedEvent:
    """A :class:`threading.Event` of simulated threads."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._set = False
        self._waiting: list[tuple[Actor, Any]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for actor, timer in waiting:
            if timer is not None:
                self._loop.cancel(timer)
            label = self._loop.label(f"{actor.name}.woken")
            resume = partial(self._loop.resume, actor)
            self._loop.at(0.0, label, resume, actor.client, background=actor.daemon)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._set:
            return True
        if timeout is not None and timeout <= 0:
            return False
        loop, actor = self._loop, self._loop.current
        assert actor is not None
        timer = None
        if timeout is not None and timeout < math.inf:

            def give_up() -> None:
                self._waiting = [one for one in self._waiting if one[0] is not actor]
                loop.resume(actor)

            label = loop.label(f"{actor.name}.timer")
            timer = loop.at(timeout / actor.client.rate, label, give_up, actor.client)
        self._waiting.append((actor, timer))
        try:
            loop.park()
        finally:
            self._waiting = [one for one in self._waiting if one[0] is not actor]
        return self._set


class SimulatedTurns:
    """Those of simulated threads."""

    def __init__(self, loop: Loop, limit: int) -> None:
        self._free = limit
        self._loop = loop
        self._given = SimulatedEvent(loop)

    def get(self, block: bool = True, timeout: float | None = None) -> None:
        while self._free == 0:
            if not self._given.wait(timeout):
                raise Empty
            self._given.clear()
        self._free -= 1

    def put(self, turn: None) -> None:
        self._free += 1
        self._given.set()


class SimulatedKeeper(Keeper):
    """A keeper whose workers are actors."""

    def __init__(self, client: Client) -> None:
        def employ(name: str, work: Callable[[], float], end: Call = lambda: None) -> Worker:
            return Worker(client, name, work, end)

        super().__init__(client.runtime, employ)


class Worker:
    """An actor that does something when woken, or when its own time has come."""

    def __init__(self, client: Client, name: str, work: Callable[[], float], end: Call) -> None:
        self._client = client
        self._name = f"{client.name}.{name.split()[-1]}"
        self._work = work
        self._end = end
        self._woken = SimulatedEvent(client.loop)
        self.running = False

    def wake(self) -> None:
        self._woken.set()
        if not self.running:
            self.running = True
            self._client.loop.begin(self._client, self._name, self._run, daemon=True)

    def _run(self) -> None:
        at_once = 0
        while True:
            self._woken.clear()
            pause = self._work()
            at_once = 0 if pause > 0 else at_once + 1
            if at_once > AT_ONCE_MAX:
                raise Violation(f"{self._name} works without a pause")
            if not self._woken.is_set():
                self._woken.wait(min(pause, LINGER if pause == math.inf else SLICE))
            if not self._woken.is_set() and pause == math.inf:
                self.running = False
                self._end()
                return
