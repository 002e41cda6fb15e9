"""dblock's own connections: made as the engine makes them, outside its pool, one stack for all.

A lock must not starve the application's pool, nor the other way round, and a statement on the hot
path cannot pay for a pool checkout and a reset. So connections come from private copies of the
engine's pool, one for each, are detached from them and kept here while idle. A connection is put
back only when its state is known; everything else is thrown away.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from ..dialects.look_alikes import unreadable
from ..errors import Unsupported
from ..protocol.faults import Fault, StatementError
from ..protocol.steps import Query, Reply
from .driver_errors import first_line, is_driver_error
from .fork import begins_anew, leave_to_parent

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from sqlalchemy.pool import ConnectionPoolEntry, Pool

    from ..dialects.adapter import Adapter, ServerSession
    from .runtime import Runtime, Semaphore

_log = logging.getLogger("dblock")

IDLE_MAX = 8

# After these a connection is not used again: it is broken, or leads to a server that cannot write.
UNUSABLE = frozenset({Fault.DISCONNECTED, Fault.READ_ONLY})

# The servers that this process has reached.
_reached: set[str] = set()


@dataclass(frozen=True, slots=True, eq=False)
class OwnConnection:
    """A driver's connection, and how the server knows it."""

    driver: Any
    session: ServerSession
    #: How often its :class:`Connections` had been cleared when it was made.
    cleared: int = 0
    #: Kept for all its statements, where making a cursor takes its time.
    cursor: Any = None


class Connections:
    """Connections in autocommit mode, each used by one thread or task at a time.

    ``limit`` bounds how many are in use at once; a statement waits for its turn up to
    ``Timeouts.socket``. ``verify`` is called with the first connection made. ``lent`` tells
    that the engine is the user's, and how it connects is not ours to say. ``beside`` are others
    whose idle connections are used where a server takes no more of them, but for one, by which
    leases are renewed.
    """

    def __init__(
        self,
        engine: Engine,
        adapter: Adapter,
        *,
        limit: int | None = None,
        runtime: Runtime,
        verify: Callable[[OwnConnection], None] | None = None,
        lent: bool = False,
        beside: Connections | None = None,
    ) -> None:
        self._adapter = adapter
        self._runtime = runtime
        self._pool = engine.pool.recreate()
        # The first: SQLAlchemy itself asks things of a new connection.
        event.listen(self._pool, "connect", self._bound, insert=True)
        self._idle: deque[OwnConnection] = deque()
        self._beside = beside
        self._lent = lent
        self._limit = limit
        self._turns = self._new_turns()
        self._verify = verify
        self._closed = False
        self._cleared = 0
        weakref.finalize(self, close_all, self._idle, adapter)
        begins_anew(self)

    def _new_turns(self) -> Semaphore | None:
        return None if self._limit is None else self._runtime.semaphore(self._limit)

    def _bound(self, adapted: object, record: ConnectionPoolEntry) -> None:
        driver = record.driver_connection
        lent, self._lent = self._lent, False
        if lent:
            _warn_of_unbounded(self._adapter, driver)
        self._adapter.bound_reads(driver, self._adapter.timeouts.connect)

    def take(self) -> OwnConnection:
        """Return a usable connection.

        Raises StatementError when none can be made: nothing was sent.
        """
        if self._closed:
            raise ValueError("these Locks are closed")
        if self._turns is not None and not self._turns.acquire(
            timeout=self._adapter.timeouts.socket
        ):
            raise StatementError(
                Fault.UNREACHABLE, f"all {self._limit} connections of dblock are busy"
            )
        try:
            return self._take_idle() or self._runtime.connect(self._connect, self._keep)
        except BaseException as error:
            refused = isinstance(error, StatementError) and not error.timed_out
            connection = self._beside._spare() if refused and self._beside is not None else None
            if connection is not None:
                return connection
            self._end_turn()
            raise

    def _spare(self) -> OwnConnection | None:
        """Return an idle connection, unless it is the last one."""
        connection = self._take_idle() if len(self._idle) > 1 else None
        if connection is not None and not self._idle:  # another thread had the same thought
            self._keep(connection)
            return None
        return connection

    def _take_idle(self) -> OwnConnection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if self._adapter.is_usable(connection.driver) and not self._behind(connection):
                return connection
            _close(connection.driver, self._adapter)
        return None

    def _behind(self, connection: OwnConnection) -> bool:
        """Whether this process has reached a server since that another one's failover made."""
        server = connection.session.server
        if server is None or len(_reached) == 1:
            return False
        return any(self._adapter.precedes(server, other) for other in tuple(_reached))

    def execute(
        self,
        connection: OwnConnection,
        query: Query[Any],
        within: float | None = None,
        *,
        waits: bool = False,
    ) -> Reply:
        """Run one statement on a connection of these, its answer awaited for ``within`` seconds.

        ``waits`` is as in :meth:`.Adapter.send`. Raises StatementError for what a database can do.
        """
        adapter, driver, session = self._adapter, connection.driver, connection.session
        if within is not None:
            adapter.bound_reads(driver, min(within, adapter.timeouts.socket))
        sent = self._runtime.now()
        try:
            while True:
                try:
                    rows, matched = adapter.send(driver, query, connection.cursor, waits=waits)
                    break
                except Exception as error:
                    if adapter.can_resend(driver, error):
                        continue
                    fault = adapter.classify(error)
                    if fault is None:
                        raise
                    lost = fault is Fault.DISCONNECTED
                    raise StatementError(
                        fault,
                        first_line(error),
                        timed_out=lost and adapter.timed_out(error),
                        end=session.end if lost else None,
                    ) from error
        finally:
            if within is not None:
                adapter.bound_reads(driver, adapter.timeouts.socket)
        if session.doubts:  # as good as none
            raise StatementError(Fault.DISCONNECTED, session.doubts.pop())
        return Reply(rows, matched, sent, self._runtime.now(), session.server)

    def give(self, connection: OwnConnection) -> None:
        """Put back a connection that is outside any transaction."""
        self._keep(connection)
        self._end_turn()

    def _keep(self, connection: OwnConnection) -> None:
        self._idle.append(connection)
        # Not before: whoever clears them after this was asked has to find it there.
        stale = connection.cleared != self._cleared
        if self._closed or stale or len(self._idle) > IDLE_MAX:
            with contextlib.suppress(ValueError):  # another thread has it by now
                self._idle.remove(connection)
                _close(connection.driver, self._adapter)

    def drop(self, connection: OwnConnection) -> None:
        """Close a connection, whatever state it is in. What it held on the server ends with it."""
        _close(connection.driver, self._adapter)
        self._end_turn()

    def _end_turn(self) -> None:
        if self._turns is not None:
            self._turns.release()

    def clear(self) -> None:
        """Close the connections that there are, those in use when they are put back.

        After one was found broken, the others are suspect.
        """
        self._cleared += 1
        close_all(self._idle, self._adapter)

    def close(self) -> None:
        self._closed = True
        self.clear()

    def _connect(self) -> OwnConnection:
        driver = None
        cleared = self._cleared
        try:
            driver = detached(self._pool)
            session = self._adapter.prepare_connection(driver)
            connection = OwnConnection(driver, session, cleared, self._adapter.cursor(driver))
            if session.server is not None:
                _reached.add(session.server)
                if self._behind(connection):
                    raise StatementError(Fault.UNREACHABLE, _BEHIND)
            verify = self._verify
            if verify is not None:
                verify(connection)
                self._verify = None
            self._adapter.bound_reads(driver, self._adapter.timeouts.socket)
        except TypeError as error:
            if driver is not None:
                raise
            # An option of the URL that the driver does not have.
            raise Unsupported(f"the driver refuses to connect: {error}") from error
        except BaseException as raised:
            if driver is not None:
                _close(driver, self._adapter)
            # psycopg keeps an attempt that it gave up, and its socket, in a cycle with the error.
            traceback.clear_frames(raised.__traceback__)
            if not is_driver_error(_cause(raised)):
                raise
            # No variable of this frame has it: they would keep each other, and whoever connects.
            raise self._unreachable(_cause(raised)) from _cause(raised)
        return connection

    def _unreachable(self, cause: BaseException) -> StatementError:
        """Return what to tell of a connection that could not be made."""
        fault = self._adapter.classify(cause)
        if fault is None or fault in (Fault.DISCONNECTED, Fault.BUSY):
            fault = Fault.UNREACHABLE
        return StatementError(fault, first_line(cause), timed_out=self._adapter.timed_out(cause))

    def forget_parent(self) -> None:
        leave_to_parent(tuple(self._idle))
        self._idle.clear()
        self._turns = self._new_turns()


_BEHIND = (
    "this server can be written to, but another has taken its place: this process has reached a "
    "later timeline of it. Fence the old primary. Where it was put back on purpose, start anew"
)


def _warn_of_unbounded(adapter: Adapter, driver: Any) -> None:
    """Say what a connection that the user's engine made lacks, for it to end in time."""
    missing = adapter.unbounded(driver)
    if missing:
        _log.warning(
            "this engine connects without %s: on a network that fails silently its connections "
            "hang for as long as the operating system says. Give them in create_engine's "
            "connect_args",
            " and ".join(missing),
        )


def _close(driver: Any, adapter: Adapter) -> None:
    with contextlib.suppress(Exception):
        adapter.close(driver)


def close_all(connections: deque[OwnConnection], adapter: Adapter) -> None:
    """Close connections, whatever state they are in."""
    while True:
        try:
            _close(connections.pop().driver, adapter)
        except IndexError:
            return


def _cause(raised: BaseException) -> BaseException:
    """Return the driver's own error."""
    if isinstance(raised, DBAPIError) and raised.orig is not None:
        return raised.orig  # of what SQLAlchemy itself asks an engine's first connection
    return raised


def detached(pool: Pool) -> Any:
    """Return a driver connection made as a pool makes them, which has no part in it.

    A pool, of whatever class, lets some wait while others connect. A copy has its events, and
    nobody who waits.
    """
    try:
        proxy = pool.recreate().connect()
    except AssertionError as error:  # SQLAlchemy reads the version of the first
        raise unreadable(str(error)) from error
    connection = proxy.driver_connection
    proxy.detach()
    return connection
