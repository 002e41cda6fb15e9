"""Every hold on SQLite: a name, a semaphore's slot, a reader's share; and the queue for a name.

One upsert grants the name or queues for it.
"""

from __future__ import annotations

import json
from functools import cached_property

from ...protocol.commands import (
    Attach,
    Grant,
    GrantSlot,
    Join,
    JoinReaders,
    Leave,
    LeaveReaders,
    Release,
    Renew,
    Vote,
)
from ..dialect import Dialect
from ..members import MemberStatements as Members
from ..members import vote_parameters
from ..readers import ReaderLists, shared
from ..replies import read_attached, read_grant, read_join, read_renewed
from ..slots import SlotStatements as Slots
from ..slots import read_slot, slot_parameters
from ..statement import statement
from ..tickets import TICKET
from .fragments import LATER, NOW, REMAINING, modifier

# All tickets have the same length, with commas between them. LAST is the number of tickets in the
# queue, REST the tickets behind this one.
LAST = f"ifnull((length(waiters) + 1) / {TICKET + 1}, 0)"
REST = f"""iif(instr(waiters, :ticket),
    nullif(substr(waiters, instr(waiters, :ticket) + {TICKET + 1}), ''), NULL)"""

# The queue without the ticket.
WITHOUT_TICKET = """nullif(
                trim(replace(',' || waiters || ',', ',' || :ticket || ',', ','), ','), '')"""


class QueueStatements(Dialect):
    """The queue in a name's row. SQLite cannot notify a waiter.

    A waiter that joins may take the name at once, so `LeaseStatements` has that statement.
    """

    @statement(Leave)
    def leave(self) -> str:
        return f"""UPDATE {self.lock_table} SET waiters = {WITHOUT_TICKET}
            WHERE lock_name = :name AND {self.enqueued}"""

    @property
    def ahead(self) -> str:
        place = f"(instr(waiters, :ticket) - 1) / {TICKET + 1}"
        return f"iif({self.enqueued}, {place}, {LAST})"

    @property
    def enqueued(self) -> str:
        return "(ifnull(instr(waiters, :ticket), 0) > 0)"

    def is_available(self, ahead: str) -> str:
        ago = f"printf('-%.3f seconds', {ahead} * {self.grace})"
        return (
            f"(expires_at IS NULL OR token IS NULL AND expires_at > {NOW} "
            f"OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', {ago}))"
        )


def _in_json(dialect: object, command: Renew) -> dict[str, object]:
    rows = [(name, token, modifier(ttl)) for name, token, ttl in command.asked]
    return {"asked": json.dumps(rows)}


class LeaseStatements(QueueStatements):
    """The lease."""

    @statement(Grant, read=read_grant)
    def grant(self) -> str:
        return f"""INSERT INTO {self.lock_table}
                (lock_name, fence, token, owner, acquired_at, expires_at)
            VALUES (:name, {self.floor} + 1, :token, :owner, {NOW}, {LATER})
            ON CONFLICT (lock_name) DO UPDATE SET fence = fence + 1, token = excluded.token,
                owner = excluded.owner, acquired_at = excluded.acquired_at,
                expires_at = excluded.expires_at, waiters = NULL
            WHERE {self.is_available(LAST)}
            RETURNING fence, {REMAINING}"""

    @statement(Join, read=read_join)
    def join(self) -> str:
        free = self.is_available(self.ahead)
        return f"""INSERT INTO {self.lock_table}
                (lock_name, fence, token, owner, acquired_at, expires_at)
            VALUES (:name, {self.floor} + 1, :token, :owner, {NOW}, {LATER})
            ON CONFLICT (lock_name) DO UPDATE SET
                fence = fence + {free},
                token = iif({free}, excluded.token, token),
                owner = iif({free}, excluded.owner, owner),
                acquired_at = iif({free}, excluded.acquired_at, acquired_at),
                expires_at = iif({free}, excluded.expires_at, expires_at),
                waiters = iif({free}, {REST}, ifnull(waiters || ',', '') || :ticket)
            WHERE {free} OR NOT {self.enqueued}
            RETURNING iif(token = :token, fence, NULL), {REMAINING}, NULL, {self.columns},
                iif({self.enqueued}, {self.ahead}, NULL), {free}"""

    @statement(Renew, read=read_renewed, parameters=_in_json)
    def renew(self) -> str:
        # Readers never bring their expiry forward: another reader may have a longer TTL.
        later = LATER.replace(":ttl", "json_extract(asked.value, '$[2]')")
        return f"""UPDATE {self.lock_table} AS l
            SET expires_at = iif({shared("l.token")}, max(expires_at, {later}), {later})
            FROM json_each(:asked) AS asked
            WHERE l.lock_name = json_extract(asked.value, '$[0]')
                AND l.token = json_extract(asked.value, '$[1]')
                AND l.expires_at > {NOW}
            RETURNING token, fence"""

    @statement(Attach, read=read_attached)
    def attach(self) -> str:
        return f"""UPDATE {self.lock_table}
            SET token = :new_token, owner = :owner, expires_at = {LATER}
            WHERE lock_name = :name AND token = :token AND expires_at > {NOW}
            RETURNING fence"""

    @statement(Release)
    def release(self) -> str:
        return f"""UPDATE {self.lock_table} SET token = NULL, expires_at = {NOW}
            WHERE lock_name = :name AND token = :token"""


class SlotStatements(QueueStatements, Slots):
    """The slots of a semaphore. There is one writer at a time, so one statement decides alone.

    A grant drops the slot's queue, whose tickets have expired, as a grant of a name does.
    """

    @property
    def anybodys(self) -> str:
        return self.is_available(LAST)

    @statement(GrantSlot, reads=read_slot, parameters=slot_parameters)
    def grant_slot(self, command: GrantSlot) -> str:
        return self._grant_known_slot if command.known else self._grant_slot

    @cached_property
    def _grant_known_slot(self) -> str:
        return self._taken(f"lock_name = :slot AND {self.anybodys}")

    @cached_property
    def _grant_slot(self) -> str:
        # SQLite keeps the order of a CROSS JOIN: it tries the numbers in order, from ``first`` on.
        taken = self._taken(f"""lock_name = (
                SELECT slot.lock_name FROM numbers CROSS JOIN {self.lock_table} AS slot
                WHERE slot.lock_name = :name || '#' || (1 + (:first + n) % :limit)
                    AND {self.anybodys}
                LIMIT 1
            )""")
        return f"""WITH RECURSIVE numbers (n) AS (
                SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :limit
            )
            {taken}"""

    def _taken(self, which: str) -> str:
        """Return the statement that takes a free slot; ``which`` is the condition that finds it."""
        return f"""UPDATE {self.lock_table} SET fence = fence + 1, token = :token, owner = :owner,
                acquired_at = {NOW}, expires_at = {LATER}, waiters = NULL
            WHERE {which} AND {self.admits}
            RETURNING fence, {REMAINING}, lock_name"""


class ReaderStatements(QueueStatements, ReaderLists):
    """Readers that share a hold."""

    @statement(JoinReaders)
    def join_readers(self) -> str:
        return f"""UPDATE {self.lock_table} SET readers = {self.with_me},
                expires_at = max(expires_at, {LATER}), waiters = {WITHOUT_TICKET}
            WHERE lock_name = :name AND token = :group AND expires_at > {NOW}
                AND (:past OR {self.ahead} = 0) AND NOT {self.among}"""

    @statement(LeaveReaders)
    def leave_readers(self) -> str:
        return f"""UPDATE {self.lock_table} SET readers = {self.without_me},
                token = iif({self.last}, NULL, token),
                expires_at = iif({self.last}, {NOW}, expires_at)
            WHERE lock_name = :name AND token = :group AND {self.among}"""


class MemberStatements(LeaseStatements, Members):
    """A member of a quorum."""

    @statement(Vote, read=read_grant, parameters=vote_parameters)
    def vote(self) -> str:
        return f"""INSERT INTO {self.lock_table}
                (lock_name, fence, token, owner, acquired_at, expires_at)
            SELECT :name, {self.floor} + 1, :token, :owner, {NOW}, {LATER}
            WHERE {self.votes}
            ON CONFLICT (lock_name) DO UPDATE SET fence = fence + 1, token = excluded.token,
                owner = excluded.owner, acquired_at = excluded.acquired_at,
                expires_at = excluded.expires_at, waiters = NULL
            WHERE {self.is_available(LAST)}
            RETURNING fence, {REMAINING}"""
