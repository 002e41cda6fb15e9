"""Readers that share a hold on MariaDB."""

from __future__ import annotations

from ...protocol.commands import JoinReaders, LeaveReaders
from ..readers import ReaderLists
from ..statement import statement
from .fragments import LATER
from .queue import WITHOUT_TICKET, QueueStatements

# Whole seconds to wait for the row: other readers lock it for a moment while they come and go.
_TURN = 1


class ReaderStatements(QueueStatements, ReaderLists):
    """MariaDB evaluates assignments in order, each with the earlier ones' new values. So the list
    is set last."""

    def concatenate(self, *texts: str) -> str:
        return f"CONCAT({', '.join(texts)})"

    @statement(JoinReaders, lock_timeout=_TURN)
    def join_readers(self) -> str:
        return f"""{self.patiently(_TURN)} UPDATE {self.lock_table} SET
                expires_at = GREATEST(expires_at, {LATER}), waiters = {WITHOUT_TICKET},
                readers = {self.with_me}
            WHERE lock_name = %(name)s AND token = %(group)s AND expires_at > SYSDATE(6)
                AND (%(past)s OR {self.ahead} = 0) AND NOT {self.among}"""

    @statement(LeaveReaders, lock_timeout=_TURN)
    def leave_readers(self) -> str:
        # `last` reads the list and the token. So the token is set before the list: the condition of
        # the token's own assignment needs the old list.
        return f"""{self.patiently(_TURN)} UPDATE {self.lock_table} SET
                expires_at = IF({self.last}, SYSDATE(6), expires_at),
                token = IF({self.last}, NULL, token),
                readers = {self.without_me}
            WHERE lock_name = %(name)s AND token = %(group)s AND {self.among}"""
