"""The row lock and the guard on PostgreSQL, in whose transaction ever they are."""

from __future__ import annotations

from ...protocol import commands
from ...protocol.state import RowOutcome
from ...protocol.steps import Query, Reply, any_row
from .fragments import FREE, LAZY, milliseconds
from .witness import OPEN, WitnessStatements

# Whether a statement sees the newest rows. Asked there: without an encoding text comes as bytes.
_NEWEST = "current_setting('transaction_isolation') = 'read committed'"


class RowStatements(WitnessStatements):
    """A guard is ``FOR KEY SHARE``, the lock of a foreign key's check: renewal and release change
    no key, so they pass it; a grant and a row lock take the row ``FOR UPDATE`` first and do not.
    Under REPEATABLE READ a guard is not disturbed by renewals since the snapshot, but by grants.
    """

    def create(self, name: str) -> Query[int]:
        return Query(
            f"""INSERT INTO {self.lock_table} (lock_name, fence) VALUES (%(name)s, 0)
            ON CONFLICT (lock_name) DO NOTHING""",
            {"name": name},
            commands.Create(name),
        )

    def lock_row(self, name: str, patience: float | None, *, borrowed: bool) -> Query[RowOutcome]:
        free = (
            f"SELECT fence FROM {self.lock_table} "
            f"WHERE lock_name = %(name)s AND {FREE} AND EXISTS (TABLE open)"
        )
        if not borrowed:
            # In a transaction of dblock's own settings may stay to its end. It changes nothing, so
            # nothing is lost when a crash forgets its commit, and that need not wait for a sync.
            return Query(
                f"""WITH open AS MATERIALIZED ({self.epoch(OPEN)}), locked AS MATERIALIZED ({free}
                    AND set_config('lock_timeout', %(patience)s, true) IS NOT NULL
                    AND {LAZY} IS NOT NULL
                    FOR UPDATE {"SKIP LOCKED" if patience == 0 else ""})
                SELECT {_NEWEST}, locked.fence, EXISTS (TABLE open)
                FROM (SELECT) AS always LEFT JOIN locked ON true""",
                {"name": name, "patience": str(milliseconds(patience))},
                commands.LockRow(name, borrowed),
                patience,
                durable=False,
                read=_row_lock,
            )
        return Query(
            f"""WITH open AS MATERIALIZED ({self.epoch(OPEN)}), before AS MATERIALIZED (
                SELECT current_setting('lock_timeout') AS patience
            ), during AS MATERIALIZED (
                SELECT set_config('lock_timeout', %(patience)s, true) AS patience
                FROM before WHERE before.patience IS NOT NULL
            ), locked AS MATERIALIZED (
                {free} AND (SELECT count(patience) FROM during) = 1 FOR UPDATE
            )
            SELECT {_NEWEST}, locked.fence,
                set_config('lock_timeout', before.patience, true), EXISTS (TABLE open)
            FROM before LEFT JOIN locked ON true""",
            {"name": name, "patience": str(milliseconds(patience))},
            commands.LockRow(name, borrowed),
            patience,
            read=_row_lock,
        )

    def guard(self, name: str, token: str, fence: int) -> Query[bool]:
        return Query(
            f"""SELECT fence FROM {self.lock_table}
            WHERE lock_name = %(name)s AND fence = %(fence)s AND token = %(token)s
                AND fence > ({self.epoch()})
            FOR KEY SHARE SKIP LOCKED""",
            {"name": name, "fence": fence, "token": token},
            commands.Guard(name, token, fence),
            0.0,
            read=any_row,
        )

    def apply(self, key: str) -> Query[int]:
        return Query(
            f"""INSERT INTO {self.applied_table} (idempotency_key, applied_at)
            VALUES (%(key)s, clock_timestamp()) ON CONFLICT (idempotency_key) DO NOTHING""",
            {"key": key},
            commands.Apply(key),
        )

    def unapply(self, key: str) -> Query[int]:
        return Query(
            f"DELETE FROM {self.applied_table} WHERE idempotency_key = %(key)s",
            {"key": key},
            commands.Unapply(key),
        )


def _row_lock(reply: Reply) -> RowOutcome:
    newest, fence, *_, open = reply.rows[0]
    return RowOutcome(fence is not None, stale=not newest, closed=not open)
