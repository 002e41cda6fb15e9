"""The statements over the record of jobs' runs, nearly the same for all databases; and pruning."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from ..protocol import commands
from ..protocol.state import RunState
from ..protocol.steps import Query, Reply
from .dialect import Dialect
from .values import text, utc

# One statement deletes so many rows, so that it ends within the server's limit for one.
PRUNED_AT_ONCE = 1000


class RunStatements(Dialect):
    """A run's row is written by who holds the job's lease, and found by that hold's fence."""

    #: What ends a statement that must be on disk before it is told.
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
        """Whether a run under ``fence`` may begin where the row has the record of another."""
        return f"""(run.fence < {fence} AND NOT
            (run.slot <> '' AND run.exit_status IS NOT NULL AND run.exit_status = 0))"""

    def end_run(self, name: str, slot: str, fence: int, status: int) -> Query[int]:
        return Query(
            f"""UPDATE {self.run_table} SET ended_at = {self.clock},
                exit_status = {self.parameter("status")}
            WHERE lock_name = {self.parameter("name")} AND slot = {self.parameter("slot")}
                AND fence = {self.parameter("fence")}{self.durably}""",
            {"name": self.key(name), "slot": self.key(slot), "fence": fence, "status": status},
            commands.EndRun(name, slot, fence, status),
            self.patience,
        )

    def last_run(self, name: str) -> Query[RunState | None]:
        return Query(
            f"""SELECT lock_name, slot, owner, started_at, ended_at, exit_status
            FROM {self.run_table} WHERE lock_name = {self.name_parameter}
            ORDER BY started_at DESC, fence DESC LIMIT 1""",
            {"name": self.key(name)},
            commands.LastRun(name),
            self.patience,
            read=_run,
        )

    def prune_applied(self, age: float) -> Query[int]:
        old = f"applied_at < {self.ago}"
        return self._prune(self.applied_table, "idempotency_key", old, commands.PruneApplied(age))

    def prune_runs(self, age: float) -> Query[int]:
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
    ) -> Query[int]:
        return Query(
            f"""DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM (
                SELECT {key} FROM {table} AS old WHERE {old} LIMIT {PRUNED_AT_ONCE}
            ) AS some_of_them)""",
            {"age": command.age},
            command,
            self.patience,
        )


def read_fence(reply: Reply) -> int:
    """Read the fence of the run that is on record."""
    return int(reply.rows[0][0])


def _moment(reply: Reply) -> datetime:
    moment = utc(reply.rows[0][0])
    assert moment is not None
    return moment


def _run(reply: Reply) -> RunState | None:
    if not reply.rows:
        return None
    name, slot, owner, started, ended, status = reply.rows[0]
    return RunState(text(name), text(slot), owner, utc(started), utc(ended), status)
