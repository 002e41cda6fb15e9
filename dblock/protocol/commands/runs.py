"""The record of jobs' runs."""

from __future__ import annotations

from datetime import datetime

from ...lock_state import RunState
from .command import Command, Name


class ReadClock(Command[datetime]):
    """Read the database's clock."""


class BeginRun(Command[int]):
    """Record that a run begins, unless a run has succeeded in this slot; "" means no slot.

    The reply is the recorded run's fence: this run's own fence if it may begin. A statement that
    arrives late, after a later hold's run has begun or this run has ended, changes nothing.
    """

    name: Name
    slot: Name
    fence: int
    owner: str


class EndRun(Command[int]):
    """Record how a run ended; no row when another run is on record by now."""

    name: Name
    slot: Name
    fence: int
    status: int


class ForgetRun(Command[int]):
    """Delete the record of a run; no row when another run is on record by now."""

    name: Name
    slot: Name
    fence: int


class ListRuns(Command[list[RunState]]):
    """Read up to ``limit`` recorded runs of a name, the latest first; with ``slot``, only the run
    in that slot."""

    name: Name
    limit: int
    slot: Name | None = None


class ListLastRuns(Command[list[RunState]]):
    """Read the last run of each name, the latest first: up to ``limit`` names."""

    limit: int


class ListHeldRuns(Command[dict[str, RunState]]):
    """Read the runs under the present leases, by the jobs' names."""
