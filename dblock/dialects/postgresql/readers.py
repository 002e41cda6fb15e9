"""Readers that share a hold on PostgreSQL."""

from __future__ import annotations

from functools import cached_property

from ...protocol import commands
from ...protocol.steps import Query
from ..readers import ReaderLists
from .fragments import DURABLE, LAZY, PATIENT, TURN
from .queue import CALL_READERS, WITHOUT_ME, QueueStatements, call


class ReaderStatements(QueueStatements, ReaderLists):
    """Joining is a grant: no reader joins during a pause, and it is on disk before the reader
    learns of it. It takes the name from no holder, so a guard does not block it, nor a renewal."""

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
        # `mine` locks the row first; the UPDATE compares the expiry after that.
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
        # LAZY: a crash may lose it, as with a release. If a reader joins meanwhile, the server
        # evaluates the statement again, with the new list.
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
