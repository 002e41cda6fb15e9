"""The lease on MariaDB: taken, renewed, released."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

from ...protocol import commands
from ...protocol.state import Granted, Queued, Renewal
from ...protocol.steps import Query, Reply
from ...protocol.tokens import is_shared
from ..dialect import read_attached, read_joined, read_renewed
from ..readers import shared
from .fragments import LATER, REMAINING, microseconds
from .queue import LAST, REST, QueueStatements
from .server_wait import NOTED, USER_LOCK, ServerWaitStatements

# Stands for the tokens of all that a renewal was about.
ALL = "all"


class LeaseStatements(QueueStatements, ServerWaitStatements):
    """UTC_TIMESTAMP is the statement's start, SYSDATE the moment at which it is read."""

    def grant_known(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        # One statement is parsed in half the time of a compound one, so its result is no row.
        return Query(
            self._grant_known_shared if is_shared(token) else self._grant_known,
            self._asked(name, token, owner, ttl),
            commands.Grant(name, token, owner, ttl, known=True),
            self.patience,
            read=lambda reply: read_known(reply, ttl),
        )

    @cached_property
    def _grant_known(self) -> str:
        return self._grant(self._available, rest="NULL")

    @cached_property
    def _grant_known_shared(self) -> str:
        return self._grant(self._available, rest="NULL", shares=True)

    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        return Query(
            f"""BEGIN NOT ATOMIC
                DECLARE floor BIGINT DEFAULT 0;
                DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
                START TRANSACTION;
                {self.made}
                {self._grant(self._available, rest="NULL", shares=is_shared(token))};
                COMMIT;
                SELECT fence, {REMAINING}, token FROM {self.lock_table}
                    WHERE lock_name = %(name)s;
            END""",
            self._asked(name, token, owner, ttl),
            commands.Grant(name, token, owner, ttl),
            self.patience,
            read=lambda reply: _granted(reply, token),
        )

    @property
    def _available(self) -> str:
        """The condition for who only comes now, after those in the queue and at the user lock."""
        return self.is_available(f"({LAST} + {self.taken_elsewhere})")

    def _asked(self, name: str, token: str, owner: str, ttl: float) -> dict[str, Any]:
        return {
            "name": self.key(name),
            "token": token,
            "owner": owner,
            "ttl": microseconds(ttl),
            "user_lock": self.user_lock(name),
        }

    def join(
        self, name: str, token: str, owner: str, ttl: float, ticket: str, *, yields: bool = False
    ) -> Query[Granted | Queued | None]:
        # It looks before it locks, so that who joins disturbs no guard.
        turn, shares = self.is_available(self.ahead), is_shared(token)
        waits, also = self._wait_outside if yields else "", f", {NOTED}" if shares else ""
        return Query(
            f"""BEGIN NOT ATOMIC
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
            END""",
            self._asked(name, token, owner, ttl) | {"ticket": ticket},
            commands.Join(name, token, owner, ttl, ticket, yields),
            self.patience,
            read=lambda reply: _granted(reply, token) or read_joined(reply),
        )

    @property
    def _wait_outside(self) -> str:
        """Let a reader not join while waiters are in the server: they join first."""
        return f"""ELSEIF {self.waited_for} THEN
                    IF NOT noted THEN
                        UPDATE {self.lock_table} SET {NOTED} WHERE lock_name = %(name)s;
                    END IF;
                """

    def _grant(self, free: str, rest: str, name: str = "%(name)s", *, shares: bool = False) -> str:
        """Return the statement that takes the ``name`` if it is ``free``, and tells the fence.

        ``rest`` is the queue without who takes it and those before. One that ``shares`` it notes
        that for those who want to wait in the server.
        """
        # The condition alone decides, with both rows locked, and once: who is at the user lock may
        # go at any moment. No new value depends on another. There is no UPDATE ... RETURNING;
        # LAST_INSERT_ID(x) tells x.
        changes = f"""fence = LAST_INSERT_ID(fence + 1),
                token = %(token)s, owner = %(owner)s, waiters = {rest},
                acquired_at = SYSDATE(6), expires_at = {LATER}{f", {NOTED}" if shares else ""}"""
        return self.take_row(name, changes, free)

    def renew(self, asked: Sequence[Renewal]) -> Query[dict[str, int | None]]:
        # There is no UPDATE ... RETURNING. What was renewed expires later than anything that was
        # to expire a TTL after the start: so it is told, and the holder's term began before that.
        # One busy row fails the statement, with nothing renewed; a small table, read as a whole
        # rather than by its key, would fail it for any busy row.
        # Of many mostly all are, and then that is the answer: it takes the driver ten calls to
        # read a row.
        # They are counted apart, because a SELECT in a condition would lock them.
        # Names go in hexadecimal: they are bytes, whatever the connection's character set.
        rows = [(name.encode().hex(), token, microseconds(ttl)) for name, token, ttl in asked]
        table = f"""JSON_TABLE(holds, '$[*]' COLUMNS (
                    hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
                    token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
                    ttl BIGINT PATH '$[2]'
                )) AS asked STRAIGHT_JOIN {self.lock_table} AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token"""
        # The expiry of readers is never brought forward: another may have a longer TTL.
        later = LATER.replace("%(ttl)s", "asked.ttl")
        renewed = f"{table} WHERE expires_at >= start + INTERVAL asked.ttl MICROSECOND"
        return Query(
            f"""BEGIN NOT ATOMIC
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
            END""",
            {"asked": json.dumps(rows)},
            commands.Renew(tuple(asked)),
            self.patience,
            read=partial(_read_all, tuple(asked)),
        )

    def attach(
        self, name: str, token: str, new_token: str, owner: str, ttl: float
    ) -> Query[int | None]:
        # As a grant is kept away by a guard, so is this.
        changes = f"""fence = LAST_INSERT_ID(fence),
                token = %(new_token)s, owner = %(owner)s, expires_at = {LATER}"""
        return Query(
            self.take_row("%(name)s", changes, "token = %(token)s AND expires_at > SYSDATE(6)"),
            {
                "name": self.key(name),
                "token": token,
                "new_token": new_token,
                "owner": owner,
                "ttl": microseconds(ttl),
            },
            commands.Attach(name, token, new_token, owner, ttl),
            self.patience,
            read=read_attached,
        )

    def release(self, name: str, token: str) -> Query[int]:
        return Query(
            f"""UPDATE {self.lock_table} SET token = NULL, expires_at = SYSDATE(6)
            WHERE lock_name = %(name)s AND token = %(token)s""",
            {"name": self.key(name), "token": token},
            commands.Release(name, token),
            self.patience,
        )

    def release_and_unlock(self, name: str, token: str) -> Query[int]:
        release = self.release(name, token)
        assert isinstance(release.params, dict)
        return Query(
            f"""BEGIN NOT ATOMIC
                DECLARE released INT DEFAULT 0;
                {release.sql};
                SET released = ROW_COUNT();
                DO RELEASE_LOCK({USER_LOCK});
                SELECT 1 FROM DUAL WHERE released = 1;
            END""",
            {"user_lock": self.user_lock(name), **release.params},
            commands.ReleaseAndUnlock(name, token),
            self.patience,
        )


def read_known(reply: Reply, ttl: float) -> Granted | None:
    """Read the fence of a name that was granted by one statement for ``ttl`` seconds.

    It lasts for all of them from when it was granted, which is after it was asked for. Where a
    trigger is on the table no fence is told, so it is looked for.
    """
    return Granted(reply.rows[0][0], ttl) if reply.rows else None


def _read_all(asked: Sequence[Renewal], reply: Reply) -> dict[str, int | None]:
    """Read the tokens of the holds that were renewed."""
    renewed = read_renewed(reply)
    return dict.fromkeys(one.token for one in asked) if ALL in renewed else renewed


def _granted(reply: Reply, token: str) -> Granted | None:
    """Read whose the name is now, and return the hold if it is the token's."""
    for fence, remaining, holder, *_ in reply.rows:
        if holder == token:
            return Granted(fence, float(remaining))
    return None
