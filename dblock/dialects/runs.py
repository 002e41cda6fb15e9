"""The statements over the records of jobs' runs, nearly the same for all databases; and pruning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from ..lock_state import RunState
from ..protocol.commands import (
    BeginRun,
    EndRun,
    ForgetRun,
    ListHeldRuns,
    ListLastRuns,
    ListRuns,
    PruneApplied,
    PruneOnce,
    PruneRuns,
    PruneValues,
    ReadClock,
)
from .dialect import Dialect
from .query import Result
from .replies import read_fence
from .statement import statement
from .values import text, utc

# Rows that one statement deletes at most, so that it ends within the statement timeout.
PRUNED_AT_ONCE = 1000


def _moment(result: Result) -> datetime:
    moment = utc(result.rows[0][0])
    assert moment is not None
    return moment


def _runs(result: Result) -> list[RunState]:
    return list(map(_run, result.rows))


def _run(columns: Sequence[Any]) -> RunState:
    name, slot, fence, owner, started, ended, status, held = columns
    began = utc(started)
    assert began is not None
    running = ended is None and bool(held)
    return RunState(text(name), text(slot), int(fence), owner, began, utc(ended), status, running)


class RunStatements(Dialect):
    """The holder of the job's lease writes a run's row, and finds it by the hold's fence."""

    #: Ends a statement that must be on disk before the client learns of it.
    durably: ClassVar[str] = ""
    #: The present time in microseconds since 1970, as a rate limit has it.
    instant: ClassVar[str]

    @statement(ReadClock, read=_moment, lock_timeout=None)
    def now(self) -> str:
        return f"SELECT {self.clock}"

    @statement(BeginRun, read=read_fence)
    def begin_run(self) -> str:
        values = ", ".join(map(self.parameter, ("name", "slot", "fence", "owner")))
        changes = ", ".join(
            f"{column} = CASE WHEN {self.startable('excluded.fence')} "
            f"THEN excluded.{column} ELSE run.{column} END"
            for column in ("fence", "owner", "started_at", "ended_at", "exit_status")
        )
        return f"""INSERT INTO {self.run_table} AS run (lock_name, slot, fence, owner, started_at)
            VALUES ({values}, {self.clock})
            ON CONFLICT (lock_name, slot) DO UPDATE SET {changes} RETURNING fence"""

    def startable(self, fence: str) -> str:
        """Whether a run under ``fence`` may replace another run's record in the row."""
        return f"""(run.fence < {fence} AND NOT
            (run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0))"""

    @statement(EndRun)
    def end_run(self) -> str:
        return f"""UPDATE {self.run_table} SET ended_at = {self.clock},
                exit_status = {self.parameter("status")}
            WHERE {self._this_run}{self.durably}"""

    @statement(ForgetRun)
    def forget_run(self) -> str:
        return f"DELETE FROM {self.run_table} WHERE {self._this_run}{self.durably}"

    @property
    def _this_run(self) -> str:
        """Whether the row is the record of a run, and of no later one in its slot."""
        return f"""lock_name = {self.parameter("name")} AND slot = {self.parameter("slot")}
                AND fence = {self.parameter("fence")}"""

    @statement(ListRuns, read=_runs)
    def runs(self, command: ListRuns) -> str:
        only = "" if command.slot is None else f"AND slot = {self.parameter('slot')}"
        return f"""SELECT {self._run_columns} FROM {self.run_table} AS run
            WHERE lock_name = {self.name_parameter} {only}
            ORDER BY started_at DESC, fence DESC LIMIT {command.limit}"""

    @statement(ListLastRuns, read=_runs)
    def last_runs(self, command: ListLastRuns) -> str:
        return f"""SELECT {self._run_columns} FROM (
                SELECT one.*, row_number() OVER (
                    PARTITION BY lock_name ORDER BY started_at DESC, fence DESC
                ) AS age FROM {self.run_table} AS one
            ) AS run WHERE age = 1 ORDER BY started_at DESC LIMIT {command.limit}"""

    @statement(ListHeldRuns, read=lambda result: {run.name: run for run in _runs(result)})
    def held_runs(self) -> str:
        return f"""SELECT {self._run_columns}
            FROM {self.lock_table} AS l JOIN {self.run_table} AS run
                ON run.lock_name = l.lock_name AND run.fence = l.fence
            WHERE l.token IS NOT NULL"""

    @property
    def _run_columns(self) -> str:
        """A run's columns, and whether its lease is held."""
        return f"""run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
            run.exit_status, EXISTS (SELECT 1 FROM {self.lock_table} AS held
                WHERE held.lock_name = run.lock_name AND held.fence = run.fence
                    AND token IS NOT NULL AND {self.lasting})"""

    @statement(PruneApplied)
    def prune_applied(self) -> str:
        return self._prune(self.applied_table, "idempotency_key", f"applied_at < {self.ago}")

    @statement(PruneOnce)
    def prune_once(self) -> str:
        return self._prune(self.once_table, "idempotency_key", f"expires_at <= {self.clock}")

    @statement(PruneRuns)
    def prune_runs(self) -> str:
        later = f"""EXISTS (SELECT 1 FROM {self.run_table} AS later
            WHERE later.lock_name = found.lock_name AND later.started_at > found.started_at)"""
        old = f"started_at < {self.ago}"
        return self._prune(self.run_table, "lock_name, slot", old, f"AND {later}")

    @statement(PruneValues)
    def prune_values(self) -> str:
        named = f"""EXISTS (SELECT 1 FROM {self.lock_table} AS l
            WHERE l.lock_name = found.lock_name)"""
        # A semaphore's limit has the fence 0 and stays: its slots have other names than the value.
        # A rate limit's fence is its TAT, negative: it stays until that is over.
        # The empty name has the record of a member of a quorum, which stays.
        only = f"AND fence <> 0 AND fence > -{self.instant} AND lock_name <> '' AND NOT {named}"
        return self._prune(self.value_table, "lock_name", f"written_at < {self.ago}", only)

    def _prune(self, table: str, key: str, old: str, only: str = "") -> str:
        # The condition is in it twice: a row that the subquery found may have been renewed since.
        return f"""DELETE FROM {table} WHERE {old} AND ({key}) IN (SELECT {key} FROM (
                SELECT {key} FROM {table} AS found WHERE {old} {only} LIMIT {PRUNED_AT_ONCE}
            ) AS some_of_them)"""
