"""The waiters of this process: one queue for each name. Only its first waiter asks the database.

::

    LocalQueue   the queues of a process, by name
    LocalWaiter  the waiter of one run of a procedure: its place in its queue, then its ticket

A *line* is the key of a queue: the name, and the policy by which its waiters wait.
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
    """The queues of this process for the names of one database."""

    def __init__(self, connections: Connections, adapter: Adapter, runtime: Runtime) -> None:
        self.runtime = runtime
        self.notifier = Notifier(connections, adapter, runtime)
        self._lines: dict[Hashable, deque[weakref.ref[LocalWaiter]]] = {}
        begins_anew(self)

    def forget_parent(self) -> None:
        """Empty the queues in a forked child, which has none of its parent's waiters."""
        self._lines = {}
        self.notifier.forget_parent()

    def waiter(self, line: Hashable) -> LocalWaiter:
        """Return a waiter for a line. It has not joined yet."""
        return LocalWaiter(self, line)

    def first_place(self, line: Hashable) -> LocalWaiter | None:
        """Join a line that is empty; return the waiter, or None if the line has a waiter."""
        with lock:
            places = self._lines.get(line)
            if places is not None and any(place() is not None for place in places):
                return None
            mine = LocalWaiter(self, line)
            self._lines[line] = deque((weakref.ref(mine),))
            return mine

    def enter(self, line: Hashable, mine: LocalWaiter) -> bool:
        """Join a line at its end, or keep a place in it; return whether ``mine`` is the first.

        If it is not, it is woken when it may have become the first, or by :meth:`alarm`.
        """
        with lock:
            places = self._lines.get(line)
            if places is None:
                self._lines[line] = deque((weakref.ref(mine),))
                return True
            if places[0]() is mine:
                return True
            if not any(place() is mine for place in places):
                places.append(weakref.ref(mine))
            # A waiter that was interrupted while it left is gone: its reference is dead.
            while (first := places[0]()) is None:
                places.popleft()
            if first is mine:
                return True
            mine.rest()
            first.wake()
            return False

    def alarm(self, line: Hashable) -> None:
        """Wake all waiters of a line."""
        with lock:
            for place in self._lines.get(line, ()):
                waiter = place()
                if waiter is not None:
                    waiter.wake()

    def lengths(self) -> list[int]:
        """Return the number of waiters in each line, the first included."""
        return [len(places) for places in self._lines.values()]

    def leave(self, line: Hashable, mine: LocalWaiter) -> None:
        """Leave a line, if ``mine`` is in it, and wake the waiter that is the first then."""
        with lock:
            places = self._lines.get(line)
            if places is None or (len(places) == 1 and places[0]() is mine):  # the usual case
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
        """Close the connection that listens. The waiters get another one."""
        self.notifier.disconnect()

    def close(self) -> None:
        """Stop listening for good, and wake the waiters."""
        self.notifier.close()


class LocalWaiter:
    """One run's place in a line, and its subscription, until :meth:`leave`.

    Every method may be called again. So whatever an interruption leaves behind in the middle of
    one, :meth:`leave` removes it.
    """

    __slots__ = ("__weakref__", "_call", "_line", "_queue", "_uncalled", "_woken")

    def __init__(self, local_queue: LocalQueue, line: Hashable) -> None:
        self._queue = local_queue
        self._line = line
        self._woken: Event | None = None  # made when it is not the first, which is rare
        self._call: Subscription | None = None
        self._uncalled: str | None = None

    def rest(self) -> None:
        """Get ready to wait for :meth:`wake`."""
        if self._woken is None:
            self._woken = self._queue.runtime.event()
        self._woken.clear()

    def wake(self) -> None:
        if self._woken is not None:
            self._woken.set()

    def stand(self, seconds: float | None) -> tuple[bool, bool]:
        """Wait for the first place, for ``seconds`` at most, None without a limit.

        Return whether this waiter has it, and else whether an alarm has woken it.
        """
        if self._queue.enter(self._line, self):
            return True, False
        assert self._woken is not None
        if seconds == 0 or not self._queue.runtime.wait(self._woken, seconds):
            return False, False
        first = self._queue.enter(self._line, self)
        return first, not first

    def alarm(self) -> None:
        """Wake all waiters of this line, because the database failed: each checks whether it can
        go on."""
        self._queue.alarm(self._line)

    def ticket(
        self, server: str | None, *, look: bool, topic: str | None = None
    ) -> tuple[str | None, bool]:
        """Return the ticket for the database's queue, if there is one, and whether it is notified.

        It is the same as before, unless the ticket's connection was lost. ``server`` is the server
        that is to notify it, None for none; ``look`` allows a ticket that cannot be notified, whose
        waiter polls. A notification of the ``topic`` wakes the waiter too.
        """
        if self._call is None and server is None and not look:
            return self._uncalled, False
        other = self._call is not None and server not in (None, ANY_SERVER, self._call.server)
        if self._call is None or self._call.over or other:
            if self._call is not None:
                self._drop()
            self._call = self._queue.notifier.ticket(server, topic)
        if self._call is not None:
            return self._call.ticket, True
        if look and self._uncalled is None:
            self._uncalled = UNCALLED + self._queue.runtime.token((TICKET - len(UNCALLED)) // 2)
        return self._uncalled, False

    def wait(self, seconds: float) -> tuple[bool, Passed | None]:
        """Wait for a notification, for ``seconds`` at most; return whether one came, and the hold
        that was passed on with it.

        It also counts as one if no notification can come any more.
        """
        assert self._call is not None, "only a waiter with a ticket is notified"
        called, passed = self._queue.notifier.wait(self._call, seconds)
        if passed is not None:  # other listeners may have received the secret ticket with it
            self._drop()
        return called, passed

    def leave(self) -> None:
        """Leave the line, and remove the subscription."""
        self._queue.leave(self._line, self)
        if self._call is not None:
            self._drop()

    def _drop(self) -> None:
        if self._call is not None:
            self._queue.notifier.forget(self._call)
            self._call = None
