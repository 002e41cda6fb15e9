"""Readers that share a hold on MariaDB."""

from __future__ import annotations

from ...protocol import commands
from ...protocol.steps import Query
from ..readers import ReaderLists
from .fragments import LATER, microseconds
from .queue import WITHOUT_TICKET, QueueStatements

# Whole seconds for a row that others have for a moment: readers come and go side by side.
_TURN = 1
_PATIENT = f"SET STATEMENT innodb_lock_wait_timeout = {_TURN} FOR"


class ReaderStatements(QueueStatements, ReaderLists):
    """An assignment sees what those before it have set, so the list is set last."""

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
        # The list says whether this is the last, by the token: so the token goes before the list.
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
