"""The subscriptions of the waiters of a ``Locks`` to the notifications of the database.

No thread of its own reads them: one of the waiters reads for all, and another one when that leaves.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from ..dialects.tickets import NUMBER, TICKET
from ..protocol.faults import StatementError
from ..protocol.state import Passed
from ..protocol.steps import ANY_SERVER
from .listener import Listener
from .process_lock import lock

if TYPE_CHECKING:
    from ..dialects.adapter import Adapter
    from .connecting import OwnConnection
    from .connections import Connections
    from .runtime import Event, Runtime

# A rate limit, because every client that may connect can send notifications. A waiter that is
# notified repeatedly pauses before it reads the row: AGAIN seconds at first, AGAIN_MAX at most.
# Notifications that are APART seconds apart do not count as repeated.
AGAIN, AGAIN_MAX, APART = 0.01, 0.1, 1.0


class Subscription:
    """One ticket, and whether it was notified."""

    __slots__ = (
        "_heard",
        "_pause",
        "event",
        "over",
        "passed",
        "server",
        "ticket",
        "topic",
        "waits",
        "woken",
    )

    def __init__(self, ticket: str, server: str | None, topic: str | None = None) -> None:
        self.ticket = ticket
        self.topic = topic  # a notification of this topic wakes all its subscriptions
        self.server = server  # the server that notifies it
        # Set when the waiter has something to read. Made when another waiter reads for it.
        self.event: Event | None = None
        self.waits = False  # a waiter is in wait() just now
        self.woken = False
        self.over = False  # its connection is gone: no notification can come
        self.passed: Passed | None = None  # the hold in the last notification
        self._heard, self._pause = -inf, 0.0

    def wake(self) -> None:
        """Wake the waiter."""
        self.woken = True
        self.call()

    def call(self) -> None:
        """Set the waiter's event, if it has one."""
        if self.event is not None:
            self.event.set()

    def hear(self, now: float) -> Passed | None:
        """Accept a notification: the waiter reads the row now. Repeated ones pause ever longer.

        Return the hold that was passed on with it.
        """
        before, passed, self.passed = self._heard, self.passed, None
        self.woken, self._heard = False, now
        again = now - before < APART
        self._pause = min(max(AGAIN, 2 * self._pause), AGAIN_MAX) if again else 0.0
        return passed

    def rest(self, now: float) -> float:
        """Return the seconds that the waiter has to pause before it accepts the next one."""
        return max(0.0, self._heard + self._pause - now)


class Notifier:
    """Keeps the subscriptions, and wakes the waiters by what the :class:`.Listener` receives."""

    def __init__(self, connections: Connections, adapter: Adapter, runtime: Runtime) -> None:
        self._runtime = runtime
        self.listener = Listener(connections, adapter, runtime)
        #: Notifications received for tickets so far.
        self.calls = 0
        #: The ids of the objects that observe topics.
        self._observers: set[int] = set()
        self._begin_anew()

    def forget_parent(self) -> None:
        self.listener.forget_parent()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._number = 0
        self._observes = False  # whether the connection listens to topics too, all of them
        # Subscriptions by the public part of the ticket, which any listener may see.
        self._calls: dict[str, Subscription] = {}
        self._reader: Subscription | None = None

    def ticket(self, server: str | None, topic: str | None = None) -> Subscription | None:
        """Return a new subscription; None if ``server`` cannot notify it.

        With a ``topic`` a notification of that wakes it too.
        """
        if server is None:
            return None
        if topic is not None and not self._observes:
            self._observes = True
            self.disconnect()  # that connection listens for tickets alone
        listener = self.listener
        if server != ANY_SERVER:
            if listener.listens and listener.server != server:
                self.disconnect()  # another server has replaced its server
            if not listener.listens:
                observes = self._observes
                listener.connect(server, observes=observes)
                if observes != self._observes:  # an observer came or went meanwhile
                    self.disconnect()
        with lock:
            if not listener.listens:
                return None
            self._number += 1
            while (number := f"{listener.channel}{self._number % 0x10000:04x}") in self._calls:
                self._number += 1
            secret = self._runtime.token((TICKET - NUMBER) // 2)
            call = self._calls[number] = Subscription(number + secret, listener.server, topic)
            return call

    def observed_by(self, observer: object) -> None:
        """Listen to topics for as long as this observer exists, from the first ticket for one."""
        self._observers.add(id(observer))
        weakref.finalize(observer, self._leave_unobserved, id(observer)).atexit = False

    def _leave_unobserved(self, observer: int) -> None:
        with lock:
            self._observers.discard(observer)
            if self._observers or not self._observes:
                return
            # No reader would take the topics' notifications off the socket. A reader of tickets
            # finds the connection closed, and connects again without topics.
            self._observes = False
            self.listener.hang_up()

    def disown(self, tickets: Sequence[str]) -> None:
        """Close the connection if it listens for these tickets, so that the database sees them as
        dead."""
        if any(ticket.startswith(self.listener.channel) for ticket in tickets):
            self.disconnect()

    def forget(self, call: Subscription) -> None:
        """Remove a subscription."""
        with lock:
            self._calls.pop(call.ticket[:NUMBER], None)
        self._stop_reading(call)

    def wait(self, call: Subscription, seconds: float) -> tuple[bool, Passed | None]:
        """Wait for a notification, for ``seconds`` at most; read for all if no other waiter does.

        Return whether one came or none can come any more, and the hold that was passed on with it.
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
                    if call.woken or call.over:
                        break
                    call.waits = True
                    if self._reader is None:
                        self._reader = call
                    reads = self._reader is call
                    if not reads:
                        call.event = event = call.event or self._runtime.event()
                        event.clear()
                if reads:
                    self._read(call, until)
                else:
                    self._runtime.wait(event, left)
        finally:
            self._stop_reading(call)
        return True, call.hear(self._runtime.now())

    def _stop_reading(self, call: Subscription) -> None:
        """Let another waiter read."""
        with lock:
            call.waits = False
            if self._reader is call:
                self._reader = None
            if self._reader is None:
                for other in self._calls.values():
                    if other.waits and not other.woken:
                        other.call()
                        break
            # This reader was about to leave when the notifier was closed. No other waiter will
            # read, so the connection is closed here.
            unread = self._void() if self.listener.refused and self._reader is None else []
        if unread:
            self.listener.drop(unread)

    def _read(self, call: Subscription, until: float) -> None:
        """Read notifications until one is for ``call``, or until the time ``until``."""
        while not (call.woken or call.over) and self.listener.listens:
            try:
                called = self.listener.read(until)
            except StatementError:
                with lock:  # its waiters get other tickets, or poll
                    lost = self._void()
                self.listener.drop(lost)
                return
            if called is None:
                return
            with lock:
                for ticket, passed in called:
                    mine = self._calls.get(ticket[:NUMBER])
                    if mine is not None and (passed is None or mine.ticket == ticket):
                        self.calls += 1
                        mine.passed = passed or mine.passed
                        mine.wake()
                    for other in self._calls.values() if self._observes else ():
                        if other.topic == ticket:
                            other.wake()

    def _void(self) -> list[OwnConnection]:
        """Wake all waiters for good, under the lock; return the connection, for the caller to
        drop."""
        for call in self._calls.values():
            call.over = True
            call.call()
        return self.listener.take()

    def close(self) -> None:
        """Stop listening for good, and wake the waiters."""
        self.listener.refused = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection. Its waiters get other tickets."""
        with lock:
            if self._reader is None:
                connections = self._void()
            else:  # the reader waits on the socket: it finds the end of the data, and drops it
                connections = []
                self.listener.hang_up()
        self.listener.drop(connections)
