"""Who waits in this process: one line for each name, whose first stands in the database.

::

    LocalQueue   the lines: of a process's waiters for one name only the first asks the database
    LocalWaiter  of one run of a procedure: its place in its line, then its ticket
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING

from ..dialects.tickets import TICKET, UNCALLED
from ..protocol.state import Passed
from ..protocol.steps import ANY_SERVER
from .fork import begins_anew
from .notifier import Notifier, Subscription
from .process_lock import lock

if TYPE_CHECKING:
    from ..dialects.adapter import Adapter
    from .connections import Connections
    from .runtime import Event, Runtime


class LocalQueue:
    """The waiting of one database's users in this process."""

    def __init__(self, connections: Connections, adapter: Adapter, runtime: Runtime) -> None:
        self.runtime = runtime
        self.notifier = Notifier(connections, adapter, runtime)
        self._lines: dict[Hashable, deque[weakref.ref[LocalWaiter]]] = {}
        begins_anew(self)

    def forget_parent(self) -> None:
        """Begin anew in a forked child: those who wait are not there."""
        self._lines = {}
        self.notifier.forget_parent()

    def waiter(self, line: Hashable) -> LocalWaiter:
        """Return a place in line, which is not taken yet."""
        return LocalWaiter(self, line)

    def first_place(self, line: Hashable) -> LocalWaiter | None:
        """Return the first place in a line where nobody stands yet; None where somebody does."""
        with lock:
            places = self._lines.get(line)
            if places is not None and any(place() is not None for place in places):
                return None
            mine = LocalWaiter(self, line)
            self._lines[line] = deque((weakref.ref(mine),))
            return mine

    def enter(self, line: Hashable, mine: LocalWaiter) -> bool:
        """Stand in line, at its end or where one stands already; return whether one is the first.

        If not, one is woken when that changes, or by :meth:`alarm`.
        """
        with lock:
            places = self._lines.get(line)
            if places is None:
                self._lines[line] = deque((weakref.ref(mine),))
                return True
            if not any(place() is mine for place in places):
                places.append(weakref.ref(mine))
            # Whoever was interrupted while it left is forgotten.
            while (first := places[0]()) is None:
                places.popleft()
            if first is mine:
                return True
            mine.rest()
            first.wake()
            return False

    def alarm(self, line: Hashable) -> None:
        """Wake all who stand in line."""
        with lock:
            for place in self._lines.get(line, ()):
                waiter = place()
                if waiter is not None:
                    waiter.wake()

    def lengths(self) -> list[int]:
        """Return how many stand in each line, the first included."""
        return [len(places) for places in self._lines.values()]

    def leave(self, line: Hashable, mine: LocalWaiter) -> None:
        """Give a place up, if there is one; whoever is the first then may go on."""
        with lock:
            places = self._lines.get(line)
            if places is None or (len(places) == 1 and places[0]() is mine):  # as it is mostly
                self._lines.pop(line, None)
                return
            left = [place for place in places if place() not in (None, mine)]
            if not left:
                self._lines.pop(line, None)
                return
            self._lines[line] = deque(left)
            first = left[0]()
            if first is not None:
                first.wake()

    def disconnect(self) -> None:
        """Close the connection that listens; who waits gets another one."""
        self.notifier.disconnect()

    def close(self) -> None:
        """Listen no more; whoever waits is woken, and finds that out."""
        self.notifier.close()


class LocalWaiter:
    """One run's place in a line, and what is called for it; until :meth:`leave`.

    All of it can be repeated, so that an interruption in the middle of anything leaves nothing
    behind that :meth:`leave` does not find.
    """

    __slots__ = ("__weakref__", "_call", "_line", "_queue", "_uncalled", "_woken")

    def __init__(self, local_queue: LocalQueue, line: Hashable) -> None:
        self._queue = local_queue
        self._line = line
        self._woken: Event | None = None  # once it is not the first; most always are
        self._call: Subscription | None = None
        self._uncalled: str | None = None

    def rest(self) -> None:
        """Be ready to wait until woken."""
        if self._woken is None:
            self._woken = self._queue.runtime.event()
        self._woken.clear()

    def wake(self) -> None:
        if self._woken is not None:
            self._woken.set()

    def stand(self, seconds: float | None) -> tuple[bool, bool]:
        """Wait for the first place, so long; return whether it is ours, or whether an alarm was
        raised."""
        if self._queue.enter(self._line, self):
            return True, False
        assert self._woken is not None
        if seconds == 0 or not self._queue.runtime.wait(self._woken, seconds):
            return False, False
        first = self._queue.enter(self._line, self)
        return first, not first

    def alarm(self) -> None:
        """Let all who stand in this line see to it that they can go on."""
        self._queue.alarm(self._line)

    def ticket(
        self, server: str | None, *, look: bool, topic: str | None = None
    ) -> tuple[str | None, bool]:
        """Return the ticket for the database's queue, if there is one, and whether it is called.

        The same as before, unless the connection it belongs to was lost. ``server`` is the one to
        be called by, None for none; ``look`` allows for a ticket that nobody calls. It is
        called with the ``topic`` too, if there is one.
        """
        if self._call is None and server is None and not look:
            return self._uncalled, False
        other = self._call is not None and server not in (None, ANY_SERVER, self._call.server)
        if self._call is None or self._call.over or other:
            self._drop()
            self._call = self._queue.notifier.ticket(server, topic)
        if self._call is not None:
            return self._call.ticket, True
        if look and self._uncalled is None:
            self._uncalled = UNCALLED + self._queue.runtime.token((TICKET - len(UNCALLED)) // 2)
        return self._uncalled, False

    def wait(self, seconds: float) -> tuple[bool, Passed | None]:
        """Wait for the call, so long; return whether it came, and what was passed on with it.

        It comes also when nobody can call any more.
        """
        assert self._call is not None, "only a waiter with a ticket is notified"
        called, passed = self._queue.notifier.wait(self._call, seconds)
        if passed is not None:  # others may have heard the ticket with that
            self._drop()
        return called, passed

    def leave(self) -> None:
        """Let the next one have the place."""
        self._queue.leave(self._line, self)
        if self._call is not None:
            self._drop()

    def _drop(self) -> None:
        if self._call is not None:
            self._queue.notifier.forget(self._call)
            self._call = None
