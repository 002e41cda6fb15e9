"""The row lock and the guard on SQLite, and dblock's other writes in a user's transaction."""

from __future__ import annotations

from ...protocol import commands
from ...protocol.commands import (
    Apply,
    ClaimOnce,
    Create,
    Gate,
    Guard,
    ListRowLocks,
    SelectForUpdate,
    Unapply,
)
from ..dialect import Dialect
from ..query import Query, any_row
from ..replies import read_fence, read_record, read_row_lock
from ..statement import statement
from .fragments import FREE, NOW, SHIFTED, modifier


class RowStatements(Dialect):
    """SQLite has one writer at a time for the whole file, so a row lock is a write transaction:
    coarser than a row, still exclusive.
    """

    @statement(Create, lock_timeout=None)
    def create(self, command: Create) -> str:
        here = self.here if command.borrowed else "true"
        return f"""INSERT INTO {self.lock_table} (lock_name, fence) SELECT :name, {self.floor}
            WHERE {here} ON CONFLICT (lock_name) DO NOTHING"""

    def begin(self, patience: float | None) -> tuple[Query[int], ...]:
        limit = self.timeouts.query if patience is None else patience
        if self.longest_patience is not None:
            limit = min(limit, self.longest_patience)
        # IMMEDIATE: a deferred transaction that has read something cannot become a writer once
        # another transaction has written.
        return (Query("BEGIN IMMEDIATE", {}, commands.Begin(), limit),)

    @statement(SelectForUpdate, read=read_row_lock, lock_timeout=None)
    def lock_row(self, command: SelectForUpdate) -> str:
        if not command.borrowed:  # BEGIN IMMEDIATE has locked the file already
            return f"SELECT fence FROM {self.lock_table} WHERE lock_name = :name AND {FREE}"
        return f"""UPDATE {self.lock_table} SET fence = fence
            WHERE lock_name = :name AND {FREE} AND {self.here} RETURNING fence"""

    @statement(Guard, read=any_row, lock_timeout=None)
    def guard(self) -> str:
        return f"""UPDATE {self.lock_table} SET fence = fence
            WHERE lock_name = :name AND fence = :fence AND token = :token AND {self.here}
            RETURNING fence"""

    @statement(ListRowLocks, read=lambda result: {}, lock_timeout=0.0)
    def row_locks(self) -> str:
        # The UPDATE changes nothing, but needs the file's write lock: it fails while another
        # transaction has that.
        return f"UPDATE {self.lock_table} SET fence = fence WHERE false"

    @statement(Apply, lock_timeout=None)
    def apply(self) -> str:
        return f"""INSERT INTO {self.applied_table} (idempotency_key, applied_at)
            SELECT :key, {NOW} WHERE {self.here} ON CONFLICT (idempotency_key) DO NOTHING"""

    kept_until = SHIFTED.format(":keep")
    exact_key = ":key"
    exact_result = ":result"

    @statement(
        ClaimOnce,
        read=read_record,
        lock_timeout=None,
        parameters=lambda _, command: {"keep": modifier(command.keep)},
    )
    def claim_once(self) -> str:
        changes = ", ".join(
            f"{column} = CASE WHEN o.expires_at <= {NOW} THEN excluded.{column} ELSE o.{column} END"
            for column in ("token", "fingerprint", "result", "made_at", "expires_at")
        )
        return f"""INSERT INTO {self.once_table} AS o
            (idempotency_key, token, fingerprint, result, made_at, expires_at)
            SELECT :key, :token, :fingerprint, NULL, {NOW}, {self.kept_until} WHERE {self.here}
            ON CONFLICT (idempotency_key) DO UPDATE SET {changes}
            RETURNING token, fingerprint, result"""

    @statement(Unapply, lock_timeout=None)
    def unapply(self) -> str:
        return f"DELETE FROM {self.applied_table} WHERE idempotency_key = :key"

    @statement(Gate, read=read_fence, lock_timeout=None)
    def gate(self, command: Gate) -> str:
        return f"""INSERT INTO {command.table} (name, fence) VALUES (:name, :fence)
            ON CONFLICT (name) DO UPDATE SET fence = max(fence, excluded.fence)
            RETURNING fence"""
