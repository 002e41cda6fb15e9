"""A read deadline for psycopg's connections, which have none of their own.

On a connection of dblock's own that is ready, :mod:`.sender` has the deadline. This module has it
for the user's connections, and for SQLAlchemy's statements on a new connection.

Keepalives notice a host that is gone, and ``tcp_user_timeout`` a request that is not acknowledged.
Neither notices a peer that acknowledges and never answers: a proxy, a stopped server.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from ...system import clock


def bound(connection: Any, seconds: float | None) -> None:
    """Limit each wait for this connection's server to ``seconds``; None removes the limit.

    A wait that takes longer raises :class:`psycopg.OperationalError`, and the connection is closed.
    The limit can be changed during a wait. An AsyncConnection has the same limit.
    """
    there = vars(connection).get("wait")
    bounded = isinstance(there, _BoundWait)
    if seconds is not None:
        connection.read_within = seconds
        if not bounded:
            # An instance attribute, which shadows the class's method. Assigning another `__class__`
            # costs ten times as much, because CPython's inline caches are for the first class.
            connection.wait = _BoundWait(connection, there)
    elif bounded and there.before is None:
        del connection.wait
    elif bounded:
        connection.wait = there.before


class Bound:
    """A read deadline for a ``with`` block."""

    def __init__(self, connection: Any, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds

    def __enter__(self) -> None:
        bound(self._connection, self._seconds)

    def __exit__(self, *error: object) -> None:
        bound(self._connection, None)


def within(connection: Any) -> float | None:
    """Return the limit of a connection's waits in seconds, None for none."""
    bounded = isinstance(vars(connection).get("wait"), _BoundWait)
    return connection.read_within if bounded else None


class _BoundWait:
    """The ``wait`` of a connection that has a read deadline. It calls the connection's other one.

    That is ``before``, if the application has set one on the connection, or else its class's.
    """

    def __init__(self, connection: Any, before: Callable[..., Any] | None) -> None:
        self._connection = connection
        self.before = before

    def __call__(self, waiting: Any, *args: Any, **kwargs: Any) -> Any:
        connection = self._connection
        wait = self.before or partial(type(connection).wait, connection)
        return wait(_until(clock.now(), connection, waiting), *args, **kwargs)


def _until(start: float, connection: Any, waiting: Generator[Any, Any, Any]) -> Any:
    """Wrap a psycopg generator. It yields the event to wait for; psycopg sends it the event that
    came.

    While none comes psycopg sends it 0, several times a second.
    """
    try:
        wanted = next(waiting)
        while True:
            came = yield wanted
            if not came and clock.now() >= start + connection.read_within:
                waiting.throw(give_up(connection, connection.read_within))
            wanted = waiting.send(came)
    except StopIteration as stop:
        return stop.value


def give_up(connection: Any, seconds: float) -> Exception:
    """Close a connection whose server has not answered for ``seconds``; return the error."""
    from psycopg import OperationalError

    connection.pgconn.finish()
    error = OperationalError(f"the server did not answer within {seconds:g} s")
    error.__cause__ = TimeoutError()
    return error


def given_up(error: BaseException) -> bool:
    """Whether this is the error of a wait that took too long."""
    return isinstance(error.__cause__, TimeoutError)
