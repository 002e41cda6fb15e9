"""Readers that share a hold on PostgreSQL."""

from __future__ import annotations

from functools import cached_property

from ...protocol import commands
from ...protocol.steps import Query
from ..readers import ReaderLists
from .fragments import DURABLE, LAZY, PATIENT, TURN
from .queue import CALL_READERS, WITHOUT_ME, QueueStatements, call


class ReaderStatements(QueueStatements, ReaderLists):
    """To join is to be granted the name: where nothing is granted nobody joins, and it is on disk
    before it is told. It takes nothing from anybody, so it passes a guard, as a renewal does."""

    def join_readers(
        self, name: str, group: str, token: str, ttl: float, *, ticket: str, past: bool
    ) -> Query[int]:
        return Query(
            self._join_readers,
            {"name": name, "group": group, "token": token, "ttl": ttl, "past": past},
            commands.JoinReaders(name, group, token, ttl, ticket, past),
            TURN,
        )

    @cached_property
    def _join_readers(self) -> str:
        # The row is locked first, and its expiry judged then.
        later = "clock_timestamp() + pg_catalog.make_interval(secs => %(ttl)s)"
        return f"""WITH mine AS MATERIALIZED (
                SELECT k.lock_name, k.expires_at AS expiry
                FROM {self.open}, {self.lock_table} AS k
                WHERE lock_name = %(name)s AND token = %(group)s AND fence > open.epoch
                    AND {PATIENT} AND (%(past)s OR {self.ahead} = 0) AND NOT {self.among}
                FOR NO KEY UPDATE OF k
            )
            UPDATE {self.lock_table} AS l SET readers = {self.with_me}, waiters = {WITHOUT_ME},
                expires_at = greatest(expires_at, {later})
            FROM mine WHERE l.lock_name = mine.lock_name AND l.token = %(group)s
                AND mine.expiry > clock_timestamp()
            RETURNING {DURABLE}"""

    def leave_readers(self, name: str, group: str, token: str) -> Query[int]:
        return Query(
            self._leave_readers,
            {"name": name, "group": group, "token": token},
            commands.LeaveReaders(name, group, token),
            TURN,
            durable=False,
        )

    @cached_property
    def _leave_readers(self) -> str:
        # May be lost in a crash, as a release may. Where somebody joins meanwhile it is judged
        # anew, by the row that has the new list.
        return f"""UPDATE {self.lock_table} SET readers = {self.without_me},
                token = CASE WHEN {self.last} THEN NULL ELSE token END,
                expires_at = CASE WHEN {self.last} THEN clock_timestamp() ELSE expires_at END
            WHERE lock_name = %(name)s AND token = %(group)s AND {self.among} AND {PATIENT}
            RETURNING CASE WHEN token IS NULL THEN {call()} END, {LAZY}"""

    def call_readers(self, name: str, group: str) -> Query[int]:
        return Query(
            f"""SELECT {CALL_READERS} FROM {self.lock_table}
            WHERE lock_name = %(name)s AND token = %(group)s""",
            {"name": name, "group": group},
            commands.CallReaders(name, group),
        )
