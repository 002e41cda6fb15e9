"""The lease on SQLite. One upsert grants the name or queues for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

from ...protocol import commands
from ...protocol.state import Granted, Queued, Renewal
from ...protocol.steps import Query
from ..dialect import read_attached, read_grant, read_join, read_renewed
from ..readers import shared
from .fragments import LATER, NOW, REMAINING, modifier
from .queue import LAST, REST, QueueStatements


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
