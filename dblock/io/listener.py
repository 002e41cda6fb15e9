"""The connection on which the database notifies this process: one for all its waiters."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..protocol.faults import StatementError
from .connections import close_all
from .driver_errors import first_line
from .fork import leave_to_parent
from .process_lock import lock

if TYPE_CHECKING:
    from ..dialects.adapter import Adapter
    from ..protocol.state import Passed
    from .connecting import OwnConnection
    from .connections import Connections
    from .runtime import Runtime

_log = logging.getLogger("dblock")

# Seconds between tries to listen, after the first failure and at most.
PAUSE, PAUSE_MAX = 5.0, 60.0


class Listener:
    """Makes the connection that listens, when it is needed, and again later if that failed."""

    def __init__(self, connections: Connections, adapter: Adapter, runtime: Runtime) -> None:
        self._connections = connections
        self._adapter = adapter
        self._runtime = runtime
        #: Closed, or this database cannot notify, for example behind a pooler.
        self.refused = False
        self._begin_anew()

    def forget_parent(self) -> None:
        leave_to_parent(self._open)
        self._at_end.detach()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._open: deque[OwnConnection] = deque()  # one at most
        self._at_end = weakref.finalize(self, close_all, self._open, self._adapter)
        #: The first part of each ticket that this connection's notifications are for.
        self.channel = ""
        self._connecting = False
        # After a failed try to listen: the seconds until the next, and its earliest time.
        self._pause = self._not_before = 0.0

    @property
    def server(self) -> str | None:
        """The server that notifies; None if no connection listens."""
        for connection in tuple(self._open):
            return connection.session.server
        return None

    @property
    def listens(self) -> bool:
        """Whether a connection listens."""
        return bool(self._open)

    def connect(self, server: str, *, observes: bool) -> None:
        """Listen on ``server``, unless a connection listens or it is too early for another try.

        ``observes`` means that it listens to topics too, all of them.
        """
        with lock:
            if self._open or self._connecting or self.refused:
                return
            if self._runtime.now() < self._not_before:
                return
            self._connecting = True
        try:
            connection = self._connections.take()
            try:
                channel = self._adapter.listen(
                    connection.driver, connection.session, self._runtime.token, observes=observes
                )
            except BaseException:
                self._connections.drop(connection)
                raise
            if channel is None:
                self._connections.give(connection)
                self.refused = True
                _log.info("this database cannot notify waiters for a lock: they poll instead")
                return
            with lock:
                unwanted = self.refused or connection.session.server != server
                if not unwanted:
                    self._pause = 0.0
                    self.channel = channel
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

    def read(self, until: float) -> Sequence[tuple[str, Passed | None]] | None:
        """Return the next notifications; None if none comes before the time ``until``.

        Raises StatementError if the connection is broken. Only one waiter may read at a time.
        """
        driver, left = self._open[0].driver, until - self._runtime.now()
        try:
            if left <= 0 or not self._runtime.readable(driver.fileno(), left):
                return None
            return self._adapter.called(driver)
        except Exception as error:
            fault = self._adapter.classify(error)
            if fault is None:
                raise
            _log.info("the connection that listens for free locks was lost: %s", error)
            raise StatementError(fault, first_line(error)) from error

    def hang_up(self) -> None:
        """End the connection under its reader, which finds the end of the data, and drops it.

        The reader finds that too if the connection is broken, or was ended before.
        """
        for connection in self._open:
            with contextlib.suppress(Exception):
                self._runtime.hang_up(connection.driver.fileno())

    def take(self) -> list[OwnConnection]:
        """Take the connection away, under the lock, for :meth:`drop` outside it."""
        connections = list(self._open)
        self._open.clear()
        return connections

    def drop(self, connections: Sequence[OwnConnection]) -> None:
        """Close connections that were taken away."""
        for connection in connections:
            self._connections.drop(connection)
