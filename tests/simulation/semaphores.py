"""The semaphores of a run: their limits, and who waits for a slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation.loop import Loop, Violation

if TYPE_CHECKING:
    from tests.simulation.beliefs import Wait


class Semaphores:
    """What the tables and the threads tell of semaphores."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.limits: dict[str, int] = {}
        #: When a limit was another; and the largest that there ever was.
        self.changed: dict[str, float] = {}
        self.most: dict[str, int] = {}
        self.waits: list[Wait] = []
        #: Since when a slot is free that somebody waits for.
        self.free_since: dict[str, float] = {}

    def limit(self, limits: Mapping[str, int]) -> None:
        """Take down which limits are stored."""
        for name in self.limits.keys() | limits.keys():
            if self.limits.get(name) != limits.get(name):
                self.changed[name] = self._loop.now
        for name, limit in limits.items():
            self.most[name] = max(limit, self.most.get(name, 0))
        self.limits = dict(limits)
        self.free_since.clear()

    def granted(self, name: str) -> None:
        """A name was granted: nobody gets a slot above the limit."""
        semaphore, _, number = name.partition("#")
        if number and int(number) > self.limits.get(semaphore, 0):
            raise Violation(f"{name!r} was granted, which is above the limit")
