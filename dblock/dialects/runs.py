"""The statements over the records of jobs' runs, nearly the same for all databases; and pruning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from ..lock_state import RunState
from ..protocol import commands
from ..protocol.steps import Query, Reply
from .dialect import Dialect, read_fence
from .values import text, utc

# Rows that one statement deletes at most, so that it ends within the statement timeout.
PRUNED_AT_ONCE = 1000


class RunStatements(Dialect):
    """The holder of the job's lease writes a run's row, and finds it by the hold's fence."""

    #: Ends a statement that must be on disk before the client learns of it.
    durably: ClassVar[str] = ""

    def now(self) -> Query[datetime]:
        return Query(f"SELECT {self.clock}", {}, commands.ReadClock(), read=_moment)

    def begin_run(self, name: str, slot: str, fence: int, owner: str) -> Query[int]:
        values = ", ".join(map(self.parameter, ("name", "slot", "fence", "owner")))
        changes = ", ".join(
            f"{column} = CASE WHEN {self.startable('excluded.fence')} "
            f"THEN excluded.{column} ELSE run.{column} END"
            for column in ("fence", "owner", "started_at", "ended_at", "exit_status")
        )
        return Query(
            f"""INSERT INTO {self.run_table} AS run (lock_name, slot, fence, owner, started_at)
            VALUES ({values}, {self.clock})
            ON CONFLICT (lock_name, slot) DO UPDATE SET {changes} RETURNING fence""",
            {"name": self.key(name), "slot": self.key(slot), "fence": fence, "owner": owner},
            commands.BeginRun(name, slot, fence, owner),
            self.patience,
            read=read_fence,
        )

    def startable(self, fence: str) -> str:
        """Whether a run under ``fence`` may replace another run's record in the row."""
        return f"""(run.fence < {fence} AND NOT
            (run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0))"""

    def end_run(self, name: str, slot: str, fence: int, status: int) -> Query[int]:
        return Query(
            f"""UPDATE {self.run_table} SET ended_at = {self.clock},
                exit_status = {self.parameter("status")}
            WHERE {self._this_run}{self.durably}""",
            {"name": self.key(name), "slot": self.key(slot), "fence": fence, "status": status},
            commands.EndRun(name, slot, fence, status),
            self.patience,
        )

    def forget_run(self, name: str, slot: str, fence: int) -> Query[int]:
        return Query(
            f"DELETE FROM {self.run_table} WHERE {self._this_run}{self.durably}",
            {"name": self.key(name), "slot": self.key(slot), "fence": fence},
            commands.ForgetRun(name, slot, fence),
            self.patience,
        )

    @property
    def _this_run(self) -> str:
        """Whether the row is the record of a run, and of no later one in its slot."""
        return f"""lock_name = {self.parameter("name")} AND slot = {self.parameter("slot")}
                AND fence = {self.parameter("fence")}"""

    def runs(self, name: str, limit: int, slot: str | None = None) -> Query[list[RunState]]:
        only = "" if slot is None else f"AND slot = {self.parameter('slot')}"
        return Query(
            f"""SELECT {self._run_columns} FROM {self.run_table} AS run
            WHERE lock_name = {self.name_parameter} {only}
            ORDER BY started_at DESC, fence DESC LIMIT {limit}""",
            {"name": self.key(name)} | ({} if slot is None else {"slot": self.key(slot)}),
            commands.ListRuns(name, limit, slot),
            self.patience,
            read=_runs,
        )

    def last_runs(self, limit: int) -> Query[list[RunState]]:
        return Query(
            f"""SELECT {self._run_columns} FROM (
                SELECT one.*, row_number() OVER (
                    PARTITION BY lock_name ORDER BY started_at DESC, fence DESC
                ) AS age FROM {self.run_table} AS one
            ) AS run WHERE age = 1 ORDER BY started_at DESC LIMIT {limit}""",
            {},
            commands.ListLastRuns(limit),
            self.patience,
            read=_runs,
        )

    def held_runs(self) -> Query[dict[str, RunState]]:
        return Query(
            f"""SELECT {self._run_columns}
            FROM {self.lock_table} AS l JOIN {self.run_table} AS run
                ON run.lock_name = l.lock_name AND run.fence = l.fence
            WHERE l.token IS NOT NULL""",
            {},
            commands.ListHeldRuns(),
            self.patience,
            read=lambda reply: {run.name: run for run in _runs(reply)},
        )

    @property
    def _run_columns(self) -> str:
        """A run's columns, and whether its lease is held."""
        return f"""run.lock_name, run.slot, run.fence, run.owner, run.started_at, run.ended_at,
            run.exit_status, EXISTS (SELECT 1 FROM {self.lock_table} AS held
                WHERE held.lock_name = run.lock_name AND held.fence = run.fence
                    AND token IS NOT NULL AND {self.lasting})"""

    def prune_applied(self, age: float) -> Query[int]:
        old = f"applied_at < {self.ago}"
        return self._prune(self.applied_table, "idempotency_key", old, commands.PruneApplied(age))

    def prune_once(self) -> Query[int]:
        old = f"expires_at <= {self.clock}"
        return self._prune(self.once_table, "idempotency_key", old, commands.PruneOnce())

    def prune_runs(self, age: float) -> Query[int]:
        later = f"""EXISTS (SELECT 1 FROM {self.run_table} AS later
            WHERE later.lock_name = found.lock_name AND later.started_at > found.started_at)"""
        return self._prune(
            self.run_table,
            "lock_name, slot",
            f"started_at < {self.ago}",
            commands.PruneRuns(age),
            only=f"AND {later}",
        )

    def prune_values(self, age: float) -> Query[int]:
        named = f"""EXISTS (SELECT 1 FROM {self.lock_table} AS l
            WHERE l.lock_name = found.lock_name)"""
        # A semaphore's limit has the fence 0 and stays: its slots have other names than the value.
        old, command = f"written_at < {self.ago}", commands.PruneValues(age)
        only = f"AND fence > 0 AND NOT {named}"
        return self._prune(self.value_table, "lock_name", old, command, only=only)

    def _prune(
        self,
        table: str,
        key: str,
        old: str,
        command: commands.PruneApplied
        | commands.PruneOnce
        | commands.PruneRuns
        | commands.PruneValues,
        only: str = "",
    ) -> Query[int]:
        # The condition is in it twice: a row that the subquery found may have been renewed since.
        return Query(
            f"""DELETE FROM {table} WHERE {old} AND ({key}) IN (SELECT {key} FROM (
                SELECT {key} FROM {table} AS found WHERE {old} {only} LIMIT {PRUNED_AT_ONCE}
            ) AS some_of_them)""",
            command._asdict(),
            command,
            self.patience,
        )


def _moment(reply: Reply) -> datetime:
    moment = utc(reply.rows[0][0])
    assert moment is not None
    return moment


def _runs(reply: Reply) -> list[RunState]:
    return list(map(_run, reply.rows))


def _run(columns: Sequence[Any]) -> RunState:
    name, slot, fence, owner, started, ended, status, held = columns
    began = utc(started)
    assert began is not None
    running = ended is None and bool(held)
    return RunState(text(name), text(slot), int(fence), owner, began, utc(ended), status, running)
