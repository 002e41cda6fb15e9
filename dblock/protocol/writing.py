"""Writes of which the last one counts: none arrives after one that was asked for later.

Each is the same if it is repeated. But one whose reply was lost may be carried out at any time, and
so after the next write of the same writer. The session that it was sent on is ended before that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Unavailable
from .deadline import Deadline
from .doubt import Doubt
from .explain import explain, unknown
from .faults import Fault, StatementError
from .retry import AWAY, PASSING, PAUSE, retry
from .steps import Procedure, Query, Reply, Sleep

if TYPE_CHECKING:
    from .statements import Statements

_NOT_SENT = (AWAY | PASSING) - {Fault.DISCONNECTED}


def write(
    dialect: Statements, query: Query[Any], name: str, before: Doubt, patience: float, now: float
) -> Procedure[Reply]:
    """Write, for up to ``patience`` seconds, after all that the same writer wrote ``before``.

    Raises Unavailable if nothing was written, and OutcomeUnknown if it may have been, or may be so
    yet.
    """
    deadline = Deadline(now, patience, patience, now)
    lost: StatementError | None = None
    while True:
        try:
            yield from before.end_sessions(dialect, deadline)
            return (yield from retry(query, deadline.reach, deadline.now, _NOT_SENT))
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
        deadline.now = (yield Sleep(0 if first else PAUSE)).now
        # A connection that had died while idle is replaced, however short the patience.
        if deadline.over and not first:
            raise unknown(lost, name) from lost.__cause__
