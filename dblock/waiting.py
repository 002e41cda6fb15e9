"""Waiting until somebody calls: one line a name in this process, one listening connection.

::

    Spot     of one run of a protocol: its place in the process's line, then its ticket
    Room     the lines: of a process's waiters for one name only the first stands in the database
    Listener the connection on which the database calls tickets; read by one of those who wait

Nobody needs a thread for it: whoever waits first reads for all, and hands that on when it goes.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Hashable, Sequence
from math import inf
from typing import TYPE_CHECKING

from .connections import close_all
from .dialects.base import NUMBER, TICKET, UNCALLED
from .fork import begins_anew, leave_to_parent
from .process_lock import lock
from .protocol.faults import Trouble
from .protocol.state import Passed
from .protocol.steps import ANY_SERVER

if TYPE_CHECKING:
    from .connections import Connections, OwnConnection
    from .dialects import Dialect
    from .runtime import Event, Runtime

_log = logging.getLogger("dblock")

# Seconds before another try to listen, at first and at most.
PAUSE, PAUSE_MAX = 5.0, 60.0
# Seconds before who is called again and again looks again, at first and at most: whoever may
# connect can call. Calls that are so far apart are not again and again.
AGAIN, AGAIN_MAX, APART = 0.01, 0.1, 1.0


class Room:
    """The waiting of one database's users in this process."""

    def __init__(self, connections: Connections, dialect: Dialect, runtime: Runtime) -> None:
        self.runtime = runtime
        self.listener = Listener(connections, dialect, runtime)
        self._lines: dict[Hashable, deque[weakref.ref[Spot]]] = {}
        begins_anew(self)

    def forget_parent(self) -> None:
        """Begin anew in a forked child: those who wait are not there."""
        self._lines = {}
        self.listener.forget_parent()

    def spot(self, line: Hashable) -> Spot:
        """Return a place in line, which is not taken yet."""
        return Spot(self, line)

    def enter(self, line: Hashable, mine: Spot) -> bool:
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
                spot = place()
                if spot is not None:
                    spot.wake()

    def lengths(self) -> list[int]:
        """Return how many stand in each line, the first included."""
        return [len(places) for places in self._lines.values()]

    def leave(self, line: Hashable, mine: Spot) -> None:
        """Give a place up, if there is one; whoever is the first then may go on."""
        with lock:
            left = [place for place in self._lines.get(line, ()) if place() not in (None, mine)]
            if not left:
                self._lines.pop(line, None)
                return
            self._lines[line] = deque(left)
            first = left[0]()
            if first is not None:
                first.wake()

    def disconnect(self) -> None:
        """Close the connection that listens; who waits gets another one."""
        self.listener.disconnect()

    def close(self) -> None:
        """Listen no more; whoever waits is woken, and finds that out."""
        self.listener.close()


class Spot:
    """One run's place in a line, and what is called for it; until :meth:`leave`.

    All of it can be repeated, so that an interruption in the middle of anything leaves nothing
    behind that :meth:`leave` does not find.
    """

    __slots__ = ("__weakref__", "_call", "_line", "_room", "_uncalled", "_woken")

    def __init__(self, room: Room, line: Hashable) -> None:
        self._room = room
        self._line = line
        self._woken: Event | None = None  # once it is not the first; most always are
        self._call: Call | None = None
        self._uncalled: str | None = None

    def rest(self) -> None:
        """Be ready to wait until woken."""
        if self._woken is None:
            self._woken = self._room.runtime.event()
        self._woken.clear()

    def wake(self) -> None:
        if self._woken is not None:
            self._woken.set()

    def stand(self, seconds: float | None) -> tuple[bool, bool]:
        """Wait for the first place, so long; return whether it is ours, or whether an alarm was
        raised."""
        if self._room.enter(self._line, self):
            return True, False
        assert self._woken is not None
        if seconds == 0 or not self._room.runtime.wait(self._woken, seconds):
            return False, False
        first = self._room.enter(self._line, self)
        return first, not first

    def alarm(self) -> None:
        """Let all who stand in this line see to it that they can go on."""
        self._room.alarm(self._line)

    def ticket(self, server: str | None, *, look: bool) -> tuple[str | None, bool]:
        """Return the ticket for the database's queue, if there is one, and whether it is called.

        The same as before, unless the connection it belongs to was lost. ``server`` is the one to
        be called by, None for none; ``look`` allows for a ticket that nobody calls.
        """
        other = self._call is not None and server not in (None, ANY_SERVER, self._call.server)
        if self._call is None or self._call.over or other:
            self._drop()
            self._call = self._room.listener.ticket(server)
        if self._call is not None:
            return self._call.ticket, True
        if look and self._uncalled is None:
            self._uncalled = UNCALLED + self._room.runtime.token((TICKET - len(UNCALLED)) // 2)
        return self._uncalled, False

    def wait(self, seconds: float) -> tuple[bool, Passed | None]:
        """Wait for the call, so long; return whether it came, and what was passed on with it.

        It comes also when nobody can call any more.
        """
        assert self._call is not None, "only who has a ticket is called"
        called, passed = self._room.listener.wait(self._call, seconds)
        if passed is not None:  # others may have heard the ticket with that
            self._drop()
        return called, passed

    def leave(self) -> None:
        """Let the next one have the place."""
        self._room.leave(self._line, self)
        self._drop()

    def _drop(self) -> None:
        if self._call is not None:
            self._room.listener.forget(self._call)
            self._call = None


class Call:
    """One ticket, and whether it was called."""

    __slots__ = (
        "_heard",
        "_pause",
        "event",
        "over",
        "passed",
        "server",
        "ticket",
        "waits",
        "woken",
    )

    def __init__(self, ticket: str, server: str | None, event: Event) -> None:
        self.ticket = ticket
        self.server = server  # which calls it
        self.event = event  # set when there is something to look at
        self.waits = False  # somebody waits for it just now
        self.woken = False
        self.over = False  # nobody can call it
        self.passed: Passed | None = None  # what the last call said
        self._heard, self._pause = -inf, 0.0

    def hear(self, now: float) -> Passed | None:
        """Have the call looked at now, and the next ones less and less often."""
        before, passed, self.passed = self._heard, self.passed, None
        self.woken, self._heard = False, now
        again = now - before < APART
        self._pause = min(max(AGAIN, 2 * self._pause), AGAIN_MAX) if again else 0.0
        return passed

    def rest(self, now: float) -> float:
        """Return for how many seconds it is not looked at again."""
        return max(0.0, self._heard + self._pause - now)


class Listener:
    """A connection on which the database calls tickets. Made when first needed."""

    def __init__(self, connections: Connections, dialect: Dialect, runtime: Runtime) -> None:
        self._connections = connections
        self._dialect = dialect
        self._runtime = runtime
        self._refused = False  # this database cannot call, behind a pooler for one
        #: How many tickets were called so far.
        self.calls = 0
        self._open: deque[OwnConnection] = deque()  # one at most
        self._at_end = weakref.finalize(self, close_all, self._open, dialect)
        self._forget_all()

    def forget_parent(self) -> None:
        leave_to_parent(self._open)
        self._at_end.detach()
        self._open = deque()
        self._at_end = weakref.finalize(self, close_all, self._open, self._dialect)
        self._forget_all()

    def _forget_all(self) -> None:
        self._channel = ""
        self._number = 0
        self._calls: dict[str, Call] = {}  # by what everybody who listens is told of their tickets
        self._connecting = False
        # After a connection that could not be made: how long not to try, and until when.
        self._pause = self._not_before = 0.0
        self._reader: Call | None = None

    def ticket(self, server: str | None) -> Call | None:
        """Return a new ticket; None where ``server`` cannot call it."""
        if server is None:
            return None
        if server != ANY_SERVER:
            for connection in tuple(self._open):
                if connection.session.server != server:  # which another has replaced
                    self.disconnect()
            if not self._open:
                self._connect(server)
        with lock:
            if not self._open:
                return None
            self._number = (self._number + 1) % 0x10000
            number = f"{self._channel}{self._number:04x}"
            secret = self._runtime.token((TICKET - NUMBER) // 2)
            server = self._open[0].session.server
            call = self._calls[number] = Call(number + secret, server, self._runtime.event())
            return call

    def disown(self, tickets: Sequence[str]) -> None:
        """Let the database see that nobody waits with these tickets."""
        if any(ticket.startswith(self._channel) for ticket in tickets):
            self.disconnect()

    def forget(self, call: Call) -> None:
        """Have no more to do with a ticket."""
        with lock:
            self._calls.pop(call.ticket[:NUMBER], None)
        self._stop_reading(call)

    def wait(self, call: Call, seconds: float) -> tuple[bool, Passed | None]:
        """Wait until a ticket is called, so long; read for all when nobody else does.

        Return whether it was, and what was passed on with that.
        """
        now = self._runtime.now()
        until = now + seconds
        if (rest := call.rest(now)) > 0:
            self._runtime.sleep(min(rest, seconds))
        try:
            while not (call.woken or call.over):
                left = until - self._runtime.now()
                if left <= 0:
                    return False, None
                with lock:
                    call.waits = True
                    call.event.clear()
                    if call.woken or call.over:
                        break
                    if self._reader is None:
                        self._reader = call
                if self._reader is call:
                    self._read(call, until)
                else:
                    self._runtime.wait(call.event, left)
        finally:
            self._stop_reading(call)
        return True, call.hear(self._runtime.now())

    def _stop_reading(self, call: Call) -> None:
        """Let another one read."""
        with lock:
            call.waits = False
            if self._reader is call:
                self._reader = None
            if self._reader is None:
                for other in self._calls.values():
                    if other.waits and not other.woken:
                        other.event.set()
                        break
            # One that was about to go when it was closed has read no more, and nobody will.
            unread = self._void() if self._refused and self._reader is None else []
        for connection in unread:
            self._connections.drop(connection)

    def _read(self, call: Call, until: float) -> None:
        """Read until ``call`` is called, or it is ``until``."""
        while self._open and not (call.woken or call.over):
            driver, left = self._open[0].driver, until - self._runtime.now()
            try:
                if left <= 0 or not self._runtime.readable(driver.fileno(), left):
                    return
                called = self._dialect.called(driver)
            except Exception as error:
                if self._dialect.classify(error) is None:
                    raise
                _log.info("the connection that listens for free locks was lost: %s", error)
                self._lose()
                return
            with lock:
                for ticket, passed in called:
                    mine = self._calls.get(ticket[:NUMBER])
                    if mine is not None and (passed is None or mine.ticket == ticket):
                        self.calls += 1
                        mine.passed = passed or mine.passed
                        mine.woken = True
                        mine.event.set()

    def _connect(self, server: str) -> None:
        with lock:
            if self._open or self._connecting or self._refused:
                return
            if self._runtime.now() < self._not_before:
                return
            self._connecting = True
        try:
            connection = self._connections.take()
            try:
                channel = self._dialect.listen(
                    connection.driver, connection.session, self._runtime.token
                )
            except BaseException:
                self._connections.drop(connection)
                raise
            if channel is None:
                self._connections.give(connection)
                self._refused = True
                _log.info("this database cannot wake who waits for a lock: it is asked instead")
                return
            with lock:
                unwanted = self._refused or connection.session.server != server
                if not unwanted:
                    self._pause = 0.0
                    self._channel = channel
                    self._open.append(connection)
            if unwanted:  # closed by now, or on the way to a new server
                self._connections.drop(connection)
                self._rest()
        except Exception as error:
            if not isinstance(error, Trouble) and self._dialect.classify(error) is None:
                raise
            self._rest()
            _log.info(
                "nothing listens for free locks for %g s, they are asked for: %s",
                self._pause,
                error,
            )
        finally:
            self._connecting = False

    def _rest(self) -> None:
        """Try again, but not before long."""
        self._pause = min(max(PAUSE, 2 * self._pause), PAUSE_MAX)
        self._not_before = self._runtime.now() + self._pause

    def _lose(self) -> None:
        """End the connection. Who waits gets another ticket, or asks instead."""
        with lock:
            connections = self._void()
        for connection in connections:
            self._connections.drop(connection)

    def _void(self) -> list[OwnConnection]:
        """Let nobody wait any more, under the lock; return what nobody reads then."""
        for call in self._calls.values():
            call.over = True
            call.event.set()
        connections = list(self._open)
        self._open.clear()
        return connections

    def close(self) -> None:
        """Listen no more; whoever waits is woken, and finds that out."""
        self._refused = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection; who waits gets another ticket."""
        with lock:
            if self._reader is None:
                connections = self._void()
            else:  # it is for who reads to close what it waits on, which has an end now
                connections = []
                for connection in self._open:
                    self._runtime.hang_up(connection.driver.fileno())
        for connection in connections:
            self._connections.drop(connection)
