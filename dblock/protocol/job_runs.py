"""The record of a job's runs: when a run began, how it ended, and each name's last run.

Every statement has the same effect whether it ran once or twice, so a statement without a clear
reply is repeated. A run is identified by the fence of its hold, so a late statement of an older
run changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

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
from .exchange import Exchange
from .inspect import look, taken_over
from .state import Pruned
from .steps import Procedure


class JobRun(NamedTuple):
    """One run of a job: its hold's fence, and its slot; "" means no slot."""

    name: str
    slot: str
    fence: int


def clock(exchange: Exchange) -> Procedure[datetime]:
    """Read the database's clock."""
    return (yield from exchange.ask_or_explain(ReadClock())).answer


def begin(exchange: Exchange, run: JobRun, owner: str) -> Procedure[bool]:
    """Record that a run begins; False when one has succeeded in its slot.

    Raises LockLost when a later hold's run is on record.
    """
    command = BeginRun(run.name, run.slot, run.fence, owner)
    recorded = (yield from exchange.ask_or_explain(command)).answer
    if recorded > run.fence:
        raise (yield from _superseded(exchange, run, f"fence {recorded} is"))
    return recorded == run.fence


def end(exchange: Exchange, run: JobRun, status: int) -> Procedure[None]:
    """Record how a run ended. Raises LockLost when a later hold's run is on record instead."""
    command = EndRun(run.name, run.slot, run.fence, status)
    if not (yield from exchange.ask_or_explain(command)).answer:
        raise (yield from _superseded(exchange, run, "it is not"))


def _superseded(exchange: Exchange, run: JobRun, found: str) -> Procedure[DBLockError]:
    """Return the error for a run when another run is on record."""
    state = yield from look(exchange, patience=0.0)
    if state is not None and state.fence > run.fence:
        return taken_over(state, run.fence)
    return DBLockError(
        f"dblock looked for the run of {run.name!r} with fence {run.fence}: {found} on record, and "
        "the name has not been granted since. Were rows of dblock's tables deleted?",
        name=run.name,
    )


def reopen(exchange: Exchange, slot: str) -> Procedure[bool]:
    """Delete the record of the run that has succeeded in a slot; False when none has.

    Every try carries the fence of the run that was read first. So a try can be repeated after a
    lost reply without touching the next run.
    """
    for run in (yield from recorded(exchange, 1, slot)):
        if run.outcome == "succeeded":
            yield from exchange.ask_or_explain(ForgetRun(exchange.name, slot, run.fence))
            return True
    return False


def recorded(exchange: Exchange, limit: int, slot: str | None = None) -> Procedure[list[RunState]]:
    """Read up to ``limit`` recorded runs of a name, the latest first; with ``slot``, only the run
    in that slot."""
    return (yield from exchange.read(ListRuns(exchange.name, limit, slot)))


def last_of_each(exchange: Exchange, limit: int) -> Procedure[list[RunState]]:
    """Read the last run of each name, the latest first: up to ``limit`` names."""
    return (yield from exchange.read(ListLastRuns(limit)))


def last(exchange: Exchange) -> Procedure[RunState | None]:
    """Read the run of a name that began last."""
    runs = yield from recorded(exchange, 1)
    return runs[0] if runs else None


def prune(exchange: Exchange, age: float) -> Procedure[Pruned]:
    """Delete the keys and the runs that are older than ``age`` seconds, and the calls' records that
    have expired; return how many were deleted."""
    keys = yield from exchange.delete_all(PruneApplied(age))
    keys += yield from exchange.delete_all(PruneOnce())
    runs = yield from exchange.delete_all(PruneRuns(age))
    return Pruned(keys, runs)
