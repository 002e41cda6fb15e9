"""dblock's own connections. They are made as the engine makes its own, outside its pool."""

from __future__ import annotations

import codecs
import contextlib
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..dialects.look_alikes import unreadable
from ..errors import Unsupported
from ..protocol.faults import Fault, StatementError
from .driver_errors import first_line, is_driver_error
from .target import File

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from sqlalchemy.pool import ConnectionPoolEntry, Pool

    from ..dialects.adapter import Adapter, Send, ServerSession
    from .runtime import Turns

_log = logging.getLogger("dblock")

_NO_FILE = (FileNotFoundError, PermissionError)

#: The servers that this process has reached, and the reached ones that a failover has replaced.
reached: set[str] = set()
replaced: set[str] = set()


@dataclass(slots=True, eq=False)
class OwnConnection:
    """A driver's connection, and how the server knows it."""

    driver: Any
    session: ServerSession
    send: Send
    broken: Callable[[], object]
    #: How often its :class:`.Connections` had been cleared when it was made.
    cleared: int = 0
    #: The semaphore that gets its permit back when the connection is put back.
    turns: Turns | None = None


class Connector:
    """Makes connections. A private copy of the engine's pool makes each one and detaches it. A file
    needs no pool.

    If the engine is ``lent``, the user has chosen how it connects: dblock only warns of a missing
    timeout.
    """

    def __init__(self, source: Engine | File, adapter: Adapter, *, lent: bool = False) -> None:
        self.source = source
        self.adapter = adapter
        self._lent = lent
        self._make = source.connect if isinstance(source, File) else self._pooled(source)

    def _pooled(self, engine: Engine) -> Callable[[], Any]:
        from sqlalchemy import event

        # Resolving a host name imports this codec. If the import is interrupted while another
        # thread looks the codec up too, no thread of the process can import it later. So it comes
        # first.
        codecs.lookup("idna")
        pool = engine.pool.recreate()
        # Insert it first, because SQLAlchemy sends statements on a new connection itself.
        event.listen(pool, "connect", self._bound, insert=True)
        return partial(detached, pool)

    def _bound(self, adapted: object, record: ConnectionPoolEntry) -> None:
        driver = record.driver_connection
        lent, self._lent = self._lent, False
        if lent:
            _warn_of_unbounded(self.adapter, driver)
        self.adapter.bound_reads(driver, self.adapter.timeouts.connect)

    def connect(self, cleared: int, verify: Callable[[OwnConnection], None]) -> OwnConnection:
        """Make a connection and prepare it. ``cleared`` is how often its owner was cleared before.

        ``verify`` can still refuse it. If dblock cannot make one, this raises StatementError, and
        nothing was sent.
        """
        self.adapter.check_process()
        driver = None
        try:
            driver = self._make()
            session = self.adapter.prepare_connection(driver)
            send, broken = self.adapter.sender(driver), self.adapter.broken(driver)
            connection = OwnConnection(driver, session, send, broken, cleared)
            if session.server is not None:
                _note(session.server, self.adapter)
                if session.server in replaced:
                    raise StatementError(Fault.UNREACHABLE, _BEHIND)
            verify(connection)
        except (TypeError, ValueError, AttributeError, *_NO_FILE) as error:
            if driver is not None:
                close(driver, self.adapter)
                raise
            if isinstance(error, _NO_FILE):  # a certificate's file is missing, perhaps for a while
                raise StatementError(Fault.UNREACHABLE, str(error), misconfigured=True) from error
            # The URL has an option that the driver does not know, or a value that it refuses.
            raise Unsupported(f"the driver refuses to connect: {error}") from error
        except BaseException as raised:
            if driver is not None:
                close(driver, self.adapter)
            # psycopg keeps an attempt that it gave up, and its socket, in a cycle with the error.
            traceback.clear_frames(raised.__traceback__)
            if not is_driver_error(_cause(raised)):
                raise
            # Not in a variable of this frame: the frame and the error would keep each other alive,
            # and with them the caller's objects.
            raise self._unreachable(_cause(raised)) from _cause(raised)
        return connection

    def _unreachable(self, cause: BaseException) -> StatementError:
        """Return the error for a connection that could not be made."""
        fault, misconfigured = self.adapter.classify(cause), self.adapter.misconfigured(cause)
        if misconfigured or fault is None or fault in (Fault.DISCONNECTED, Fault.BUSY):
            fault = Fault.UNREACHABLE
        return StatementError(
            fault,
            first_line(cause),
            timed_out=self.adapter.timed_out(cause),
            misconfigured=misconfigured,
        )


def _note(server: str, adapter: Adapter) -> None:
    """Note that a server was reached."""
    reached.add(server)  # before the loop, for other threads that note a server now
    for other in tuple(reached):
        if adapter.precedes(other, server):
            replaced.add(other)
        elif adapter.precedes(server, other):
            replaced.add(server)


_BEHIND = (
    "this server accepts writes, but another has taken its place: this process has reached a later "
    "timeline. Fence the old primary. If you put it back on purpose, restart this process"
)


def _warn_of_unbounded(adapter: Adapter, driver: Any) -> None:
    """Warn of the timeouts that a connection of the user's engine lacks."""
    missing = adapter.unbounded(driver)
    if missing:
        _log.warning(
            "this engine connects without %s: if the network fails silently, its connections hang "
            "until the operating system gives up. Set them in create_engine's connect_args",
            " and ".join(missing),
        )


def close(driver: Any, adapter: Adapter) -> None:
    """Close a driver's connection, whatever state it is in."""
    with contextlib.suppress(Exception):
        adapter.close(driver)


def _cause(raised: BaseException) -> BaseException:
    """Return the driver's own error."""
    orig = getattr(raised, "orig", None)  # of a statement that SQLAlchemy sends on the first one
    return orig if isinstance(orig, BaseException) else raised


def detached(pool: Pool) -> Any:
    """Return a driver's connection, made as a pool makes its own, and detached from it.

    In a pool of any class a thread may wait while another one connects. A copy of the pool has its
    events, and no such thread.
    """
    from sqlalchemy.exc import InvalidRequestError

    try:
        proxy = pool.recreate().connect()
    except (AssertionError, InvalidRequestError) as error:  # SQLAlchemy looked at its version
        raise unreadable(str(error)) from error
    except RuntimeError as error:  # MySQL's usual login, over a connection without TLS
        if "'cryptography' package" not in str(error):
            raise
        raise Unsupported(
            f"the driver cannot log in: {error}. pip install 'dblock[mysql]', or connect over TLS"
        ) from error
    connection = proxy.driver_connection
    proxy.detach()
    return connection
