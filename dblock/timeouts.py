"""How long each layer may take."""

from __future__ import annotations

from dataclasses import dataclass

from .arguments import seconds


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long three layers may take, in seconds. Each has its own error.

    ``connect``
        until a new connection is ready. Then you get :class:`~dblock.ConnectTimeout`.
    ``query``
        until the server cancels a statement, so that the client does not have to. Then you get
        :class:`~dblock.QueryTimeout`. A lease's statements wait for no row. A row lock waits in
        pieces of this length, so that a dead waiter does not stay in the queue for longer.
    ``socket``
        until the client stops waiting for a reply, no matter what the kernel does. It closes the
        connection too. Then you get :class:`~dblock.SocketTimeout`. If the statement may have
        changed something, dblock first ends the session on the server and finds out whether the
        statement was executed. If it does not know after the same time again, you get
        :class:`~dblock.OutcomeUnknown`.

    They apply to dblock's own connections. ``socket`` also applies to dblock's statements in your
    own transactions, except the statements of counters, which may wait for a row as long as your
    settings allow. dblock does not change how your engine connects. It logs once which timeouts
    your engine lacks.
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
