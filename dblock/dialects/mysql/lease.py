"""The lease on MySQL: granted, queued for, renewed, released."""

from __future__ import annotations

import math

from ...protocol.commands import Grant, Join, ReleaseAndUnlock, Renew, WaitInServer
from ...protocol.faults import Fault, StatementError
from ...protocol.state import Granted, Queued
from ...protocol.tokens import is_shared
from ..mariadb.fragments import LATER, REMAINING
from ..mariadb.lease import ALL, granted, in_json, read_all, read_join, read_known
from ..mariadb.lease import LeaseStatements as MariaDBs
from ..mariadb.queue import REST
from ..mariadb.server_wait import NOTED
from ..packets import packet, transaction
from ..query import Result
from ..readers import shared
from ..statement import statement
from .base import MySQLTables


def done(result: Result) -> Result:
    """Return a reply without its first column: whether a row was in use. Then nothing was done."""
    if any(busy for busy, *_ in result.rows):
        raise StatementError(Fault.BUSY, "its row is in use")
    return result._replace(rows=[row[1:] for row in result.rows])


def _read_grant(_: object, command: Grant, result: Result) -> Granted | None:
    if command.known:
        return read_known(result, command.ttl)
    return granted(done(result), command.token)


def _read_join(dialect: object, command: Join, result: Result) -> Granted | Queued | None:
    return read_join(dialect, command, done(result))


def _read_renewed(dialect: object, command: Renew, result: Result) -> dict[str, int | None]:
    return read_all(dialect, command, done(result))


def _was_held(result: Result) -> bool:
    """Read whether the name was held when the wait for its user lock began; NULL if the session
    did not get the user lock."""
    (held,) = result.rows[0]
    if held is None:
        raise StatementError(Fault.BUSY, "the user lock")
    return bool(held)


class LeaseStatements(MySQLTables, MariaDBs):
    """A grant is one plain UPDATE, whose fence is in the reply to it, as on MariaDB."""

    lock_of_users = "SHA2(CONCAT_WS('/', %(user_lock)s, DATABASE()), 256)"

    @statement(Grant, reads=_read_grant, parameters=MariaDBs.with_user_lock)
    def grant(self, command: Grant) -> str:
        return super().grant(command)

    def _made_and(self, granted: str, free: str | None = None) -> str:
        passed_over = self._passed_over(self._available if free is None else free)
        return transaction(
            *self.rows_made,
            self.passing(granted),
            f"""SELECT {passed_over}, fence, {REMAINING}, token
                FROM {self.lock_table} WHERE lock_name = %(name)s""",
        )

    def _passed_over(self, free: str) -> str:
        """Whether a name was not granted though it is ``free``: a row of its was in use."""
        return f"NOT token <=> %(token)s AND {free}"

    @statement(Join, reads=_read_join, parameters=MariaDBs.with_user_lock)
    def join(self, command: Join) -> str:
        # It reads before it locks, so that a waiter that joins locks nothing but its place. A
        # comparison with NULL finds no row, so the statement that is not to be done locks none.
        turn, shares = self.is_available(self.ahead), is_shared(command.token)
        also = f", {NOTED}" if shares else ""
        aside = self.waited_for if command.yields else "FALSE"
        grant = self._grant(turn, REST, "IF(@dblock_free, %(name)s, NULL)", shares=shares)
        outside = (
            f"""UPDATE {self.lock_table} SET {NOTED}
                WHERE lock_name = IF(@dblock_aside AND NOT @dblock_noted, %(name)s, NULL)""",
        )
        return transaction(
            "SET @dblock_free = FALSE, @dblock_noted = FALSE, @dblock_aside = FALSE",
            f"""SELECT {turn}, readers IS NOT NULL, NOT {turn} AND {aside}
                INTO @dblock_free, @dblock_noted, @dblock_aside
                FROM {self.lock_table} WHERE lock_name = %(name)s""",
            self.passing(grant),
            *(outside if command.yields else ()),
            f"""UPDATE {self.lock_table}
                SET waiters = CONCAT_WS(',', waiters, %(ticket)s){also}
                WHERE lock_name = IF(@dblock_free OR @dblock_aside, NULL, %(name)s)
                    AND NOT {self.enqueued} AND NOT token <=> %(token)s""",
            f"""SELECT @dblock_free AND {self._passed_over(turn)},
                    fence, {REMAINING}, token, {self.columns},
                    CASE WHEN {self.enqueued} THEN {self.ahead} END, {turn}
                FROM {self.lock_table} WHERE lock_name = %(name)s""",
        )

    @statement(Renew, reads=_read_renewed, parameters=in_json)
    def renew(self) -> str:
        # A hold was renewed if it expires a TTL after `start` or later. The holder counts its term
        # from before that. If one row is in use nothing is renewed: the list of holds is NULL then.
        # FORCE INDEX, because the server would read a small table as a whole, and lock each row.
        # Usually all of many holds are renewed, and the reply is one row that says so: the driver
        # needs ten calls to read a row.
        table = f"""JSON_TABLE(@dblock_holds, '$[*]' COLUMNS (
                    hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
                    token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
                    ttl BIGINT PATH '$[2]'
                )) AS asked STRAIGHT_JOIN {self.lock_table} AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token"""
        # Readers never bring their expiry forward: another reader may have a longer TTL.
        later = LATER.replace("%(ttl)s", "asked.ttl")
        start = "CAST(@dblock_start AS DATETIME(6))"
        renewed = f"{table} WHERE expires_at >= {start} + INTERVAL asked.ttl MICROSECOND"
        every = "@dblock_moved > 1 AND @dblock_moved = JSON_LENGTH(@dblock_holds)"
        return transaction(
            "SET @dblock_holds = %(asked)s, @dblock_start = SYSDATE(6)",
            f"SELECT COUNT(*) FROM {table} FOR UPDATE OF l SKIP LOCKED INTO @dblock_locked",
            f"""SELECT IF(COUNT(*) = @dblock_locked, @dblock_holds, NULL) INTO @dblock_holds
                FROM {table}""",
            f"""UPDATE {table}
                SET expires_at = IF({shared("l.token")}, GREATEST(expires_at, {later}), {later})
                WHERE expires_at > SYSDATE(6)""",
            f"SELECT COUNT(*) INTO @dblock_moved FROM {renewed}",
            f"""SELECT TRUE, NULL, NULL FROM DUAL WHERE @dblock_holds IS NULL
                UNION ALL SELECT FALSE, '{ALL}', NULL FROM DUAL WHERE {every}
                UNION ALL SELECT FALSE, l.token, l.fence FROM {renewed} AND NOT ({every})""",
        )

    @statement(ReleaseAndUnlock, parameters=MariaDBs.with_user_lock)
    def release_and_unlock(self) -> str:
        # The release is committed first: the next session with the user lock has to see it.
        return packet(
            self.release,
            "SET @dblock_released = ROW_COUNT()",
            f"DO RELEASE_LOCK({self.lock_of_users})",
            "SELECT 1 FROM DUAL WHERE @dblock_released = 1",
        )

    @statement(
        WaitInServer,
        read=_was_held,
        lock_timeout=lambda _, command: command.patience,
        parameters=MariaDBs.with_user_lock,
    )
    def wait_in_server(self, command: WaitInServer) -> str:
        # It does not take the name as well: the server notices only after a second that a waiter's
        # client has died, and would grant the name to it. GET_LOCK has whole seconds, the hint is
        # exact.
        seconds = command.patience
        hint = f"/*+ MAX_EXECUTION_TIME({max(1, round(seconds * 1000))}) */" if seconds else ""
        wait = f"GET_LOCK({self.lock_of_users}, {math.ceil(seconds) + 1 if seconds else 0})"
        return packet(
            "SET @dblock_held = FALSE, @dblock_shared = FALSE",
            f"""SELECT NOT IS_FREE_LOCK({self.lock_of_users}), COALESCE((
                    SELECT readers IS NOT NULL FROM {self.lock_table} WHERE lock_name = %(name)s
                ), FALSE) INTO @dblock_held, @dblock_shared""",
            f"SELECT {hint} IF(NOT @dblock_shared AND {wait} <=> 1, @dblock_held, NULL)",
        )
