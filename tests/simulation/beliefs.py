"""What the clients believe: who has what since when, by what the library tells them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dblock import Lease, RowLock
from dblock.holds import Hold, LeaseHold
from tests.simulation.loop import Loop, Violation

if TYPE_CHECKING:
    from tests.simulation.run import Thread


@dataclass(slots=True, eq=False)
class Belief:
    """A thread that takes itself for a holder."""

    thread: Thread
    name: str
    hold: Hold
    since: float

    def lasts(self) -> bool:
        """Whether the client would say so now: by its own clock, stopped or not.

        The holder of a row lock cannot know that its session has ended before it asks.
        """
        client, hold = self.thread.client, self.hold
        if not client.alive:
            return False
        if isinstance(hold, LeaseHold):
            return hold.keepable(client.now())
        connection = None if hold.transaction is None else hold.transaction._connection
        return connection is not None and not client.link(connection.driver).ended

    def __str__(self) -> str:
        return f"{self.thread.name} since {self.since:.4f} with {self.hold.fence}"


@dataclass(slots=True, eq=False)
class Wait:
    """A thread that waits for a name, until some moment of the loop at most."""

    thread: Thread
    name: str
    since: float
    until: float | None


class Beliefs:
    """The beliefs and waits of one run. Nobody believes what another does: promise 1."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.story: list[str] = []
        self.waits: list[Wait] = []
        self._now: defaultdict[str, list[Belief]] = defaultdict(list)
        self._fences: dict[str, int] = {}

    def note(self, what: str) -> None:
        self.story.append(what)

    def begin(self, thread: Thread, lock: Lease | RowLock) -> None:
        hold = lock._holds.last
        assert hold is not None
        belief = Belief(thread, lock.name, hold, self.loop.now)
        self.note(f"{thread.name} has {lock.name} {hold.fence}")
        self._now[lock.name].append(belief)
        if hold.fence is not None and belief.lasts():
            last = self._fences.get(lock.name, 0)
            if hold.fence <= last:
                raise Violation(f"a fence comes again: {hold.fence} after {last}")
            self._fences[lock.name] = hold.fence
        self.check(lock.name)

    def end(self, thread: Thread, lock: Lease | RowLock) -> None:
        """A thread begins to give a lock back."""
        self.note(f"{thread.name} gives {lock.name} back")
        self._now[lock.name] = [one for one in self._now[lock.name] if one.thread is not thread]

    def check(self, name: str) -> None:
        """Two believe the same now."""
        lasting = [belief for belief in self._now[name] if belief.lasts()]
        self._now[name] = lasting
        if len(lasting) > 1:
            raise Violation(f"two hold {name!r}: {' and '.join(map(str, lasting))}")

    def check_all(self) -> None:
        for name, believed in self._now.items():
            if len(believed) > 1:
                self.check(name)

    def believed(self, name: str) -> list[Belief]:
        return [belief for belief in self._now[name] if belief.lasts()]

    @contextmanager
    def waiting(self, thread: Thread, name: str, seconds: float | None) -> Iterator[None]:
        """A thread waits for a name, so long."""
        now = self.loop.now
        rate = thread.client.rate
        until = None if seconds is None else now + seconds / rate
        wait = Wait(thread, name, now, until)
        self.waits.append(wait)
        try:
            yield
        finally:
            self.waits.remove(wait)
