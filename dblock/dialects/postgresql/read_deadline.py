"""A read deadline for psycopg's connections, which have none of their own.

Those of dblock's own have it where they wait, in :mod:`.sender`, once they are made; the user's,
and whatever SQLAlchemy asks of a new one, have it here.

Keepalives notice a host that is gone, and ``tcp_user_timeout`` a request that nobody acknowledges.
Neither notices a peer that acknowledges and never answers: a proxy, a stopped server.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ... import clock


def bound(connection: Any, seconds: float | None) -> None:
    """Let no wait for this connection's server take longer; None takes the bound off.

    What takes longer raises :class:`psycopg.OperationalError`, and the connection is closed. The
    bound can be changed during a wait. The same goes for an AsyncConnection.
    """
    kind = type(connection)
    if seconds is None:
        if hasattr(kind, "read_within"):
            connection.__class__ = kind.__base__
        return
    if not hasattr(kind, "read_within"):
        # However the connection was made, by whatever class: it stays what it is otherwise.
        connection.__class__ = _bounded(kind)
    connection.read_within = seconds


_kinds: dict[type[Any], type[Any]] = {}


def _bounded(kind: type[Any]) -> type[Any]:
    def wait(self: Any, waiting: Any, *args: Any, **kwargs: Any) -> Any:
        return kind.wait(self, _until(clock.now(), self, waiting), *args, **kwargs)

    if kind not in _kinds:
        _kinds[kind] = type(kind.__name__, (kind,), {"read_within": 0.0, "wait": wait})
    return _kinds[kind]


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
