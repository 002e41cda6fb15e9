"""The statements over the value that a leader publishes, nearly the same for all databases.

A name has one row in the table of values, with the fence of the hold that wrote it. The value
counts while that hold lasts, so it need not be deleted when another hold begins. A semaphore's
limit (:mod:`.slots`) is in the same table with the fence 0: its name is no election's, and an
election does not overwrite it.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ..lock_state import Leader
from ..protocol import commands
from ..protocol.steps import Query, Reply
from .dialect import Dialect
from .readers import shared
from .values import utc


class ElectionStatements(Dialect):
    """They only read the hold's row, so they do not delay the leader's own renewals."""

    #: Further columns, after the fence, that a statement returns which has written a value.
    written: ClassVar[str] = ""

    def write_value(self, name: str, token: str, fence: int, value: str) -> Query[bool]:
        # The upsert's condition, which is evaluated with the row locked, keeps a later hold's
        # value.
        changes = ", ".join(
            f"{column} = excluded.{column}" for column in ("fence", "value", "written_at")
        )
        return Query(
            f"""INSERT INTO {self.value_table} AS v (lock_name, fence, value, written_at)
            {self.proven}
            ON CONFLICT (lock_name) DO UPDATE SET {changes}
            WHERE v.fence BETWEEN 1 AND excluded.fence
            RETURNING fence{self.written}""",
            self.parameters(name, token, value),
            commands.WriteValue(name, token, fence, value),
            self.patience,
            read=lambda reply: is_written(reply, fence),
        )

    @property
    def proven(self) -> str:
        """Select the value's row to write; none if the token has no unexpired hold."""
        return f"""SELECT lock_name, fence, {self.parameter("value")}, {self.clock}
            FROM {self.lock_table}
            WHERE lock_name = {self.name_parameter} AND token = {self.parameter("token")}
                AND {self.lasting}"""

    def parameters(self, name: str, token: str, value: str) -> dict[str, Any]:
        return {"name": self.key(name), "token": token, "value": value}

    @property
    def vouched(self) -> str:
        """A further condition for believing a hold ``l``, which begins with AND."""
        return ""

    def leader(self, name: str) -> Query[Leader | None]:
        return Query(
            f"""SELECT l.owner, l.fence, v.value, l.acquired_at, {self.remaining}
            FROM {self.lock_table} AS l LEFT JOIN {self.value_table} AS v
                ON v.lock_name = l.lock_name AND v.fence = l.fence
            WHERE l.lock_name = {self.name_parameter} AND l.token IS NOT NULL
                AND {self.lasting} AND NOT {shared("l.token")}{self.vouched}""",
            {"name": self.key(name)},
            commands.ReadLeader(name),
            self.patience,
            read=_leader,
        )


def is_written(reply: Reply, fence: int) -> bool:
    return bool(reply.rows) and int(reply.rows[0][0]) == fence


def _leader(reply: Reply) -> Leader | None:
    if not reply.rows:
        return None
    owner, fence, value, acquired_at, remaining = reply.rows[0]
    since = utc(acquired_at)
    assert since is not None
    return Leader(
        owner, int(fence), None if value is None else json.loads(value), since, float(remaining)
    )
