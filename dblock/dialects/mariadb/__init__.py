"""MariaDB 10.6 or newer, through PyMySQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...protocol.commands import (
    AnnounceTtl,
    BeginRun,
    CallObservers,
    CallReaders,
    Command,
    Distrust,
    EndSession,
    ListRowLocks,
    PassOn,
    ReadWitness,
    RecordTtl,
    Sweep,
    Take,
    WriteWitness,
)
from ...protocol.dialect import Traits
from ...protocol.rate import Arrival, TakePlace
from ..adapter import Adapter
from ..query import any_row
from ..replies import read_fence
from ..runs import RunStatements
from ..statement import statement
from ..waiters import WaiterStatements
from .adapter import PyMySQL
from .election import ElectionStatements
from .fragments import REMAINING, microseconds
from .members import MemberStatements
from .migrations import MigrationStatements
from .readers import ReaderStatements
from .retiring import RetiringStatements
from .row import RowStatements
from .slots import SlotStatements


class MariaDB(
    MemberStatements,
    SlotStatements,
    ReaderStatements,
    RowStatements,
    MigrationStatements,
    WaiterStatements,
    RunStatements,
    RetiringStatements,
    ElectionStatements,
):
    """MariaDB's statements. Each file of this folder has the statements about one subject."""

    name = "mariadb"
    traits = Traits(
        refusal_holds=True,  # InnoDB keeps the lock on a row that did not match
        stale_reads=True,  # under REPEATABLE READ, its default
        can_wait_in_server=True,
        # `looks_itself` depends on the server: Tables._name_tables sets it.
    )
    backends: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    driver: ClassVar[type[Adapter]] = PyMySQL

    unsupported: ClassVar[Mapping[type[Command[Any]], str]] = {
        CallReaders: "calls nobody",
        CallObservers: "notifies nobody: observers of a name poll",
        Take: "takes a name when it is joined for",
        PassOn: "passes no name on: a release frees it",
        ReadWitness: "has no witness",
        WriteWitness: "has no witness",
        Distrust: "has no witness",
        AnnounceTtl: "has no witness",
        RecordTtl: "has no witness",
        ListRowLocks: "does not show which transaction has locked a row",
    }

    remaining = REMAINING
    lasting = f"{REMAINING} > 0"
    later = "SYSDATE(6) + INTERVAL {} MICROSECOND"
    upsert = "ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at), holds = VALUES(holds)"
    clock = "UTC_TIMESTAMP(6)"
    instant = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
    ago = "UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND"

    def shift(self, seconds: float) -> object:
        return microseconds(seconds)

    def rights(self) -> dict[str, str]:
        return super().rights() | {self.table("guard"): "SELECT, INSERT, UPDATE, DELETE"}

    @statement(Sweep)
    def sweep(self) -> str:
        # A subquery finds the expired rows without locks: a scan with locks would make the
        # statements of other waiters fail as busy.
        over = f"SELECT id FROM {self.waiter_table} WHERE {REMAINING} <= 0 LIMIT 1000"
        return f"""DELETE w FROM ({over}) AS expired STRAIGHT_JOIN {self.waiter_table} AS w
                ON w.id = expired.id"""

    @statement(BeginRun, read=read_fence)
    def begin_run(self) -> str:
        key = "lock_name = %(name)s AND slot = %(slot)s"
        return f"""BEGIN NOT ATOMIC
                INSERT IGNORE INTO {self.run_table} (lock_name, slot, fence, owner, started_at)
                    VALUES (%(name)s, %(slot)s, %(fence)s, %(owner)s, {self.clock});
                IF ROW_COUNT() = 0 THEN
                    UPDATE {self.run_table} AS run SET fence = %(fence)s, owner = %(owner)s,
                        started_at = {self.clock}, ended_at = NULL, exit_status = NULL
                        WHERE {key} AND {self.startable("%(fence)s")};
                END IF;
                SELECT fence FROM {self.run_table} WHERE {key};
            END"""

    @statement(EndSession, read=any_row, lock_timeout=None)
    def end_session(self) -> str:
        return """BEGIN NOT ATOMIC
                DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; -- it has just ended by itself
                IF EXISTS (SELECT 1 FROM information_schema.processlist
                           WHERE id = %(number)s AND host = %(mark)s) THEN
                    KILL CONNECTION %(number)s;
                    SELECT 1;
                END IF;
            END"""

    @statement(TakePlace, read=lambda result: Arrival.read(result.rows), lock_timeout=None)
    def take_place(self) -> str:
        # MariaDB assigns from left to right, so what fits is found out once, before the changes.
        fits = f"""fence < 0 AND value <> VALUES(value)
                AND %(step)s - fence <= {self.instant} + %(ahead)s"""
        return f"""INSERT INTO {self.value_table} (lock_name, fence, value, written_at)
            VALUES (%(name)s, -{self.instant} - %(step)s, %(mark)s, {self.clock})
            ON DUPLICATE KEY UPDATE
                fence = IF(@dblock_fits := {fits}, LEAST(fence - %(step)s, VALUES(fence)), fence),
                value = IF(@dblock_fits, VALUES(value), value),
                written_at = IF(@dblock_fits, VALUES(written_at), written_at)
            RETURNING value, -fence, {self.instant}"""
