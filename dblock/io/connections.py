"""dblock's own connections: made as the engine makes them, outside its pool, one stack for all.

A lock must not starve the application's pool, nor the other way round, and a statement on the hot
path cannot pay for a pool checkout and a reset. So connections come from private copies of the
engine's pool, one for each, are detached from them and kept here while idle. A connection is put
back only when its state is known; everything else is thrown away.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from queue import Empty
from typing import TYPE_CHECKING, TypeVar

from ..dialects.query import Query, Result
from ..dialects.values import UNPLACED
from ..errors import DBLockError
from ..protocol.faults import Fault, StatementError
from ..protocol.steps import Reply
from .connecting import Connector, OwnConnection, close, replaced
from .driver_errors import first_line
from .fork import begins_anew, leave_to_parent

if TYPE_CHECKING:
    from ..dialects.adapter import Adapter
    from .runtime import Runtime, Turns

R = TypeVar("R")

IDLE_MAX = 8

# After these faults a connection is not used again: it is broken, or its server cannot write.
UNUSABLE = frozenset({Fault.DISCONNECTED, Fault.READ_ONLY})


class Unlimited:
    """The permits of a semaphore without a limit."""

    def get(self, block: bool = True, timeout: float | None = None) -> None:
        pass

    def put(self, turn: None) -> None:
        pass


UNLIMITED = Unlimited()


class Permits:
    """The permits to use a connection: ``limit`` at a time, and one more for a statement that ends
    or keeps a hold, so that it does not wait for statements that only ask."""

    def __init__(self, limit: int | None, runtime: Runtime, patience: float) -> None:
        self._limit = limit
        self._runtime = runtime
        self._patience = patience
        #: When the server last answered a statement, by the process's clock.
        self.answered = -inf
        self.begin_anew()

    def begin_anew(self) -> None:
        """Make all permits anew, none of them in use."""
        self.usual: Turns = UNLIMITED
        self._last: Turns = UNLIMITED
        if self._limit is not None:
            self.usual, self._last = self._runtime.turns(self._limit), self._runtime.turns(1)

    def wait(self, *, first: bool) -> Turns:
        """Wait for a permit, for as long as the server answers the statements that have one.

        Return the turns that it is from. ``first`` is as for :meth:`Connections.take`.
        """
        turns = self._last if first else self.usual
        left = self._patience if first else self.answered + self._patience - self._runtime.now()
        while left > 0:
            with contextlib.suppress(Empty):
                turns.get(True, left)
                return turns
            left = self.answered + self._patience - self._runtime.now()
        busy = f"all {self._limit} connections of dblock are busy, and the server answers none"
        raise StatementError(Fault.UNREACHABLE, busy)


class Connections:
    """Connections in autocommit mode, each used by one thread or task at a time.

    At most ``limit`` are in use at once; see :class:`Permits`. A statement waits for a permit for
    as long as the server answers other statements, and up to ``Timeouts.socket`` if it does not.

    The ``connector`` makes them, and ``check`` checks each new one. ``placed`` puts the place of
    the tables into a statement that was made before the place was known. ``beside`` are other
    Connections. If the server accepts no more connections, their idle ones are used, except the
    last one, on which leases are renewed.
    """

    def __init__(
        self,
        connector: Connector,
        *,
        limit: int | None = None,
        runtime: Runtime,
        check: Callable[[Connections, OwnConnection], None] | None = None,
        placed: Callable[[str], str] = str,
        beside: Connections | None = None,
    ) -> None:
        self.connector = connector
        self._adapter = connector.adapter
        self._runtime = runtime
        self._check = check
        self._placed = placed
        self._idle: deque[OwnConnection] = deque()
        self._beside = beside
        self._permits = Permits(limit, runtime, self._adapter.timeouts.socket)
        self._closed = False
        self._cleared = 0
        weakref.finalize(self, close_all, self._idle, self._adapter)
        begins_anew(self)

    def take(self, *, first: bool = False) -> OwnConnection:
        """Return a usable connection; ``first`` is for a statement that ends or keeps a hold.

        Raises StatementError when none can be made: nothing was sent.
        """
        if self._closed:
            raise ValueError("these Locks are closed")
        turns = self._permits.usual
        try:
            turns.get(not first, self._adapter.timeouts.socket)
        except Empty:
            turns = self._permits.wait(first=first)
        try:
            connection = self._take_idle()
            if connection is None:
                make = partial(self._connect, self._cleared)
                connection = self._runtime.connect(make, self.give)
        except BaseException as error:
            full = isinstance(error, StatementError) and not error.timed_out and not error.kind
            connection = self._beside._spare() if full and self._beside is not None else None
            if connection is None:
                turns.put(None)
                raise
        connection.turns = turns
        return connection

    def _connect(self, cleared: int) -> OwnConnection:
        try:
            return self.connector.connect(cleared, self._verify)
        except DBLockError as error:
            # dblock refused it. As a fault of a statement it reaches the procedure, which may have
            # a try in doubt, and then says OutcomeUnknown.
            # Not the cause in a variable: its traceback has this frame.
            raise StatementError(Fault.SETUP, str(error), kind=type(error)) from error.__cause__

    def _verify(self, connection: OwnConnection) -> None:
        if self._check is not None:
            self._check(self, connection)

    def _spare(self) -> OwnConnection | None:
        """Return an idle connection, unless it is the last one."""
        connection = self._take_idle() if len(self._idle) > 1 else None
        if connection is not None and not self._idle:  # another thread took one at the same time
            self.give(connection)
            return None
        return connection

    def _take_idle(self) -> OwnConnection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if not connection.broken() and connection.session.server not in replaced:
                return connection
            close(connection.driver, self._adapter)
        return None

    def execute(
        self,
        connection: OwnConnection,
        query: Query[R],
        within: float | None = None,
        *,
        waits: bool = False,
    ) -> Reply[R]:
        """Run one statement on one of these connections; await its result ``within`` seconds.

        ``waits`` is as in :class:`.Send`. Raises StatementError for a fault of the database.
        """
        adapter, session = self._adapter, connection.session
        socket = adapter.timeouts.socket
        if UNPLACED in query.sql:  # made before the first connection showed where the tables are
            query = query._replace(sql=self._placed(query.sql))
        sent = self._runtime.now()
        try:
            result = connection.send(
                query, socket if within is None else min(within, socket), waits
            )
        except Exception as error:
            fault = adapter.classify(error)
            if fault is None:
                raise
            lost = fault is Fault.DISCONNECTED
            if not lost:
                self._permits.answered = self._runtime.now()
            raise StatementError(
                fault,
                first_line(error),
                timed_out=lost and adapter.timed_out(error),
                end=session.end if lost else None,
            ) from error
        if session.doubts:  # the answer proves nothing: a standby may not have the commit
            raise StatementError(Fault.DISCONNECTED, session.doubts.pop())
        self._permits.answered = answered = self._runtime.now()
        # Result(...) and Reply(...) would each be one more call of a function in Python.
        answer = query.read(tuple.__new__(Result, result))
        return tuple.__new__(Reply, (answer, sent, answered, session.server))

    def give(self, connection: OwnConnection) -> None:
        """Put back a connection that is outside any transaction."""
        turns, connection.turns = connection.turns, None
        self._idle.append(connection)
        # Append it first: a `clear` that comes after the check below has to find it there.
        stale = connection.cleared != self._cleared
        if self._closed or stale or len(self._idle) > IDLE_MAX:
            with contextlib.suppress(ValueError):  # another thread has taken it
                self._idle.remove(connection)
                close(connection.driver, self._adapter)
        if turns is not None:  # it was made too late for its caller, or not used
            turns.put(None)

    def drop(self, connection: OwnConnection) -> None:
        """Close a connection, whatever state it is in. Its locks on the server end with it."""
        close(connection.driver, self._adapter)
        assert connection.turns is not None
        connection.turns.put(None)

    def clear(self) -> None:
        """Close all present connections, and each one in use when it is put back.

        The caller has found one broken, so the others are suspect.
        """
        self._cleared += 1
        close_all(self._idle, self._adapter)

    def close(self) -> None:
        self._closed = True
        self.clear()

    def forget_parent(self) -> None:
        leave_to_parent(tuple(self._idle))
        self._idle.clear()
        self._permits.begin_anew()


def close_all(connections: deque[OwnConnection], adapter: Adapter) -> None:
    """Close connections, whatever state they are in."""
    while True:
        try:
            close(connections.pop().driver, adapter)
        except IndexError:
            return
