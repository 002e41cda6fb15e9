"""The statements over what a leader tells, nearly the same for all databases.

A name has one row in the table of values, under the fence of the hold that wrote it. It counts
while that hold is there: so nobody has to delete it when another begins. The limit of a semaphore
(:mod:`.slots`) is there with the fence 0: a name with one is no election's, and its limit stays.
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
    """The hold's row is only read, so a leader's own renewals are not held up."""

    #: What else a statement that has written a value tells, after the fence.
    written: ClassVar[str] = ""

    def write_value(self, name: str, token: str, fence: int, value: str) -> Query[bool]:
        # That no later hold has written is asked of the row itself, when it is locked.
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
        """Select the row of a value; none if the token has no unexpired hold."""
        return f"""SELECT lock_name, fence, {self.parameter("value")}, {self.clock}
            FROM {self.lock_table}
            WHERE lock_name = {self.name_parameter} AND token = {self.parameter("token")}
                AND {self.lasting}"""

    def parameters(self, name: str, token: str, value: str) -> dict[str, Any]:
        return {"name": self.key(name), "token": token, "value": value}

    @property
    def vouched(self) -> str:
        """What else has to be true of a hold ``l`` that is believed, as more of a condition."""
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
