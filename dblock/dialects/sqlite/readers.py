"""Readers that share a hold on SQLite."""

from __future__ import annotations

from ...protocol import commands
from ...protocol.steps import Query
from ..readers import ReaderLists
from .fragments import LATER, NOW, modifier
from .queue import WITHOUT_TICKET, QueueStatements


class ReaderStatements(QueueStatements, ReaderLists):
    def join_readers(
        self, name: str, group: str, token: str, ttl: float, *, ticket: str, past: bool
    ) -> Query[int]:
        return Query(
            f"""UPDATE {self.lock_table} SET readers = {self.with_me},
                expires_at = max(expires_at, {LATER}), waiters = {WITHOUT_TICKET}
            WHERE lock_name = :name AND token = :group AND expires_at > {NOW}
                AND (:past OR {self.ahead} = 0) AND NOT {self.among}""",
            {
                "name": name,
                "group": group,
                "token": token,
                "ttl": modifier(ttl),
                "ticket": ticket,
                "past": past,
            },
            commands.JoinReaders(name, group, token, ttl, ticket, past),
            self.patience,
        )

    def leave_readers(self, name: str, group: str, token: str) -> Query[int]:
        return Query(
            f"""UPDATE {self.lock_table} SET readers = {self.without_me},
                token = iif({self.last}, NULL, token),
                expires_at = iif({self.last}, {NOW}, expires_at)
            WHERE lock_name = :name AND token = :group AND {self.among}""",
            {"name": name, "group": group, "token": token},
            commands.LeaveReaders(name, group, token),
            self.patience,
        )
