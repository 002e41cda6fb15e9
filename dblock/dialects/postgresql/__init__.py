"""PostgreSQL 14 or newer, through psycopg 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...protocol.commands import (
    Command,
    EndSession,
    ReleaseAndUnlock,
    Retire,
    SeeHidden,
    Sweep,
    UnlockAll,
    WaitInServer,
)
from ...protocol.dialect import Traits
from ...protocol.rate import Arrival, TakePlace
from ..adapter import Adapter
from ..query import any_row
from ..retiring import RetiringStatements, idle
from ..runs import RunStatements
from ..statement import statement
from .adapter import Psycopg
from .election import ElectionStatements
from .fragments import DURABLE, LAZY, REMAINING
from .functions import FunctionStatements
from .members import MemberStatements
from .migrations import MigrationStatements
from .readers import ReaderStatements
from .row import RowStatements
from .slots import SlotStatements


class PostgreSQL(
    FunctionStatements,
    MemberStatements,
    SlotStatements,
    ReaderStatements,
    RowStatements,
    MigrationStatements,
    RunStatements,
    RetiringStatements,
    ElectionStatements,
):
    """PostgreSQL's statements. Each file of this folder has the statements about one subject."""

    name = "postgresql"
    traits = Traits(
        skips_locked=True,
        failure_aborts=True,
        has_witness=True,
        can_notify=True,
        sees_row_locks=True,
    )
    backends: ClassVar[tuple[str, ...]] = ("postgresql",)
    driver: ClassVar[type[Adapter]] = Psycopg

    unsupported: ClassVar[Mapping[type[Command[Any]], str]] = {
        SeeHidden: "names each table with its schema, so no temporary table hides one",
        WaitInServer: "has no user locks",
        ReleaseAndUnlock: "has no user locks",
        UnlockAll: "has no user locks",
    }

    remaining = REMAINING
    lasting = "expires_at > clock_timestamp()"
    later = "clock_timestamp() + pg_catalog.make_interval(secs => {})"
    lazy = LAZY
    lazily = f"RETURNING {LAZY}"
    clock = "clock_timestamp()"
    ago = "clock_timestamp() - pg_catalog.make_interval(secs => %(age)s)"
    durably = f" RETURNING {DURABLE}"
    instant = "(pg_catalog.date_part('epoch', clock_timestamp()) * 1000000::float8)::bigint"

    @property
    def longest_patience(self) -> float:
        return self.timeouts.query

    @statement(Retire, parameters=idle, lock_timeout=0.0)
    def retire(self) -> str:
        return f"""WITH idle AS MATERIALIZED (
                SELECT lock_name FROM {self.lock_table} WHERE {self.retirable}
                FOR UPDATE SKIP LOCKED
            )
            DELETE FROM {self.lock_table} AS l USING idle WHERE l.lock_name = idle.lock_name"""

    @statement(Sweep, lock_timeout=0.0)
    def sweep(self) -> str:
        over = (
            f"SELECT id FROM {self.waiter_table} WHERE NOT ({self.lasting}) FOR UPDATE SKIP LOCKED"
        )
        return f"DELETE FROM {self.waiter_table} WHERE id IN ({over}) {self.lazily}"

    @statement(EndSession, read=any_row, lock_timeout=None)
    def end_session(self) -> str:
        # The pid alone could be a newer session's.
        return """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE pid = %(number)s AND backend_start = %(mark)s"""

    @statement(TakePlace, read=lambda result: Arrival.read(result.rows), lock_timeout=None)
    def take_place(self) -> str:
        # A call that the snapshot refuses locks no row, and so writes nothing.
        return f"""WITH asked AS MATERIALIZED (
                SELECT {self.instant} AS now, %(step)s::bigint AS step, %(ahead)s::bigint AS ahead
            ), taken AS (
                INSERT INTO {self.value_table} AS v (lock_name, fence, value, written_at)
                SELECT %(name)s::text, -now - step, %(mark)s::text, clock_timestamp() FROM asked
                WHERE NOT EXISTS (
                    SELECT 1 FROM {self.value_table} AS seen
                    WHERE seen.lock_name = %(name)s AND step - seen.fence > now + ahead
                )
                ON CONFLICT (lock_name) DO UPDATE
                SET fence = LEAST(v.fence - (SELECT step FROM asked), excluded.fence),
                    value = excluded.value, written_at = excluded.written_at
                WHERE v.fence < 0 AND v.value <> excluded.value
                    AND (SELECT step - v.fence <= now + ahead FROM asked)
                RETURNING value, fence, {LAZY}
            )
            SELECT value, -fence, now FROM asked, (
                SELECT * FROM taken
                UNION ALL SELECT value, fence, NULL FROM {self.value_table}
                WHERE lock_name = %(name)s AND NOT EXISTS (SELECT 1 FROM taken)
            ) AS found"""
