"""Readers that share a hold on PostgreSQL."""

from __future__ import annotations

from ...protocol.commands import CallReaders, JoinReaders, LeaveReaders
from ..readers import ReaderLists
from ..statement import statement
from .fragments import DURABLE, LAZY, PATIENT, TURN
from .queue import CALL_READERS, WITHOUT_ME, QueueStatements, call


class ReaderStatements(QueueStatements, ReaderLists):
    """Joining is a grant: no reader joins during a pause, and it is on disk before the reader
    learns of it. It takes the name from no holder, so a guard does not block it, nor a renewal."""

    @statement(JoinReaders, lock_timeout=TURN)
    def join_readers(self) -> str:
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

    @statement(LeaveReaders, lock_timeout=TURN)
    def leave_readers(self) -> str:
        # LAZY: a crash may lose it, as with a release. If a reader joins meanwhile, the server
        # evaluates the statement again, with the new list.
        return f"""UPDATE {self.lock_table} SET readers = {self.without_me},
                token = CASE WHEN {self.last} THEN NULL ELSE token END,
                expires_at = CASE WHEN {self.last} THEN clock_timestamp() ELSE expires_at END
            WHERE lock_name = %(name)s AND token = %(group)s AND {self.among} AND {PATIENT}
            RETURNING CASE WHEN token IS NULL THEN {call()} END, {LAZY}"""

    @statement(CallReaders)
    def call_readers(self) -> str:
        return f"""SELECT {CALL_READERS} FROM {self.lock_table}
            WHERE lock_name = %(name)s AND token = %(group)s"""
