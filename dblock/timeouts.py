"""How long each layer may take."""

from __future__ import annotations

from dataclasses import dataclass

from .arguments import seconds


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Three layers, in seconds, each shorter than the next that would have to notice its failure.

    ``connect``
        until the server has answered a new connection;
    ``query``
        until the server gives a blocked statement up, so that the client need not. Statements of
        leases never wait for a row, those of row locks wait within the caller's own wait: this
        cuts long waits into pieces on MariaDB, and bounds those for SQLite's one writer;
    ``socket``
        until the client gives the connection up. It also bounds how long an attempt whose reply
        was lost is looked for before :class:`~dblock.OutcomeUnknown` is raised.

    They apply to the connections dblock makes from a URL. A lent engine keeps its own.
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
