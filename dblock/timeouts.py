"""How long each layer may take."""

from __future__ import annotations

from dataclasses import dataclass

from .arguments import seconds


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Three layers, in seconds, each with its own end and its own error.

    ``connect``
        until a new connection is ready: :class:`~dblock.ConnectTimeout`;
    ``query``
        until the server gives a statement up, so that the client need not:
        :class:`~dblock.QueryTimeout`. Statements of leases wait for no row; a row lock's wait is
        asked for in pieces of this length, so that a waiter that died is not queued for longer;
    ``socket``
        until the client gives up waiting for an answer, and with it the connection, whatever the
        kernel thinks of that: :class:`~dblock.SocketTimeout`. Then what was left on the server is
        ended, and looking for what became of the statement is bounded by as much again before
        :class:`~dblock.OutcomeUnknown` is raised.

    They are for dblock's own connections, and ``socket`` also for its own statements in a
    transaction of yours, except those of counters: they may wait for a row as long as your
    settings let them. How a lent engine connects stays as it is; what it lacks is logged once.
    """

    connect: float = 3.0
    query: float = 5.0
    socket: float = 10.0

    def __post_init__(self) -> None:
        for layer in ("connect", "query", "socket"):
            if seconds(f"Timeouts.{layer}", getattr(self, layer)) == 0:
                raise ValueError(f"Timeouts.{layer} must be above 0")
        if self.query >= self.socket:
            raise ValueError(
                f"Timeouts.query ({self.query}) must be shorter than Timeouts.socket "
                f"({self.socket}): the server has to answer before the client stops listening"
            )
