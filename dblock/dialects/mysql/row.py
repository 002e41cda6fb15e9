"""The row lock and the guard on MySQL, and dblock's other writes in a user's transaction."""

from __future__ import annotations

import math
from datetime import datetime

from ...lock_state import RowLockState
from ...protocol.commands import ClaimOnce, Create, Gate, Guard, ListRowLocks, SelectForUpdate
from ...protocol.faults import Fault, StatementError
from ..mariadb.fragments import EXACT, FREE, WRITTEN
from ..mariadb.row import RowStatements as MariaDBs
from ..mariadb.row import guard_limit, matched, row_limit
from ..packets import packet, transaction
from ..query import FINALLY, Result
from ..replies import read_fence, read_record, read_row_lock
from ..statement import statement
from ..values import text, utc
from .base import MySQLTables

# A user's session may have this optimization, with which a statement locks the table's rows before
# it finds that it is in the wrong place. dblock's own sessions are without it.
_AS_WRITTEN = "SET_VAR(optimizer_switch = 'subquery_to_derived=off')"


def _guard_table(dialect: RowStatements, _: ListRowLocks) -> dict[str, object]:
    return {"schema": dialect.schema, "table": f"{dialect.prefix}guard"}


def _row_locks(result: Result) -> dict[str, RowLockState]:
    if any(not shown for shown, *_ in result.rows):
        raise StatementError(Fault.PRIVILEGE, "the performance schema is off")
    locks = (row for _, *row in result.rows if row[0] is not None)
    return {bytes.fromhex(text(key)).decode(): _transaction(*told) for key, *told in locks}


def _transaction(
    number: int | None,
    user: str | bytes | None,
    host: str | bytes | None,
    program: str | bytes | None,
    since: datetime | None,
    statement: str | bytes | None,
) -> RowLockState:
    if number is None:  # it has no session: it was prepared for a two-phase commit
        return RowLockState("a transaction")
    account = "@".join(text(part) for part in (user, host) if part)
    whose = " ".join(part for part in (account, text(program or "")) if part)
    holder = f"a transaction of {whose}, connection {number}"
    return RowLockState(holder, number, utc(since), text(statement) if statement else None)


class RowStatements(MySQLTables, MariaDBs):
    """A user's session has the user's settings, and MySQL has none for one statement alone but a
    hint that limits a SELECT. Its error undoes no more than the statement."""

    @statement(Create)
    def create(self) -> str:
        return transaction(*self.rows_made)

    @statement(SelectForUpdate, read=read_row_lock, lock_timeout=row_limit)
    def lock_row(self, command: SelectForUpdate) -> str:
        seconds = row_limit(self, command)
        hints = [_AS_WRITTEN] if command.borrowed else []
        if seconds:
            hints.append(f"MAX_EXECUTION_TIME({round(seconds * 1000)})")
        hint = f"/*+ {' '.join(hints)} */ " if hints else ""
        wait = "" if seconds else " NOWAIT"
        key, here = EXACT, f" AND {self.here_now}" if command.borrowed else ""
        if not command.borrowed:
            # A check in the statement itself: a subquery locks nothing, and in dblock's own
            # sessions, under READ COMMITTED, it sees the newest rows. So the statement does not
            # lock the row of a held lease.
            key = f"(SELECT lock_name FROM {self.lock_table} WHERE lock_name = {key} AND {FREE})"
        locked = f"""SELECT {hint}STRAIGHT_JOIN l.fence
            FROM {self.guard_table} AS g
            JOIN {self.lock_table} AS l ON l.lock_name = g.lock_name
            WHERE g.lock_name = {key}
                AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6)){here}
            FOR UPDATE{wait}"""
        if not self.clustered:
            return locked
        still = f"SELECT 1 FROM {self.lock_table} WHERE lock_name = {EXACT} AND {FREE} FOR UPDATE"
        return packet(
            locked,
            f"""UPDATE /*+ {_AS_WRITTEN} */ {self.guard_table} SET {WRITTEN}
            WHERE lock_name = {EXACT} AND ({still}){here}""",
        )

    @statement(Guard, read=matched, lock_timeout=guard_limit)
    def guard(self) -> str:
        # This locks the guard's row alone. The caller's next statement checks the lease's token: no
        # grant can come in between.
        found = f"FROM {self.guard_table} WHERE lock_name = {EXACT} AND {self.here_now}"
        if not self.clustered:
            return f"SELECT /*+ {_AS_WRITTEN} */ 1 {found} FOR SHARE NOWAIT"
        # Another guard of the same lease blocks this one. The UPDATE alone would wait for as long
        # as the session lets it.
        return packet(
            f"SELECT /*+ {_AS_WRITTEN} */ 1 {found} FOR UPDATE NOWAIT",
            f"""UPDATE /*+ {_AS_WRITTEN} */ {self.guard_table} SET {WRITTEN}
                WHERE lock_name = {EXACT} AND {self.here}""",
        )

    @statement(ListRowLocks, read=_row_locks, parameters=_guard_table)
    def row_locks(self, command: ListRowLocks) -> str:
        # A row lock has the guard's row too, and a guard has only that. The server shows the key in
        # hexadecimal after 0x, as a whole. The key of a gap lock is the next row's, and
        # the empty name is none. The text is without its values, which may be secret. A transaction
        # that has begun and not ended has TIMER_WAIT up to now. The rows are in order: the oldest
        # of several guards comes last, and is shown. The tables' names are compared twice: in these
        # columns upper and lower case do not matter.
        same = "CAST(l.object_schema AS BINARY) = COALESCE(%(schema)s, DATABASE())"
        only = "" if command.name is None else "AND l.lock_data = CONCAT('0x', HEX(%(name)s))"
        return f"""SELECT @@performance_schema, SUBSTR(l.lock_data, 3), t.processlist_id,
                t.processlist_user, t.processlist_host, program.attr_value,
                UTC_TIMESTAMP(6) - INTERVAL x.timer_wait DIV 1000000 MICROSECOND, s.digest_text
            FROM (SELECT 1) AS always
            LEFT JOIN performance_schema.data_locks AS l
                ON l.object_schema = COALESCE(%(schema)s, DATABASE()) AND l.object_name = %(table)s
                AND (@@lower_case_table_names > 0
                    OR {same} AND CAST(l.object_name AS BINARY) = %(table)s)
                AND l.lock_type = 'RECORD' AND l.lock_status = 'GRANTED'
                AND l.lock_mode NOT LIKE '%%,GAP%%' AND l.lock_data LIKE '0x_%%' {only}
            LEFT JOIN performance_schema.threads AS t ON t.thread_id = l.thread_id
            LEFT JOIN performance_schema.session_connect_attrs AS program
                ON program.processlist_id = t.processlist_id
                AND program.attr_name = 'program_name'
            LEFT JOIN performance_schema.events_transactions_current AS x
                ON x.thread_id = l.thread_id AND x.state = 'ACTIVE'
            LEFT JOIN performance_schema.events_statements_current AS s
                ON s.thread_id = l.thread_id AND s.nesting_event_level = 0
            ORDER BY x.timer_wait"""

    @statement(
        ClaimOnce,
        read=read_record,
        lock_timeout=lambda dialect, command: dialect.claim_limit(command),
    )
    def claim_once(self, command: ClaimOnce) -> str:
        # The columns are set in order, so the expiry, which the condition reads, comes last. Not
        # INSERT IGNORE: that takes a shared lock on a record that exists, and if two transactions
        # have one, neither can replace the record.
        once, columns = self.once_table, ("token", "fingerprint", "result", "made_at", "expires_at")
        changes = ", ".join(
            f"{column} = IF({once}.expires_at <= UTC_TIMESTAMP(6), new.{column}, {once}.{column})"
            for column in columns
        )
        listed = f"idempotency_key, {', '.join(columns)}"
        return packet(
            f"""SET @dblock_wait = @@innodb_lock_wait_timeout,
                innodb_lock_wait_timeout = {max(1, math.ceil(self.claim_limit(command)))}""",
            f"""INSERT INTO {once} ({listed})
            SELECT * FROM (
                SELECT {self.exact_key}, %(token)s, %(fingerprint)s, NULL,
                    UTC_TIMESTAMP(6), {self.kept_until} FROM DUAL WHERE {self.here}
            ) AS new ({listed})
            ON DUPLICATE KEY UPDATE {changes}""",
            f"""SELECT /*+ {_AS_WRITTEN} */ token, fingerprint, result FROM {once}
            WHERE idempotency_key = {self.exact_key} AND {self.here} FOR UPDATE""",
            f"{FINALLY}SET innodb_lock_wait_timeout = @dblock_wait",
        )

    def claim_limit(self, command: ClaimOnce) -> float:
        """Return how long a claim may wait, in seconds, of which the server has whole ones."""
        return self.longest_patience if command.lock_timeout is None else command.lock_timeout

    @statement(Gate, read=read_fence, lock_timeout=None)
    def gate(self, command: Gate) -> str:
        return packet(
            f"""INSERT INTO {command.table} (name, fence) VALUES ({EXACT}, %(fence)s)
            AS asked (asked_name, asked_fence)
            ON DUPLICATE KEY UPDATE fence = GREATEST(fence, asked_fence)""",
            f"SELECT fence FROM {command.table} WHERE name = {EXACT} FOR UPDATE",
        )
