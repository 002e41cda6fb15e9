"""What nobody knows of statements whose replies were lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .deadline import Deadline
from .faults import Fault, StatementError
from .release import end_session
from .steps import Procedure, Query

if TYPE_CHECKING:
    from .statements import Statements


@dataclass(slots=True)
class Doubt:
    """Statements had no clear reply, and may have been carried out or be so yet.

    ``sessions`` are what ends the sessions that they were sent on. Where one of these could not be
    ended the name is ``haunted``: a statement may arrive at any time.
    """

    sessions: list[Query[bool]] = field(default_factory=list)
    haunted: bool = False

    def add(self, failure: StatementError) -> None:
        """Take down a statement that failed so."""
        if failure.end is not None:
            self.sessions.append(failure.end)
        elif failure.fault is Fault.DISCONNECTED:
            self.haunted = True

    def end_sessions(self, dialect: Statements, deadline: Deadline) -> Procedure[None]:
        """End the sessions, so that what is not there will not come.

        Several threads may do so at once.
        """
        for session in tuple(self.sessions):
            ended, deadline.now = yield from end_session(
                dialect, session, deadline.reach, deadline.now
            )
            self.haunted = self.haunted or not ended
            with suppress(ValueError):  # another has ended it too
                self.sessions.remove(session)
