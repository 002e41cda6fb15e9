"""A deadline for the user's own statements, which dblock does not send and cannot bound."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

from sqlalchemy import create_engine, make_url
from sqlalchemy.engine import Engine


def impatient_engine(url: str, seconds: float) -> Engine:
    """An engine as a user makes it who wants an answer: PyMySQL has a setting for that."""
    mariadb = make_url(url).get_backend_name() != "postgresql"
    return create_engine(url, connect_args={"read_timeout": seconds} if mariadb else {})


@contextlib.contextmanager
def within(connection: Any, seconds: float) -> Iterator[None]:
    """Shut the socket of a psycopg connection down if its statement takes longer.

    libpq reads for ever from a peer that acknowledges; that is what ends its wait.
    """
    if not hasattr(connection, "fileno") or connection.closed:
        yield
        return
    with socket.socket(fileno=os.dup(connection.fileno())) as copy:

        def give_up() -> None:
            with contextlib.suppress(OSError):
                copy.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
