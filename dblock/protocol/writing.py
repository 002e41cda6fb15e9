"""Writes of which the last one counts: no write arrives after a later write of the same writer.

Repeating a write has no further effect. But the server may execute a write whose reply was lost at
any later time, even after the writer's next write. So its session is ended before the next write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..errors import Unavailable
from .commands import Command
from .deadline import Deadline
from .doubt import Doubt
from .explain import explain, unknown
from .faults import Fault, StatementError
from .retry import AWAY, PASSING, PAUSE, retry
from .steps import Procedure, Reply, Sleep

if TYPE_CHECKING:
    from .statements import Statements

T = TypeVar("T")

_NOT_SENT = (AWAY | PASSING) - {Fault.DISCONNECTED}


def write(
    dialect: Statements,
    command: Command[T],
    name: str,
    before: Doubt,
    patience: float,
    now: float,
) -> Procedure[Reply[T]]:
    """Write, with retries for up to ``patience`` seconds; first end the sessions of earlier writes.

    ``before`` has the same writer's earlier writes without a reply. Raises Unavailable if nothing
    was written, and OutcomeUnknown if the server may have executed the write, or may still do so.
    """
    deadline = Deadline(now, patience, patience, now)
    lost: StatementError | None = None
    while True:
        try:
            yield from before.end_sessions(dialect, deadline)
            return (yield from retry(command, deadline.reach, deadline.now, _NOT_SENT))
        except Unavailable as error:
            if lost is None:
                raise
            raise unknown(lost, name) from error
        except StatementError as failure:
            first = lost is None
            if failure.fault is not Fault.DISCONNECTED:
                told = explain(dialect, failure, name) if lost is None else unknown(lost, name)
                raise told from failure.__cause__
            lost = failure
        before.add(lost)
        deadline.now = lost.now if first else (yield Sleep(PAUSE)).now
        # Even with a patience of 0 a connection that may have died while idle is replaced.
        if deadline.over and not first:
            raise unknown(lost, name) from lost.__cause__
