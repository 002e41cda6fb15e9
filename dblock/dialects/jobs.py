"""The statements over the record of jobs' runs, nearly the same for all databases; and pruning."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from ..protocol import commands
from ..protocol.state import RunState
from ..protocol.steps import Query, Reply
from .values import Values, text, utc

# One statement deletes so many rows, so that it ends within the server's limit for one.
PRUNED_AT_ONCE = 1000


class JobStatements(Values):
    """A run's row is written by who holds the job's lease, and found by that hold's fence."""

    #: The server's clock, in UTC where the database keeps no zone, and ``age`` seconds before it.
    clock: ClassVar[str]
    ago: ClassVar[str]
    #: What ends a statement that must be on disk before it is told.
    durably: ClassVar[str] = ""

    run_table: str
    applied_table: str

    def now(self) -> Query:
        """Read the server's clock."""
        return Query(f"SELECT {self.clock}", {}, commands.ReadClock())

    def told_time(self, reply: Reply) -> datetime:
        moment = utc(reply.rows[0][0])
        assert moment is not None
        return moment

    def begin_run(self, name: str, slot: str, fence: int, owner: str) -> Query:
        """Record that a run begins, unless one has succeeded in this slot; the empty one is none.

        The recorded run's fence comes back: this run's when it is to begin. A statement that comes
        late, when a later hold's run has begun or this one has ended, changes nothing.
        """
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
        )

    def startable(self, fence: str) -> str:
        """Whether a run under ``fence`` may begin where the row has the record of another."""
        return f"""(run.fence < {fence} AND NOT
            (run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0))"""

    def end_run(self, name: str, slot: str, fence: int, status: int) -> Query:
        """Record how a run ended; no row when it is not the recorded one any more."""
        return Query(
            f"""UPDATE {self.run_table} SET ended_at = {self.clock},
                exit_status = {self.parameter("status")}
            WHERE lock_name = {self.parameter("name")} AND slot = {self.parameter("slot")}
                AND fence = {self.parameter("fence")}{self.durably}""",
            {"name": self.key(name), "slot": self.key(slot), "fence": fence, "status": status},
            commands.EndRun(name, slot, fence, status),
            self.patience,
        )

    def last_run(self, name: str) -> Query:
        """Read the run of a name that began last."""
        return Query(
            f"""SELECT lock_name, slot, owner, started_at, ended_at, exit_status
            FROM {self.run_table} WHERE lock_name = {self.name_parameter}
            ORDER BY started_at DESC, fence DESC LIMIT 1""",
            {"name": self.key(name)},
            commands.LastRun(name),
            self.patience,
        )

    def runs(self, reply: Reply) -> list[RunState]:
        return [
            RunState(text(name), text(slot), owner, utc(started), utc(ended), status)
            for name, slot, owner, started, ended, status in reply.rows
        ]

    def prune_applied(self, age: float) -> Query:
        """Delete some of the keys that are older than ``age`` seconds, if there are any."""
        old = f"applied_at < {self.ago}"
        return self._prune(self.applied_table, "idempotency_key", old, commands.PruneApplied(age))

    def prune_runs(self, age: float) -> Query:
        """Delete some of the runs that are as old, not the last one of a name."""
        later = f"""EXISTS (SELECT 1 FROM {self.run_table} AS later
            WHERE later.lock_name = old.lock_name AND later.started_at > old.started_at)"""
        old = f"started_at < {self.ago} AND {later}"
        return self._prune(self.run_table, "lock_name, slot", old, commands.PruneRuns(age))

    def _prune(
        self,
        table: str,
        key: str,
        old: str,
        command: commands.PruneApplied | commands.PruneRuns,
    ) -> Query:
        return Query(
            f"""DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM (
                SELECT {key} FROM {table} AS old WHERE {old} LIMIT {PRUNED_AT_ONCE}
            ) AS some_of_them)""",
            {"age": command.age},
            command,
            self.patience,
        )
