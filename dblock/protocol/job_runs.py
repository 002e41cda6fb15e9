"""The record of a job's runs: that one begins, how it ended, which was the last.

Every statement is the same whether it ran once or twice, so what has no clear reply is repeated.
A run is known by the fence of the hold it runs under, so what an older one says late is not heard.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ..errors import DBLockError
from ..lock_state import RunState
from .inspect import look, taken_over
from .retry import delete_all, read, retry_or_raise
from .state import Pruned
from .steps import Procedure

if TYPE_CHECKING:
    from .statements import Statements


class JobRun(NamedTuple):
    """One run of a job: under which hold, and for which slot; the empty one is none."""

    name: str
    slot: str
    fence: int


def clock(dialect: Statements, patience: float, now: float) -> Procedure[datetime]:
    """Read the database's clock."""
    query = dialect.now()
    return query.read((yield from retry_or_raise(dialect, query, None, patience, now)))


def begin(
    dialect: Statements, run: JobRun, owner: str, patience: float, now: float
) -> Procedure[bool]:
    """Record that a run begins; False when one has succeeded in its slot.

    Raises LockLost when a later hold's run is on record.
    """
    query = dialect.begin_run(run.name, run.slot, run.fence, owner)
    reply = yield from retry_or_raise(dialect, query, run.name, patience, now)
    recorded = query.read(reply)
    if recorded > run.fence:
        raise (yield from _superseded(dialect, run, f"fence {recorded} is", reply.now))
    return recorded == run.fence


def end(
    dialect: Statements, run: JobRun, status: int, patience: float, now: float
) -> Procedure[None]:
    """Record how a run ended. Raises LockLost when a later hold's run is on record instead."""
    query = dialect.end_run(run.name, run.slot, run.fence, status)
    reply = yield from retry_or_raise(dialect, query, run.name, patience, now)
    if not reply.matched:
        raise (yield from _superseded(dialect, run, "it is not", reply.now))


def _superseded(dialect: Statements, run: JobRun, found: str, now: float) -> Procedure[DBLockError]:
    """Return what to tell of a run that is not the recorded one."""
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

    By the fence of the run that is seen first, so that it can be repeated after a lost reply
    without touching the run after it.
    """
    for run in (yield from recorded(dialect, name, 1, now, slot)):
        if run.outcome == "succeeded":
            query = dialect.forget_run(name, slot, run.fence)
            yield from retry_or_raise(dialect, query, name, patience, now)
            return True
    return False


def recorded(
    dialect: Statements, name: str, limit: int, now: float, slot: str | None = None
) -> Procedure[list[RunState]]:
    """Read the runs of a name that are on record, so many, the one that began last first; only that
    of a slot, if one is given."""
    query = dialect.runs(name, limit, slot)
    return (yield from read(dialect, query, name, now))


def last_of_each(dialect: Statements, limit: int, now: float) -> Procedure[list[RunState]]:
    """Read the last run of each name, so many, the one that began last first."""
    query = dialect.last_runs(limit)
    return (yield from read(dialect, query, None, now))


def last(dialect: Statements, name: str, now: float) -> Procedure[RunState | None]:
    """Read the run of a name that began last."""
    runs = yield from recorded(dialect, name, 1, now)
    return runs[0] if runs else None


def prune(dialect: Statements, age: float, patience: float, now: float) -> Procedure[Pruned]:
    """Delete the keys and the runs that are older than ``age`` seconds, and the records of calls
    that are kept no longer; return how many."""
    keys = yield from delete_all(dialect, dialect.prune_applied(age), patience, now)
    keys += yield from delete_all(dialect, dialect.prune_once(), patience, now)
    runs = yield from delete_all(dialect, dialect.prune_runs(age), patience, now)
    return Pruned(keys, runs)
