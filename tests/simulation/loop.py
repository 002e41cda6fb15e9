"""The loop: virtual time, events in its order, and the greenlets of the clients' code."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulation.schedule import HELD_MAX, After, Change, Fault, Later, Schedule

#: Seconds that a message is under way, where nothing else is said.
LATENCY = 0.0001
#: A run that has so many events, or lasts so many virtual seconds, does not end by itself.
EVENTS_MAX, SECONDS_MAX = 20_000, 1_000.0


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(slots=True, eq=False)
class Event:
    """Something that is going to happen."""

    label: str
    action: Callable[[], None]
    #: The client at which it happens; None for the network and the database.
    client: Any = None
    #: Whether it only lets time pass, so that it is no reason to go on.
    background: bool = False
    cancelled: bool = False
    faults: list[Fault] = field(default_factory=list)


class Actor(greenlet):  # type: ignore[misc]
    """One thread of a client."""

    def __init__(
        self, loop: Loop, client: Any, name: str, run: Callable[[], object], *, daemon: bool = False
    ) -> None:
        super().__init__(self._live)
        #: Nobody waits for what it does.
        self.daemon = daemon
        self.loop = loop
        self.client = client
        self.name = name
        self.finished = False
        self.error: BaseException | None = None
        #: Raised in it when it goes on: KeyboardInterrupt.
        self.interruption: BaseException | None = None
        self._run = run

    def _live(self) -> None:
        try:
            self._run()
        except GreenletExit:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.finished = True


class Loop:
    """Runs the actors' code and the events between, one at a time, in virtual time."""

    def __init__(self, schedule: Schedule, lasts: float = SECONDS_MAX) -> None:
        self.now = 0.0
        self._lasts = lasts
        self.over = False
        self.steps: list[str] = []
        self.actors: list[Actor] = []
        #: How many commits a fall of the server at a request can lose, by the kind of fault.
        self.losable: dict[str, dict[str, float]] = {}
        #: Called after every event.
        self.watch: Callable[[], None] = lambda: None
        self._found: Violation | None = None
        self._hub = getcurrent()
        self._heap: list[tuple[float, int, Event]] = []
        self._number = 0
        self._foreground = 0
        self._labels: Counter[str] = Counter()
        self._held: defaultdict[str, list[Event]] = defaultdict(list)
        self._changes: defaultdict[str, list[Change]] = defaultdict(list)
        for label, change in schedule.changes:
            self._changes[label].append(change)

    # --- events ------------------------------------------------------------------------------

    def label(self, base: str) -> str:
        """Return the label of the next event of a kind."""
        self._labels[base] += 1
        return f"{base}#{self._labels[base]}"

    def at(
        self,
        delay: float,
        label: str,
        action: Callable[[], None],
        client: Any = None,
        *,
        background: bool | None = None,
    ) -> Event:
        """Have something happen after ``delay`` seconds, unless the schedule differs.

        Nobody waits for it if it is in the ``background``, as all is that a daemon does.
        """
        if background is None:
            actor = self.current
            background = actor is not None and actor.daemon
        event = Event(label, action, client, background)
        changes = self._changes.get(label)
        after = None
        for change in changes or ():
            if isinstance(change, Later):
                delay += change.seconds
            elif isinstance(change, After):
                after = change.label
            else:
                event.faults.append(change)
        self._foreground += not background
        if after is not None and after not in self.steps:
            self._held[after].append(event)
            delay += HELD_MAX
        self._push(delay, event)
        return event

    def _push(self, delay: float, event: Event) -> None:
        self._push_at(self.now + max(0.0, delay), event)

    def _push_at(self, time: float, event: Event) -> None:
        self._number += 1
        heapq.heappush(self._heap, (time, self._number, event))

    def cancel(self, event: Event) -> None:
        if not event.cancelled:
            event.cancelled = True
            self._foreground -= not event.background

    def run(self) -> None:
        """Let everything happen, until nothing is left that anybody waits for."""
        while self._foreground > 0:
            time, _, event = heapq.heappop(self._heap)
            if event.cancelled:
                continue
            client = event.client
            if client is not None and not client.alive:
                self.cancel(event)
                continue
            if client is not None and client.paused_until > time:
                # Not after a delay: with that it may be a little before, when it is rounded.
                self._push_at(client.paused_until, event)
                continue
            self.now = max(self.now, time)
            self.cancel(event)
            self.steps.append(event.label)
            event.action()
            for held in self._held.pop(event.label, ()):
                self._push(0.0, held)
            self.watch()
            if self._found is not None:
                raise self._found
            if len(self.steps) > EVENTS_MAX or self.now > self._lasts:
                waiting = [actor.name for actor in self.actors if not actor.finished]
                raise Violation(f"no end: {waiting} go on after {self.now:.0f} s")

    def accuse(self, violation: str) -> None:
        """Keep what was found where it cannot be raised, until the event is over."""
        if not self.over:
            self._found = self._found or Violation(violation)

    # --- actors ------------------------------------------------------------------------------

    @property
    def current(self) -> Actor | None:
        actor = getcurrent()
        return actor if isinstance(actor, Actor) else None

    def begin(
        self,
        client: Any,
        name: str,
        run: Callable[[], object],
        delay: float = 0.0,
        *,
        daemon: bool = False,
    ) -> Actor:
        """Begin a thread of a client."""
        actor = Actor(self, client, name, run, daemon=daemon)
        self.actors.append(actor)
        label, begin = self.label(f"{name}.begin"), lambda: self.resume(actor)
        self.at(delay, label, begin, client, background=daemon)
        return actor

    def resume(self, actor: Actor, *value: Any) -> None:
        """Let an actor go on, until it waits again."""
        if not actor.finished and not self.over:
            actor.parent = self._hub
            actor.switch(*value)
            if actor.error is not None:
                error, actor.error = actor.error, None
                raise error

    def park(self) -> Any:
        """Wait in an actor until it is resumed; return what with."""
        actor = self.current
        assert actor is not None, "only actors wait"
        if self.over:
            raise GreenletExit
        value = self._hub.switch()
        if self.over or not actor.client.alive:
            raise GreenletExit
        if actor.interruption is not None:
            error, actor.interruption = actor.interruption, None
            raise error
        return value

    def end(self) -> None:
        """End all actors that have not finished, without a trace."""
        self.over = True
        for actor in self.actors:
            if actor and not actor.finished:
                actor.parent = getcurrent()
                actor.throw(GreenletExit)
        self._heap.clear()
