"""MySQL 8.4 or newer, and Percona Server for MySQL, through PyMySQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ...protocol.commands import BeginRun, Command, EndSession, ListRowLocks, WriteValue
from ...protocol.rate import Arrival, TakePlace
from ..elections import is_written
from ..mariadb import MariaDB
from ..packets import packet, transaction
from ..query import any_row
from ..replies import read_fence
from ..statement import statement
from .members import MemberStatements
from .migrations import MigrationStatements
from .retiring import PruningStatements, RetiringStatements
from .row import RowStatements
from .slots import SlotStatements


class MySQL(
    MemberStatements,
    SlotStatements,
    RowStatements,
    RetiringStatements,
    PruningStatements,
    MigrationStatements,
    MariaDB,
):
    """MySQL's statements, where they differ from MariaDB's: MySQL has neither RETURNING nor
    compound statements."""

    name = "mysql"
    traits = replace(MariaDB.traits, sees_row_locks=True)

    unsupported: ClassVar[Mapping[type[Command[Any]], str]] = {
        command: why for command, why in MariaDB.unsupported.items() if command is not ListRowLocks
    }

    upsert = "AS new ON DUPLICATE KEY UPDATE expires_at = new.expires_at, holds = new.holds"

    @statement(WriteValue, reads=is_written)
    def write_value(self) -> str:
        # The fence is set last, because the condition of each column reads it.
        table = self.value_table
        changes = ", ".join(
            f"{column} = IF({table}.fence BETWEEN 1 AND new.fence, new.{column}, {table}.{column})"
            for column in ("value", "written_at", "fence")
        )
        columns = "lock_name, fence, value, written_at"
        return transaction(
            f"""INSERT INTO {table} ({columns})
                SELECT * FROM ({self.proven}) AS new ({columns})
                ON DUPLICATE KEY UPDATE {changes}""",
            "SET @dblock_proven = ROW_COUNT()",
            f"""SELECT fence FROM {table}
                WHERE lock_name = IF(@dblock_proven > 0, %(name)s, NULL)""",
        )

    @statement(BeginRun, read=read_fence)
    def begin_run(self) -> str:
        key = "lock_name = %(name)s AND slot = %(slot)s"
        return transaction(
            f"""INSERT IGNORE INTO {self.run_table} (lock_name, slot, fence, owner, started_at)
                VALUES (%(name)s, %(slot)s, %(fence)s, %(owner)s, {self.clock})""",
            "SET @dblock_begun = ROW_COUNT()",
            f"""UPDATE {self.run_table} AS run SET fence = %(fence)s, owner = %(owner)s,
                    started_at = {self.clock}, ended_at = NULL, exit_status = NULL
                WHERE {key} AND @dblock_begun = 0 AND {self.startable("%(fence)s")}""",
            f"SELECT fence FROM {self.run_table} WHERE {key}",
        )

    @statement(EndSession, read=any_row, lock_timeout=None)
    def end_session(self) -> str:
        # KILL has no condition, so the statement is chosen before. One SET evaluates all its values
        # before it assigns the first.
        there = "SELECT 1 FROM performance_schema.processlist WHERE id = %(number)s"
        return packet(
            f"SET @dblock_there = EXISTS ({there} AND host = %(mark)s)",
            "SET @dblock_end = IF(@dblock_there, 'KILL CONNECTION %(number)s', 'DO 0')",
            "PREPARE dblock_end FROM @dblock_end",
            "EXECUTE dblock_end",
            "DEALLOCATE PREPARE dblock_end",
            "SELECT 1 FROM DUAL WHERE @dblock_there",
        )

    @statement(TakePlace, read=lambda result: Arrival.read(result.rows), lock_timeout=None)
    def take_place(self) -> str:
        # The first statement locks the row, and makes it if there is none. A new row has
        # this caller's mark, so the second statement does not move it.
        key = "lock_name = %(name)s"
        return transaction(
            f"SET @dblock_now = {self.instant}",
            f"""INSERT INTO {self.value_table} (lock_name, fence, value, written_at)
                VALUES (%(name)s, -@dblock_now - %(step)s, %(mark)s, {self.clock})
                ON DUPLICATE KEY UPDATE lock_name = %(name)s""",
            f"""UPDATE {self.value_table}
                SET fence = LEAST(fence - %(step)s, -@dblock_now - %(step)s), value = %(mark)s,
                    written_at = {self.clock}
                WHERE {key} AND fence < 0 AND value <> %(mark)s
                    AND %(step)s - fence <= @dblock_now + %(ahead)s""",
            f"SELECT value, -fence, @dblock_now FROM {self.value_table} WHERE {key}",
        )
