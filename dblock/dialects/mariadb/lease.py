"""The lease on MariaDB: granted, queued for, renewed, released."""

from __future__ import annotations

import json
from functools import cached_property

from ...protocol.commands import Attach, Grant, Join, Release, ReleaseAndUnlock, Renew
from ...protocol.state import Granted, Queued
from ...protocol.tokens import is_shared
from ..query import Result
from ..readers import shared
from ..replies import read_attached, read_joined, read_renewed
from ..statement import statement
from .fragments import LATER, REMAINING, microseconds
from .queue import LAST, REST, QueueStatements
from .server_wait import NOTED, ServerWaitStatements

# The reply that stands for the tokens of all holds that were to be renewed.
ALL = "all"


def read_known(result: Result, ttl: float) -> Granted | None:
    """Read the fence of a name that a simple statement granted for ``ttl`` seconds.

    They count from the grant, which is after the request was sent. If the table has a trigger the
    reply has no fence; then this is None, and the caller searches for its token.
    """
    return Granted(result.rows[0][0], ttl) if result.rows else None


def _read_grant(_: object, command: Grant, result: Result) -> Granted | None:
    return read_known(result, command.ttl) if command.known else granted(result, command.token)


def read_join(_: object, command: Join, result: Result) -> Granted | Queued | None:
    return granted(result, command.token) or read_joined(result)


def in_json(dialect: object, command: Renew) -> dict[str, object]:
    # Names are sent in hexadecimal: they are bytes, whatever the connection's character set.
    rows = [(name.encode().hex(), token, microseconds(ttl)) for name, token, ttl in command.asked]
    return {"asked": json.dumps(rows)}


def read_all(_: object, command: Renew, result: Result) -> dict[str, int | None]:
    """Read the tokens of the holds that were renewed."""
    renewed = read_renewed(result)
    return dict.fromkeys(one.token for one in command.asked) if ALL in renewed else renewed


def granted(result: Result, token: str) -> Granted | None:
    """Read which token holds the name now; return the hold if it is this ``token``'s."""
    for fence, remaining, holder, *_ in result.rows:
        if holder == token:
            return Granted(fence, float(remaining))
    return None


class LeaseStatements(QueueStatements, ServerWaitStatements):
    """UTC_TIMESTAMP is the statement's start, SYSDATE the moment when the server evaluates it."""

    @statement(Grant, reads=_read_grant, parameters=ServerWaitStatements.with_user_lock)
    def grant(self, command: Grant) -> str:
        # The server parses a simple statement in half the time of a compound one. An UPDATE returns
        # no row, so LAST_INSERT_ID has the fence.
        if is_shared(command.token):
            return self._grant_known_shared if command.known else self._grant_new_shared
        return self._grant_known if command.known else self._grant_new

    @cached_property
    def _grant_known(self) -> str:
        return self._grant(self._available, rest="NULL")

    @cached_property
    def _grant_known_shared(self) -> str:
        return self._grant(self._available, rest="NULL", shares=True)

    @cached_property
    def _grant_new(self) -> str:
        return self._made_and(self._grant_known)

    @cached_property
    def _grant_new_shared(self) -> str:
        return self._made_and(self._grant_known_shared)

    def _made_and(self, granted: str) -> str:
        return f"""BEGIN NOT ATOMIC
                DECLARE floor BIGINT DEFAULT 0;
                DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
                START TRANSACTION;
                {self.made}
                {granted};
                COMMIT;
                SELECT fence, {REMAINING}, token FROM {self.lock_table}
                    WHERE lock_name = %(name)s;
            END"""

    @property
    def _available(self) -> str:
        """The condition for a requester that has not joined: it comes after the waiters in the
        queue and at the user lock."""
        return self.is_available(f"({LAST} + {self.taken_elsewhere})")

    @statement(Join, reads=read_join, parameters=ServerWaitStatements.with_user_lock)
    def join(self, command: Join) -> str:
        # It reads before it locks, so that a waiter that joins does not lock a guard's row.
        turn, shares = self.is_available(self.ahead), is_shared(command.token)
        waits = self._wait_outside if command.yields else ""
        also = f", {NOTED}" if shares else ""
        return f"""BEGIN NOT ATOMIC
                DECLARE free, noted INT DEFAULT 0;
                SELECT {turn}, readers IS NOT NULL INTO free, noted FROM {self.lock_table}
                    WHERE lock_name = %(name)s;
                IF free THEN
                    {self._grant(turn, rest=REST, shares=shares)};
                {waits}ELSE
                    UPDATE {self.lock_table}
                        SET waiters = CONCAT_WS(',', waiters, %(ticket)s){also}
                        WHERE lock_name = %(name)s AND NOT {self.enqueued}
                            AND NOT token <=> %(token)s;
                END IF;
                SELECT fence, {REMAINING}, token, {self.columns},
                    CASE WHEN {self.enqueued} THEN {self.ahead} END, {turn}
                    FROM {self.lock_table} WHERE lock_name = %(name)s;
            END"""

    @property
    def _wait_outside(self) -> str:
        """Do not let a reader join while waiters wait in the server: they join first."""
        return f"""ELSEIF {self.waited_for} THEN
                    IF NOT noted THEN
                        UPDATE {self.lock_table} SET {NOTED} WHERE lock_name = %(name)s;
                    END IF;
                """

    def _grant(self, free: str, rest: str, name: str = "%(name)s", *, shares: bool = False) -> str:
        """Return the statement that takes the ``name`` if it is ``free``, and returns the fence.

        ``rest`` is the queue behind the new holder. If the new holder ``shares`` the name, the
        statement marks the row, so that no waiter begins to wait in the server.
        """
        # The condition is evaluated once, with both rows locked: a waiter at the user lock may go
        # at any moment. No new value depends on another. MariaDB has no UPDATE ... RETURNING; the
        # reply of the UPDATE contains the argument of LAST_INSERT_ID.
        changes = f"""fence = LAST_INSERT_ID(fence + 1),
                token = %(token)s, owner = %(owner)s, waiters = {rest},
                acquired_at = SYSDATE(6), expires_at = {LATER}{f", {NOTED}" if shares else ""}"""
        return self.take_row(name, changes, free)

    @statement(Renew, reads=read_all, parameters=in_json)
    def renew(self) -> str:
        # MariaDB has no UPDATE ... RETURNING. A hold was renewed if it expires a TTL after `start`
        # or later. The holder counts its term from before that.
        # One busy row fails the statement, with nothing renewed. FORCE INDEX, because the server
        # would read a small table as a whole, and any busy row would fail the statement.
        # Usually all of many holds are renewed, and the reply is one row that says so: the driver
        # needs ten calls to read a row.
        # A statement of its own counts them, because a SELECT in a condition would lock them.
        table = f"""JSON_TABLE(holds, '$[*]' COLUMNS (
                    hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
                    token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
                    ttl BIGINT PATH '$[2]'
                )) AS asked STRAIGHT_JOIN {self.lock_table} AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token"""
        # Readers never bring their expiry forward: another reader may have a longer TTL.
        later = LATER.replace("%(ttl)s", "asked.ttl")
        renewed = f"{table} WHERE expires_at >= start + INTERVAL asked.ttl MICROSECOND"
        return f"""BEGIN NOT ATOMIC
                DECLARE holds LONGTEXT CHARACTER SET ascii DEFAULT %(asked)s;
                DECLARE start DATETIME(6) DEFAULT SYSDATE(6);
                DECLARE moved INT;
                UPDATE {table}
                SET expires_at = IF({shared("l.token")}, GREATEST(expires_at, {later}), {later})
                WHERE expires_at > SYSDATE(6);
                SELECT COUNT(*) INTO moved FROM {renewed};
                IF moved = JSON_LENGTH(holds) AND moved > 1
                THEN SELECT '{ALL}', NULL;
                ELSE SELECT l.token, l.fence FROM {renewed};
                END IF;
            END"""

    @statement(Attach, read=read_attached)
    def attach(self) -> str:
        # Like a grant it locks the guard's row, so a guard blocks it.
        changes = f"""fence = LAST_INSERT_ID(fence),
                token = %(new_token)s, owner = %(owner)s, expires_at = {LATER}"""
        return self.take_row("%(name)s", changes, "token = %(token)s AND expires_at > SYSDATE(6)")

    @statement(Release)
    def release(self) -> str:
        return f"""UPDATE {self.lock_table} SET token = NULL, expires_at = SYSDATE(6)
            WHERE lock_name = %(name)s AND token = %(token)s"""

    @statement(ReleaseAndUnlock, parameters=ServerWaitStatements.with_user_lock)
    def release_and_unlock(self) -> str:
        return f"""BEGIN NOT ATOMIC
                DECLARE released INT DEFAULT 0;
                {self.release};
                SET released = ROW_COUNT();
                DO RELEASE_LOCK({self.lock_of_users});
                SELECT 1 FROM DUAL WHERE released = 1;
            END"""
