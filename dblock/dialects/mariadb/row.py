"""The row lock and the guard on MariaDB, and dblock's other writes in a user's transaction."""

from __future__ import annotations

import math

from ...protocol.commands import (
    Apply,
    ClaimOnce,
    Create,
    Gate,
    Guard,
    SeeHidden,
    SelectForUpdate,
    Unapply,
)
from ..query import Result, any_row
from ..replies import read_fence, read_record, read_row_lock
from ..statement import statement
from ..values import text
from .base import Tables
from .fragments import EXACT, FREE, NEWEST, WRITTEN, in_hex, newest_and

# Seconds. A statement with a shorter limit does not wait at all: it takes about as long to run.
_WORTH_WAITING = 0.05


def row_limit(dialect: Tables, command: SelectForUpdate) -> float:
    """Return how long a row lock may wait, in seconds."""
    patience = command.patience
    seconds = dialect.longest_patience if patience is None else patience
    return 0.0 if seconds < _WORTH_WAITING else seconds


def guard_limit(dialect: Tables, command: Guard) -> float:
    return dialect.longest_patience if dialect.clustered else 0.0


def _temporary(result: Result) -> str | None:
    """Read the name of a table if it is temporary."""
    name, made = map(text, result.rows[0])
    return name if made.startswith("CREATE TEMPORARY") else None


def matched(result: Result) -> bool:
    return any_row(result) or result.matched > 0


def _key(_: Tables, command: Apply | Unapply) -> dict[str, str]:
    return in_hex(command.key)


class RowStatements(Tables):
    """A user's session has the user's settings. So each statement sets for itself how long it
    waits, and that it reads the newest rows."""

    newest = NEWEST

    def hidden(self) -> tuple[SeeHidden, ...]:
        return SeeHidden(self.guard_table), SeeHidden(self.lock_table)

    @statement(SeeHidden, read=_temporary, lock_timeout=None)
    def see_hidden(self, command: SeeHidden) -> str:
        return f"SHOW CREATE TABLE {command.table}"

    @statement(Create)
    def create(self) -> str:
        return f"""BEGIN NOT ATOMIC
                DECLARE floor BIGINT DEFAULT 0;
                DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
                START TRANSACTION;
                {self.made}
                COMMIT;
            END"""

    @statement(SelectForUpdate, read=read_row_lock, lock_timeout=row_limit)
    def lock_row(self, command: SelectForUpdate) -> str:
        if self.clustered:
            return self._write_row(command)
        seconds = row_limit(self, command)
        if seconds == 0:
            # Not SKIP LOCKED: by a unique key 10.11 answers it with error 1180 "Operation not
            # permitted". The error of NOWAIT undoes this statement alone.
            begin, wait = NEWEST, "NOWAIT"
        else:
            # The error of max_statement_time does the same. It is exact; WAIT has whole seconds.
            begin = newest_and(f"max_statement_time = {seconds:.3f}")
            wait = f"WAIT {math.ceil(seconds) + 1}"
        key, here = EXACT, f" AND {self.here_now}" if command.borrowed else ""
        if not command.borrowed:
            # A check in the statement itself: a subquery locks nothing, and in dblock's own
            # sessions, under READ COMMITTED, it sees the newest rows. So the statement does not
            # lock the row of a held lease.
            key = f"(SELECT lock_name FROM {self.lock_table} WHERE lock_name = {key} AND {FREE})"
        return f"""{begin}
            SELECT STRAIGHT_JOIN l.fence FROM {self.guard_table} AS g
            JOIN {self.lock_table} AS l ON l.lock_name = g.lock_name
            WHERE g.lock_name = {key}
                AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6)){here}
            FOR UPDATE {wait}"""

    def _write_row(self, command: SelectForUpdate) -> str:
        """Lock both rows, and write the guard's. The assignment that changes nothing only locks the
        name's row."""
        limits, _ = self._limits(command.patience)
        here = f" AND {self.here}" if command.borrowed else ""
        return f"""{newest_and(limits)}
            UPDATE {self.guard_table} AS g STRAIGHT_JOIN {self.lock_table} AS l
                ON l.lock_name = g.lock_name
            SET {WRITTEN}, l.fence = l.fence
            WHERE g.lock_name = {EXACT}
                AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6)){here}"""

    def _limits(self, patience: float | None) -> tuple[str, float]:
        """Return the settings that limit a writing statement's wait, and the limit in seconds."""
        seconds = self.longest_patience if patience is None else patience
        if seconds < _WORTH_WAITING:
            return "innodb_lock_wait_timeout = 0", 0.0
        # max_statement_time is exact, and its error undoes no more than the statement.
        waits = f"innodb_lock_wait_timeout = {math.ceil(seconds) + 1}"
        return f"{waits}, max_statement_time = {seconds:.3f}", seconds

    @statement(Guard, read=matched, lock_timeout=guard_limit)
    def guard(self) -> str:
        # This locks the guard's row alone. The caller's next statement checks the lease's token: no
        # grant can come in between.
        if self.clustered:
            # On a cluster another guard of the same lease blocks this one, possibly for long.
            return f"""{newest_and(f"innodb_lock_wait_timeout = {self.longest_patience:.0f}")}
                UPDATE {self.guard_table} SET {WRITTEN}
                WHERE lock_name = {EXACT} AND {self.here}"""
        return f"""{self.newest}
            SELECT 1 FROM {self.guard_table} WHERE lock_name = {EXACT} AND {self.here_now}
            LOCK IN SHARE MODE NOWAIT"""

    @statement(Apply, lock_timeout=None, parameters=_key)
    def apply(self) -> str:
        return f"""{self.newest}
            INSERT IGNORE INTO {self.applied_table} (idempotency_key, applied_at)
            SELECT {EXACT}, UTC_TIMESTAMP(6) FROM DUAL WHERE {self.here}"""

    kept_until = "UTC_TIMESTAMP(6) + INTERVAL %(keep)s SECOND"
    exact_key = "UNHEX(%(key)s)"
    exact_result = "UNHEX(%(result)s)"

    def exact(self, text: str) -> object:
        return text.encode().hex()

    @statement(
        ClaimOnce,
        read=read_record,
        lock_timeout=lambda dialect, command: dialect._limits(command.lock_timeout)[1],
    )
    def claim_once(self, command: ClaimOnce) -> str:
        limits, _ = self._limits(command.lock_timeout)
        # MariaDB sets the columns in order, so the expiry, which the condition reads, comes last.
        # Not INSERT IGNORE: that takes a shared lock on a record that exists, and if two
        # transactions have one, neither can replace the record.
        changes = ", ".join(
            f"{column} = IF(expires_at <= UTC_TIMESTAMP(6), VALUES({column}), {column})"
            for column in ("token", "fingerprint", "result", "made_at", "expires_at")
        )
        return f"""{newest_and(limits)}
            INSERT INTO {self.once_table}
            (idempotency_key, token, fingerprint, result, made_at, expires_at)
            SELECT {self.exact_key}, %(token)s, %(fingerprint)s, NULL,
                UTC_TIMESTAMP(6), {self.kept_until} FROM DUAL WHERE {self.here}
            ON DUPLICATE KEY UPDATE {changes}
            RETURNING token, fingerprint, result"""

    @statement(Unapply, lock_timeout=None, parameters=_key)
    def unapply(self) -> str:
        return f"DELETE FROM {self.applied_table} WHERE idempotency_key = {EXACT}"

    @statement(Gate, read=read_fence, lock_timeout=None)
    def gate(self, command: Gate) -> str:
        return f"""{self.newest}
            INSERT INTO {command.table} (name, fence) VALUES ({EXACT}, %(fence)s)
            ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))
            RETURNING fence"""
