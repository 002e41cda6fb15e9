"""The row lock and the guard on PostgreSQL, in the user's transaction or in dblock's own."""

from __future__ import annotations

from datetime import datetime

from ...lock_state import RowLockState
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
from ...protocol.state import RowOutcome
from ..query import Result, any_row
from ..replies import read_fence, read_record
from ..statement import statement
from ..values import text, utc
from .fragments import FREE, IS_LIMITED, LAZY, LIMITED, UNLIMITED, milliseconds
from .witness import OPEN, WitnessStatements

# Whether a statement sees the newest rows. The server compares the text: in a session without an
# encoding the driver returns text as bytes.
_NEWEST = "current_setting('transaction_isolation') = 'read committed'"

# A row's `xmax` is the 32-bit number of the transaction that locked it last. _LOCKER adds the upper
# bits. (`xmax` can also be the number of a group of transactions, from a counter of its own, so a
# number that lies in the future is left out.)
# An open transaction has a lock on its number, which shows its session. A savepoint that was
# released has none: for its rows the server shows only that the transaction is open, and which
# sessions have locked any row of the table. Every role may read all this, and the session's role;
# only the session's own role and pg_read_all_stats may read its statement and its start.
_NOW = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_HALF = 2**31
_LOCKER = (
    f"greatest(0, {_NOW} + ((xmax::text::bigint - {_NOW} + {_HALF}) & {2 * _HALF - 1}) - {_HALF})"
    "::text::xid8"
)


def _row_locks(result: Result) -> dict[str, RowLockState]:
    return {text(name): _transaction(*told) for name, *told in result.rows}


def _transaction(
    pid: int | None,
    role: str | bytes | None,
    application: str | bytes | None,
    since: datetime | None,
    statement: str | bytes | None,
    replicating: bool | None,
) -> RowLockState:
    if pid is None:
        return RowLockState("a transaction")
    whose = " ".join(text(part) for part in (role, application) if part)
    said = text(statement) if statement else None
    holder = f"a transaction of {whose}, pid {pid}"
    return RowLockState(holder, pid, utc(since), said, bool(replicating))


def _row_lock(result: Result) -> RowOutcome:
    if not result.rows:
        return RowOutcome(locked=False)
    newest, fence, *others, open = result.rows[0]
    here = bool(others and others[-1])
    return RowOutcome(fence is not None, stale=not newest, closed=not open, here=here)


class RowStatements(WitnessStatements):
    """A guard is ``FOR KEY SHARE``, the lock of a foreign key's check: renewal and release change
    no key, so they pass it; a grant and a row lock take the row ``FOR UPDATE`` first and do not.
    Under REPEATABLE READ a guard is not disturbed by renewals since the snapshot, but by grants.
    """

    @statement(Create)
    def create(self) -> str:
        # NOT EXISTS and the floor have to be read in one snapshot: a row with a larger fence may be
        # deleted after the floor was read and before the INSERT.
        return f"""INSERT INTO {self.lock_table} (lock_name, fence) SELECT %(name)s, {self.floor}
            WHERE NOT EXISTS (SELECT FROM {self.lock_table} WHERE lock_name = %(name)s)
            ON CONFLICT (lock_name) DO NOTHING"""

    @statement(SelectForUpdate, read=_row_lock, lock_timeout="patience")
    def lock_row(self, command: SelectForUpdate) -> str:
        row = (
            f"SELECT fence FROM {self.lock_table} "
            f"WHERE lock_name = %(name)s AND {FREE} AND EXISTS (TABLE open)"
        )
        if not command.borrowed:
            # In dblock's own transaction the settings may last to its end. The transaction changes
            # no data, so its commit need not wait for the disk.
            return f"""WITH open AS MATERIALIZED ({self.epoch(OPEN)}), locked AS MATERIALIZED ({row}
                    AND set_config('lock_timeout', %(patience)s, true) IS NOT NULL
                    AND {LAZY} IS NOT NULL
                    FOR UPDATE {"SKIP LOCKED" if command.patience == 0 else ""})
                SELECT {_NEWEST}, locked.fence, EXISTS (TABLE open)
                FROM (SELECT) AS always LEFT JOIN locked ON true"""
        if command.patience == 0:  # no lock_timeout to set, and so none to restore
            return f"""SELECT true, fence, true FROM {self.lock_table}
                WHERE lock_name = %(name)s AND {FREE}
                    AND EXISTS ({self.epoch(OPEN)}) AND {self.here}
                FOR UPDATE SKIP LOCKED"""
        return f"""WITH open AS MATERIALIZED ({self.epoch(OPEN)}), {LIMITED},
            here AS MATERIALIZED (SELECT WHERE {self.here}), locked AS MATERIALIZED (
                {row} AND EXISTS (TABLE here) AND {IS_LIMITED} FOR UPDATE
            )
            SELECT {_NEWEST}, locked.fence,
                {UNLIMITED}, EXISTS (TABLE here), EXISTS (TABLE open)
            FROM before LEFT JOIN locked ON true"""

    @statement(Guard, read=any_row, lock_timeout=0.0)
    def guard(self) -> str:
        return f"""SELECT fence FROM {self.lock_table}
            WHERE lock_name = %(name)s AND fence = %(fence)s AND token = %(token)s
                AND fence > ({self.epoch()}) AND {self.here}
            FOR KEY SHARE SKIP LOCKED"""

    @statement(Gate, read=read_fence)
    def gate(self, command: Gate) -> str:
        # A larger fence is written again, unchanged: RETURNING has only rows that were written.
        return f"""INSERT INTO {command.table} AS seen (name, fence) VALUES (%(name)s, %(fence)s)
            ON CONFLICT (name) DO UPDATE SET fence = greatest(seen.fence, excluded.fence)
            RETURNING fence"""

    @statement(ListRowLocks, read=_row_locks)
    def row_locks(self, command: ListRowLocks) -> str:
        only = "" if command.name is None else "AND lock_name = %(name)s"
        return f"""WITH locked AS MATERIALIZED (
                SELECT lock_name, xmax AS xid, {_LOCKER} AS locker
                FROM {self.lock_table} WHERE {FREE} {only}
            ), lockers AS MATERIALIZED (
                SELECT DISTINCT pid FROM pg_locks
                WHERE locktype = 'relation' AND granted
                    AND relation = {self.oid(self.lock_table)}::oid
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND mode = 'RowShareLock'
            )
            SELECT locked.lock_name, a.pid, a.usename, a.application_name, a.xact_start,
                CASE WHEN a.xact_start IS NOT NULL THEN a.query END, a.wait_event = 'SyncRep'
            FROM locked
            LEFT JOIN pg_locks AS x ON x.transactionid = locked.xid
                AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND x.granted
            LEFT JOIN pg_stat_activity AS a ON a.pid = coalesce(
                x.pid, (SELECT min(pid) FROM lockers HAVING count(*) = 1)
            )
            WHERE CASE WHEN age(xid) > 0 THEN pg_xact_status(locker) = 'in progress' END"""

    @statement(Apply)
    def apply(self) -> str:
        return f"""INSERT INTO {self.applied_table} (idempotency_key, applied_at)
            SELECT %(key)s, clock_timestamp() WHERE {self.here}
            ON CONFLICT (idempotency_key) DO NOTHING"""

    kept_until = "clock_timestamp() + pg_catalog.make_interval(secs => %(keep)s)"
    exact_key = "%(key)s"
    exact_result = "%(result)s"

    def limit(self, patience: float | None) -> object:
        return str(milliseconds(patience))

    @statement(
        ClaimOnce,
        read=read_record,
        lock_timeout=lambda _, command: command.lock_timeout,
        parameters=lambda _, command: {"patience": str(milliseconds(command.lock_timeout))},
    )
    def claim_once(self) -> str:
        changes = ", ".join(
            f"{column} = excluded.{column}"
            for column in ("token", "fingerprint", "result", "made_at", "expires_at")
        )
        # It reads first, so that a repeated call locks and writes nothing. A record that is newer
        # than the statement's snapshot is neither read nor written: the reply is empty, and the
        # next statement sees the record.
        return f"""WITH {LIMITED}, here AS MATERIALIZED (SELECT WHERE {self.here}
            ), seen AS MATERIALIZED (
                SELECT token, fingerprint, result FROM here, {self.once_table}
                WHERE idempotency_key = %(key)s AND expires_at > clock_timestamp()
            ), made AS (
                INSERT INTO {self.once_table} AS o
                    (idempotency_key, token, fingerprint, made_at, expires_at)
                SELECT %(key)s, %(token)s, %(fingerprint)s, clock_timestamp(), {self.kept_until}
                FROM here WHERE NOT EXISTS (TABLE seen) AND {IS_LIMITED}
                ON CONFLICT (idempotency_key) DO UPDATE SET {changes}
                WHERE o.expires_at <= clock_timestamp()
                RETURNING token, fingerprint, result
            )
            SELECT found.token, found.fingerprint, found.result,
                {UNLIMITED}
            FROM before LEFT JOIN (TABLE seen UNION ALL TABLE made) AS found ON true"""

    @statement(Unapply)
    def unapply(self) -> str:
        return f"DELETE FROM {self.applied_table} WHERE idempotency_key = %(key)s"
