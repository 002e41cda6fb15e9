"""The connection on which the database notifies waiters: one for all waiters of a ``Locks``.

It needs no thread of its own: one of the waiters reads for all, and another one when that leaves.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from ..dialects.tickets import NUMBER, TICKET
from ..protocol.faults import StatementError
from ..protocol.state import Passed
from ..protocol.steps import ANY_SERVER
from .connections import close_all
from .fork import leave_to_parent
from .process_lock import lock

if TYPE_CHECKING:
    from ..dialects.adapter import Adapter
    from .connecting import OwnConnection
    from .connections import Connections
    from .runtime import Event, Runtime

_log = logging.getLogger("dblock")

# Seconds between tries to listen, after the first failure and at most.
PAUSE, PAUSE_MAX = 5.0, 60.0
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

    def __init__(
        self, ticket: str, server: str | None, event: Event, topic: str | None = None
    ) -> None:
        self.ticket = ticket
        self.topic = topic  # a notification of this topic wakes all its subscriptions
        self.server = server  # the server that notifies it
        self.event = event  # set when the waiter has something to read
        self.waits = False  # a waiter is in wait() just now
        self.woken = False
        self.over = False  # its connection is gone: no notification can come
        self.passed: Passed | None = None  # the hold in the last notification
        self._heard, self._pause = -inf, 0.0

    def wake(self) -> None:
        """Wake the waiter."""
        self.woken = True
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
    """Keeps the subscriptions, and the connection that listens for them, made when first needed."""

    def __init__(self, connections: Connections, adapter: Adapter, runtime: Runtime) -> None:
        self._connections = connections
        self._adapter = adapter
        self._runtime = runtime
        self._refused = False  # closed, or this database cannot notify, for example behind a pooler
        #: Notifications received for tickets so far.
        self.calls = 0
        #: The ids of the objects that observe topics.
        self._observers: set[int] = set()
        self._open: deque[OwnConnection] = deque()  # one at most
        self._at_end = weakref.finalize(self, close_all, self._open, adapter)
        self._forget_all()

    def forget_parent(self) -> None:
        leave_to_parent(self._open)
        self._at_end.detach()
        self._open = deque()
        self._at_end = weakref.finalize(self, close_all, self._open, self._adapter)
        self._forget_all()

    def _forget_all(self) -> None:
        self._channel = ""
        self._number = 0
        self._observes = False  # whether the connection listens to topics too, all of them
        # Subscriptions by the public part of the ticket, which any listener may see.
        self._calls: dict[str, Subscription] = {}
        self._connecting = False
        # After a failed try to listen: the seconds until the next, and its earliest time.
        self._pause = self._not_before = 0.0
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
        if server != ANY_SERVER:
            for connection in tuple(self._open):
                if connection.session.server != server:  # another server has replaced its server
                    self.disconnect()
            if not self._open:
                self._connect(server)
        with lock:
            if not self._open:
                return None
            self._number += 1
            while (number := f"{self._channel}{self._number % 0x10000:04x}") in self._calls:
                self._number += 1
            secret = self._runtime.token((TICKET - NUMBER) // 2)
            server = self._open[0].session.server
            call = self._calls[number] = Subscription(
                number + secret, server, self._runtime.event(), topic
            )
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
            for connection in self._open:
                with contextlib.suppress(Exception):  # it may be broken
                    self._runtime.hang_up(connection.driver.fileno())

    def disown(self, tickets: Sequence[str]) -> None:
        """Close the connection if it listens for these tickets, so that the database sees them as
        dead."""
        if any(ticket.startswith(self._channel) for ticket in tickets):
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

    def _stop_reading(self, call: Subscription) -> None:
        """Let another waiter read."""
        with lock:
            call.waits = False
            if self._reader is call:
                self._reader = None
            if self._reader is None:
                for other in self._calls.values():
                    if other.waits and not other.woken:
                        other.event.set()
                        break
            # This reader was about to leave when the notifier was closed. No other waiter will
            # read, so the connection is closed here.
            unread = self._void() if self._refused and self._reader is None else []
        for connection in unread:
            self._connections.drop(connection)

    def _read(self, call: Subscription, until: float) -> None:
        """Read notifications until one is for ``call``, or until the time ``until``."""
        while self._open and not (call.woken or call.over):
            driver, left = self._open[0].driver, until - self._runtime.now()
            try:
                if left <= 0 or not self._runtime.readable(driver.fileno(), left):
                    return
                called = self._adapter.called(driver)
            except Exception as error:
                if self._adapter.classify(error) is None:
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
                        mine.wake()
                    for other in self._calls.values() if self._observes else ():
                        if other.topic == ticket:
                            other.wake()

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
                channel = self._adapter.listen(
                    connection.driver,
                    connection.session,
                    self._runtime.token,
                    observes=self._observes,
                )
            except BaseException:
                self._connections.drop(connection)
                raise
            if channel is None:
                self._connections.give(connection)
                self._refused = True
                _log.info("this database cannot notify waiters for a lock: they poll instead")
                return
            with lock:
                unwanted = self._refused or connection.session.server != server
                if not unwanted:
                    self._pause = 0.0
                    self._channel = channel
                    self._open.append(connection)
            if unwanted:  # closed meanwhile, or connected to another server
                self._connections.drop(connection)
                self._rest()
        except Exception as error:
            if not isinstance(error, StatementError) and self._adapter.classify(error) is None:
                raise
            self._rest()
            _log.info(
                "dblock cannot listen for free locks, and tries again in %g s. Until then waiters "
                "poll: %s",
                self._pause,
                error,
            )
        finally:
            self._connecting = False

    def _rest(self) -> None:
        """Set the time of the next try to listen, later after each failure."""
        self._pause = min(max(PAUSE, 2 * self._pause), PAUSE_MAX)
        self._not_before = self._runtime.now() + self._pause

    def _lose(self) -> None:
        """Drop the connection. Its waiters get other tickets, or poll."""
        with lock:
            connections = self._void()
        for connection in connections:
            self._connections.drop(connection)

    def _void(self) -> list[OwnConnection]:
        """Wake all waiters for good, under the lock; return the connection, for the caller to
        drop."""
        for call in self._calls.values():
            call.over = True
            call.event.set()
        connections = list(self._open)
        self._open.clear()
        return connections

    def close(self) -> None:
        """Stop listening for good, and wake the waiters."""
        self._refused = True
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection. Its waiters get other tickets."""
        with lock:
            if self._reader is None:
                connections = self._void()
            else:  # the reader waits on the socket: it finds the end of the data, and drops it
                connections = []
                for connection in self._open:
                    self._runtime.hang_up(connection.driver.fileno())
        for connection in connections:
            self._connections.drop(connection)
