"""The last events, which each client reads at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable

from .changes import ServerSentEvent

#: How many bytes of events are kept for clients that are behind.
KEPT = 8 * 2**20


class Behind(Exception):
    """The client was too slow: events that it has not read are no longer kept."""


class Backlog:
    """Numbered events, of which the last ones are kept.

    A client keeps the number of the last event that it has read, and the backlog keeps nothing for
    it. So a slow client costs no memory.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        #: How many bytes of events are kept.
        self.size = 0
        self._events: deque[ServerSentEvent] = deque()
        #: The number of the last event.
        self.last = 0
        self._news = asyncio.Event()

    def add(self, events: Iterable[ServerSentEvent]) -> None:
        """Add events, and wake the waiting streams."""
        for one in events:
            self._events.append(one)
            self.size += len(one.text)
            self.last += 1
        while self.size > self._kept:
            self.size -= len(self._events.popleft().text)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait(self) -> None:
        """Wait until :meth:`add` is called, with or without events."""
        await self._news.wait()

    async def after(self, number: int, patience: float) -> list[ServerSentEvent]:
        """Return the events after a number; none if none comes within ``patience``
        seconds.

        Raises Behind if some of them are no longer kept.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while number == self.last:
                    await self.wait()
        count = self.last - number
        if count > len(self._events):
            raise Behind
        return [self._events[index] for index in range(-count, 0)]
