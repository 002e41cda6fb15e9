"""One deadline for all of PyMySQL's steps to connect: TCP, TLS and the login."""

from __future__ import annotations

import socket
from typing import Any

from ...system import clock
from ..answer_deadline import shut_down_after

_NOT_REACHED = 2003


def connect(connection: Any, seconds: float) -> None:
    """Connect a connection that was made with ``defer_connect``, within ``seconds``.

    PyMySQL has a timeout for each part that it reads, and none for all parts together.
    """
    if connection.unix_socket:  # a server on this machine; there is no network to wait for
        connection.connect()
        return
    until = clock.now() + seconds
    where, source = f"{connection.host}:{connection.port}", connection.bind_address
    try:
        reached = socket.create_connection(
            (connection.host, connection.port),
            seconds,
            source_address=(source, 0) if source else None,
        )
    except OSError as error:
        raise _not_reached(where, error) from error
    reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reached.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.host_info = f"socket {where}"
    try:
        with shut_down_after(max(0.0, until - clock.now()), reached):
            connection.connect(reached)
    except Exception as error:
        if clock.now() < until:
            raise
        late = TimeoutError(f"it was not made within {seconds:g} s")
        raise _not_reached(where, late) from error


def _not_reached(where: str, error: OSError) -> Exception:
    """Return the error that PyMySQL itself raises for a server that it cannot reach."""
    from pymysql.err import OperationalError

    told: Any = OperationalError(
        _NOT_REACHED, f"Can't connect to MySQL server on '{where}' ({error})"
    )
    told.original_exception = error
    made: Exception = told
    return made
