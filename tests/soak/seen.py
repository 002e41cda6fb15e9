"""What the workers have been told so far, for a nemesis that waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support import eventually

from .checker import exclusion
from .crew import Place
from .facts import Facts, History
from .history import YARDSTICK, Event, Tail, now, place_of
from .ledger import Ledger

PULSE = 0.1


class Seen(Tail):
    """What is in the history so far."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._events: list[Event] = []

    def follow(self) -> None:
        time.sleep(PULSE)  # for whoever looks again and again
        super().follow()

    def add(self, events: Iterable[Event]) -> None:
        # The yardstick's are nine of ten, and in a long run all are looked through again and again.
        self._events += (event for event in events if event.kind != YARDSTICK)

    def granted(self, places: Sequence[Place], since: float) -> int:
        """How many grants those in these places were told of since then."""
        return self._told("acquire", "ok", places, since)

    def written(self, places: Sequence[Place], since: float) -> int:
        """How many commits they were told of."""
        return self._told("write", "ok", places, since)

    def _told(self, kind: str, step: str, places: Sequence[Place], since: float) -> int:
        self.follow()
        numbers = {place.number for place in places}
        told = [event for event in self._events if (event.kind, event.step) == (kind, step)]
        return sum(event.at > since and place_of(event.process) in numbers for event in told)

    def overlaps(self, names: tuple[str, ...]) -> bool:
        """Whether two were holders of a name at once."""
        self.follow()
        events = sorted(self._events, key=lambda event: event.at)
        _, found = exclusion(Facts(History(events, Ledger({}, []), names)))
        return bool(list(found))


def wait_for_a_grant(directory: Path, places: Sequence[Place]) -> None:
    """Wait until a worker in one of these places is told of another grant."""
    seen, start = Seen(directory), now()
    eventually(lambda: seen.granted(places, start) > 0)
