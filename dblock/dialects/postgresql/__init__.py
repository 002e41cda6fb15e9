"""PostgreSQL 14 or newer, through psycopg 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...protocol.commands import Command, ReleaseAndUnlock, Retire, Sweep, UnlockAll, WaitInServer
from ..adapter import Adapter
from ..retiring import RetiringStatements, idle
from ..runs import RunStatements
from ..statement import statement
from .adapter import Psycopg
from .election import ElectionStatements
from .fragments import DURABLE, LAZY, REMAINING
from .functions import FunctionStatements
from .migrations import MigrationStatements
from .readers import ReaderStatements
from .row import RowStatements
from .slots import SlotStatements


class PostgreSQL(
    FunctionStatements,
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
    backends: ClassVar[tuple[str, ...]] = ("postgresql",)
    driver: ClassVar[type[Adapter]] = Psycopg

    unsupported: ClassVar[Mapping[type[Command[Any]], str]] = {
        WaitInServer: "has no user locks",
        ReleaseAndUnlock: "has no user locks",
        UnlockAll: "has no user locks",
    }

    failure_aborts = True
    remaining = REMAINING
    lasting = "expires_at > clock_timestamp()"
    later = "clock_timestamp() + pg_catalog.make_interval(secs => {})"
    lazy = LAZY
    lazily = f"RETURNING {LAZY}"
    clock = "clock_timestamp()"
    ago = "clock_timestamp() - pg_catalog.make_interval(secs => %(age)s)"
    durably = f" RETURNING {DURABLE}"

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
