"""Readers that share a hold on MariaDB."""

from __future__ import annotations

from ...protocol import commands
from ...protocol.steps import Query
from ..readers import ReaderLists
from .fragments import LATER, microseconds
from .queue import WITHOUT_TICKET, QueueStatements

# Whole seconds to wait for the row: other readers lock it for a moment while they come and go.
_TURN = 1
_PATIENT = f"SET STATEMENT innodb_lock_wait_timeout = {_TURN} FOR"


class ReaderStatements(QueueStatements, ReaderLists):
    """MariaDB evaluates assignments in order, each with the earlier ones' new values. So the list
    is set last."""

    def concatenate(self, *texts: str) -> str:
        return f"CONCAT({', '.join(texts)})"

    def join_readers(
        self, name: str, group: str, token: str, ttl: float, *, ticket: str, past: bool
    ) -> Query[int]:
        return Query(
            f"""{_PATIENT} UPDATE {self.lock_table} SET
                expires_at = GREATEST(expires_at, {LATER}), waiters = {WITHOUT_TICKET},
                readers = {self.with_me}
            WHERE lock_name = %(name)s AND token = %(group)s AND expires_at > SYSDATE(6)
                AND (%(past)s OR {self.ahead} = 0) AND NOT {self.among}""",
            {
                "name": self.key(name),
                "group": group,
                "token": token,
                "ttl": microseconds(ttl),
                "ticket": ticket,
                "past": past,
            },
            commands.JoinReaders(name, group, token, ttl, ticket, past),
            _TURN,
        )

    def leave_readers(self, name: str, group: str, token: str) -> Query[int]:
        # `last` reads the list and the token. So the token is set before the list: the condition of
        # the token's own assignment needs the old list.
        return Query(
            f"""{_PATIENT} UPDATE {self.lock_table} SET
                expires_at = IF({self.last}, SYSDATE(6), expires_at),
                token = IF({self.last}, NULL, token),
                readers = {self.without_me}
            WHERE lock_name = %(name)s AND token = %(group)s AND {self.among}""",
            {"name": self.key(name), "group": group, "token": token},
            commands.LeaveReaders(name, group, token),
            _TURN,
        )
