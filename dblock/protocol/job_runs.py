"""The record of a job's runs: when a run began, how it ended, and each name's last run.

Every statement has the same effect whether it ran once or twice, so a statement without a clear
reply is repeated. A run is identified by the fence of its hold, so a late statement of an older
run changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ..errors import DBLockError
from ..lock_state import RunState
from .commands import (
    BeginRun,
    EndRun,
    ForgetRun,
    ListLastRuns,
    ListRuns,
    PruneApplied,
    PruneOnce,
    PruneRuns,
    ReadClock,
)
from .inspect import look, taken_over
from .retry import delete_all, read, retry_or_raise
from .state import Pruned
from .steps import Procedure

if TYPE_CHECKING:
    from .statements import Statements


class JobRun(NamedTuple):
    """One run of a job: its hold's fence, and its slot; "" means no slot."""

    name: str
    slot: str
    fence: int


def clock(dialect: Statements, patience: float, now: float) -> Procedure[datetime]:
    """Read the database's clock."""
    command = ReadClock()
    return (yield from retry_or_raise(dialect, command, None, patience, now)).answer


def begin(
    dialect: Statements, run: JobRun, owner: str, patience: float, now: float
) -> Procedure[bool]:
    """Record that a run begins; False when one has succeeded in its slot.

    Raises LockLost when a later hold's run is on record.
    """
    command = BeginRun(run.name, run.slot, run.fence, owner)
    reply = yield from retry_or_raise(dialect, command, run.name, patience, now)
    recorded = reply.answer
    if recorded > run.fence:
        raise (yield from _superseded(dialect, run, f"fence {recorded} is", reply.now))
    return recorded == run.fence


def end(
    dialect: Statements, run: JobRun, status: int, patience: float, now: float
) -> Procedure[None]:
    """Record how a run ended. Raises LockLost when a later hold's run is on record instead."""
    command = EndRun(run.name, run.slot, run.fence, status)
    reply = yield from retry_or_raise(dialect, command, run.name, patience, now)
    if not reply.answer:
        raise (yield from _superseded(dialect, run, "it is not", reply.now))


def _superseded(dialect: Statements, run: JobRun, found: str, now: float) -> Procedure[DBLockError]:
    """Return the error for a run when another run is on record."""
    state, now = yield from look(dialect, run.name, 0.0, now)
    if state is not None and state.fence > run.fence:
        return taken_over(state, run.fence)
    return DBLockError(
        f"dblock looked for the run of {run.name!r} with fence {run.fence}: {found} on record, and "
        "the name has not been granted since. Were rows of dblock's tables deleted?",
        name=run.name,
    )


def reopen(
    dialect: Statements, name: str, slot: str, patience: float, now: float
) -> Procedure[bool]:
    """Delete the record of the run that has succeeded in a slot; False when none has.

    Every try carries the fence of the run that was read first. So a try can be repeated after a
    lost reply without touching the next run.
    """
    for run in (yield from recorded(dialect, name, 1, now, slot)):
        if run.outcome == "succeeded":
            command = ForgetRun(name, slot, run.fence)
            yield from retry_or_raise(dialect, command, name, patience, now)
            return True
    return False


def recorded(
    dialect: Statements, name: str, limit: int, now: float, slot: str | None = None
) -> Procedure[list[RunState]]:
    """Read up to ``limit`` recorded runs of a name, the latest first; with ``slot``, only the run
    in that slot."""
    command = ListRuns(name, limit, slot)
    return (yield from read(dialect, command, name, now))


def last_of_each(dialect: Statements, limit: int, now: float) -> Procedure[list[RunState]]:
    """Read the last run of each name, the latest first: up to ``limit`` names."""
    command = ListLastRuns(limit)
    return (yield from read(dialect, command, None, now))


def last(dialect: Statements, name: str, now: float) -> Procedure[RunState | None]:
    """Read the run of a name that began last."""
    runs = yield from recorded(dialect, name, 1, now)
    return runs[0] if runs else None


def prune(dialect: Statements, age: float, patience: float, now: float) -> Procedure[Pruned]:
    """Delete the keys and the runs that are older than ``age`` seconds, and the calls' records that
    have expired; return how many were deleted."""
    keys = yield from delete_all(dialect, PruneApplied(age), patience, now)
    keys += yield from delete_all(dialect, PruneOnce(), patience, now)
    runs = yield from delete_all(dialect, PruneRuns(age), patience, now)
    return Pruned(keys, runs)
