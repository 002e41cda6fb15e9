"""One deadline for all that PyMySQL does at once: to connect, and to read an answer.

PyMySQL has a timeout for each part that it reads, and none for all parts together. So it would wait
a hundred times as long for a peer that sends a byte now and then: a proxy, or an overloaded
network.
"""

from __future__ import annotations

import socket
from typing import Any

from ...system import clock
from ..answer_deadline import shut_down_after

_NOT_REACHED = 2003


def connect(connection: Any, seconds: float) -> None:
    """Connect a connection that was made with ``defer_connect``: TCP, TLS and the login, all within
    ``seconds``."""
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


class Reader:
    """Replaces the file object that a connection reads from.

    PyMySQL's own read timeout restarts with each part of an answer.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.file = connection._rfile
        self._until = 0.0

    def bound(self, seconds: float) -> None:
        """Let all reads until the next call of this method end within ``seconds`` from now."""
        self._until = clock.now() + seconds

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or less where the connection ends. Raises TimeoutError."""
        data = b""
        while len(data) < size:
            left = self._until - clock.now()
            if left <= 0:
                raise TimeoutError("the answer did not come in time")
            self._connection._sock.settimeout(left)
            self._connection._current_timeout = left  # PyMySQL sets its own before it writes
            there = len(self.file.peek(1))
            if not there:
                break
            data += self.file.read(min(size - len(data), there))
        return data

    def close(self) -> None:
        self.file.close()
