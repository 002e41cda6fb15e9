"""A read deadline for psycopg's connections, which have none of their own.

Those of dblock's own have it where they wait, in :mod:`.sender`, once they are made; the user's,
and whatever SQLAlchemy asks of a new one, have it here.

Keepalives notice a host that is gone, and ``tcp_user_timeout`` a request that nobody acknowledges.
Neither notices a peer that acknowledges and never answers: a proxy, a stopped server.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from ...system import clock


def bound(connection: Any, seconds: float | None) -> None:
    """Let no wait for this connection's server take longer; None takes the bound off.

    What takes longer raises :class:`psycopg.OperationalError`, and the connection is closed. The
    bound can be changed during a wait. The same goes for an AsyncConnection.
    """
    there = vars(connection).get("wait")
    bounded = isinstance(there, _BoundWait)
    if seconds is not None:
        connection.read_within = seconds
        if not bounded:
            # In the way of its class's, for as long. Another class for it costs ten times as much,
            # because Python has learnt its way around the first one.
            connection.wait = _BoundWait(connection, there)
    elif bounded and there.before is None:
        del connection.wait
    elif bounded:
        connection.wait = there.before


class Bound:
    """A bound for the length of a block."""

    def __init__(self, connection: Any, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds

    def __enter__(self) -> None:
        bound(self._connection, self._seconds)

    def __exit__(self, *error: object) -> None:
        bound(self._connection, None)


def within(connection: Any) -> float | None:
    """Return the bound on a connection's waits, None for none."""
    bounded = isinstance(vars(connection).get("wait"), _BoundWait)
    return connection.read_within if bounded else None


class _BoundWait:
    """What a connection waits with while it is bound, by what it waits with otherwise.

    That is what somebody has put ``before`` it, or else its class's.
    """

    def __init__(self, connection: Any, before: Callable[..., Any] | None) -> None:
        self._connection = connection
        self.before = before

    def __call__(self, waiting: Any, *args: Any, **kwargs: Any) -> Any:
        connection = self._connection
        wait = self.before or partial(type(connection).wait, connection)
        return wait(_until(clock.now(), connection, waiting), *args, **kwargs)


def _until(start: float, connection: Any, waiting: Generator[Any, Any, Any]) -> Any:
    """Pass on a psycopg generator, which yields what to wait for and is sent what came.

    It is sent 0 several times a second while nothing comes.
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
    """Close a connection whose server has not answered for so long; return what to raise."""
    from psycopg import OperationalError

    connection.pgconn.finish()
    error = OperationalError(f"the server did not answer within {seconds:g} s")
    error.__cause__ = TimeoutError()
    return error


def given_up(error: BaseException) -> bool:
    """Whether this is the error of a wait that took too long."""
    return isinstance(error.__cause__, TimeoutError)
