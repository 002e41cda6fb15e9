"""Statements in doubt: their replies were lost, so their outcomes are unknown."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from .commands import Command
from .exchange import Exchange
from .faults import Fault, StatementError
from .release import end_session
from .steps import Procedure


def may_be_executed(exchange: Exchange, failure: StatementError) -> bool:
    """Return whether the server may have executed a failed statement, or may still execute it.

    If a failure does not undo the whole statement, the server may have canceled the part after its
    commit.
    """
    parts = failure.fault is Fault.CANCELED and not exchange.dialect.traits.failure_aborts
    return failure.fault is Fault.DISCONNECTED or parts


@dataclass(slots=True)
class Doubt:
    """Statements without a clear reply, which the server may have executed or may still execute.

    ``sessions`` has the queries that end the sessions of these statements. If a session could not
    be ended, the name is ``haunted``: the lost statement may arrive at any time.
    """

    sessions: list[Command[bool]] = field(default_factory=list)
    haunted: bool = False

    def add(self, failure: StatementError) -> None:
        """Record a statement that failed without a clear reply."""
        if failure.end is not None:
            self.sessions.append(failure.end)
        elif failure.fault is Fault.DISCONNECTED:
            self.haunted = True

    def end_sessions(self, exchange: Exchange, *, patience: float | None = None) -> Procedure[None]:
        """End the sessions, so that a statement that has not arrived never will.

        Several threads may do so at once. Raises Unavailable when the database is not reached.
        """
        for session in tuple(self.sessions):
            try:
                ended = yield from end_session(exchange, session, patience=patience)
            except StatementError as failure:
                raise exchange.explain(failure, harmless=True) from failure.__cause__
            self.haunted = self.haunted or not ended
            with suppress(ValueError):  # another thread has ended it too
                self.sessions.remove(session)
