"""Every hold on SQLite: a name, a semaphore's slot, a reader's share; and the queue for a name.

One upsert grants the name or queues for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

from ...protocol import commands
from ...protocol.commands import GrantSlot, JoinReaders, LeaveReaders
from ...protocol.state import Granted, Queued, Renewal
from ...protocol.steps import Query
from ..dialect import Dialect, read_attached, read_grant, read_join, read_renewed
from ..readers import ReaderLists, shared
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

    def leave(self, name: str, token: str, ticket: str) -> Query[int]:
        return Query(
            f"""UPDATE {self.lock_table} SET waiters = {WITHOUT_TICKET}
            WHERE lock_name = :name AND {self.enqueued}""",
            {"name": name, "ticket": ticket},
            commands.Leave(name, token, ticket),
            self.patience,
        )

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


class LeaseStatements(QueueStatements):
    """The statements that every hold needs, `_grant` and `_release`, are composed once."""

    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query[Granted | None]:
        params = {"name": name, "token": token, "owner": owner, "ttl": modifier(ttl)}
        command = commands.Grant(name, token, owner, ttl)
        return Query(self._grant, params, command, self.patience, read=read_grant)

    @cached_property
    def _grant(self) -> str:
        return f"""INSERT INTO {self.lock_table}
                (lock_name, fence, token, owner, acquired_at, expires_at)
            VALUES (:name, {self.floor} + 1, :token, :owner, {NOW}, {LATER})
            ON CONFLICT (lock_name) DO UPDATE SET fence = fence + 1, token = excluded.token,
                owner = excluded.owner, acquired_at = excluded.acquired_at,
                expires_at = excluded.expires_at, waiters = NULL
            WHERE {self.is_available(LAST)}
            RETURNING fence, {REMAINING}"""

    def join(
        self, name: str, token: str, owner: str, ttl: float, ticket: str, *, yields: bool = False
    ) -> Query[Granted | Queued | None]:
        params = {"name": name, "token": token, "owner": owner, "ttl": modifier(ttl)}
        free = self.is_available(self.ahead)
        return Query(
            f"""INSERT INTO {self.lock_table}
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
                iif({self.enqueued}, {self.ahead}, NULL), {free}""",
            params | {"ticket": ticket},
            commands.Join(name, token, owner, ttl, ticket, yields),
            self.patience,
            read=read_join,
        )

    def renew(self, asked: Sequence[Renewal]) -> Query[dict[str, int | None]]:
        # Readers never bring their expiry forward: another reader may have a longer TTL.
        rows = json.dumps([(name, token, modifier(ttl)) for name, token, ttl in asked])
        later = LATER.replace(":ttl", "json_extract(asked.value, '$[2]')")
        return Query(
            f"""UPDATE {self.lock_table} AS l
            SET expires_at = iif({shared("l.token")}, max(expires_at, {later}), {later})
            FROM json_each(:asked) AS asked
            WHERE l.lock_name = json_extract(asked.value, '$[0]')
                AND l.token = json_extract(asked.value, '$[1]')
                AND l.expires_at > {NOW}
            RETURNING token, fence""",
            {"asked": rows},
            commands.Renew(tuple(asked)),
            self.patience,
            read=read_renewed,
        )

    def attach(
        self, name: str, token: str, new_token: str, owner: str, ttl: float
    ) -> Query[int | None]:
        return Query(
            f"""UPDATE {self.lock_table}
            SET token = :new_token, owner = :owner, expires_at = {LATER}
            WHERE lock_name = :name AND token = :token AND expires_at > {NOW}
            RETURNING fence""",
            {
                "name": name,
                "token": token,
                "new_token": new_token,
                "owner": owner,
                "ttl": modifier(ttl),
            },
            commands.Attach(name, token, new_token, owner, ttl),
            self.patience,
            read=read_attached,
        )

    def release(self, name: str, token: str) -> Query[int]:
        params = {"name": name, "token": token}
        return Query(self._release, params, commands.Release(name, token), self.patience)

    @cached_property
    def _release(self) -> str:
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
