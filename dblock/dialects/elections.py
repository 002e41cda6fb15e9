"""The statements over the value that a leader publishes, nearly the same for all databases.

A name has one row in the table of values, with the fence of the hold that wrote it. The value
counts while that hold lasts, so it need not be deleted when another hold begins. A semaphore's
limit (:mod:`.slots`) is in the same table with the fence 0: its name is no election's, and an
election does not overwrite it.
"""

from __future__ import annotations

import json

from ..lock_state import Leader
from ..protocol.commands import ReadLeader, WriteValue
from ..protocol.state import LeaderRow
from .dialect import Dialect
from .query import Result
from .readers import shared
from .statement import statement
from .values import utc


def is_written(_: object, command: WriteValue, result: Result) -> bool:
    """Read whether the value is this hold's, from the first column: the value's fence."""
    return bool(result.rows) and int(result.rows[0][0]) == command.fence


def read_leader(result: Result) -> LeaderRow | None:
    """Read the columns of :class:`.LeaderRow`; None without a leader."""
    if not result.rows:
        return None
    owner, fence, value, acquired_at, remaining, token, written_by = result.rows[0]
    since = utc(acquired_at)
    assert since is not None
    told = None if value is None else json.loads(value)
    leader = Leader(owner, int(fence), told, since, float(remaining))
    return LeaderRow(leader, token, None if written_by is None else int(written_by))


class ElectionStatements(Dialect):
    """They only read the hold's row, so they do not delay the leader's own renewals."""

    @statement(WriteValue, reads=is_written)
    def write_value(self) -> str:
        # The upsert's condition, which is evaluated with the row locked, keeps a later hold's
        # value.
        changes = ", ".join(
            f"{column} = excluded.{column}" for column in ("fence", "value", "written_at")
        )
        return f"""INSERT INTO {self.value_table} AS v (lock_name, fence, value, written_at)
            {self.proven}
            ON CONFLICT (lock_name) DO UPDATE SET {changes}
            WHERE v.fence BETWEEN 1 AND excluded.fence
            RETURNING fence"""

    @property
    def proven(self) -> str:
        """Select the value's row to write; none if the token has no unexpired hold. It has the
        fence that the holder has: a member of a quorum may have granted a larger one."""
        return f"""SELECT lock_name, {self.parameter("fence")}, {self.parameter("value")},
                {self.clock}
            FROM {self.lock_table}
            WHERE lock_name = {self.name_parameter} AND token = {self.parameter("token")}
                AND {self.lasting}"""

    @statement(ReadLeader, read=read_leader)
    def leader(self) -> str:
        return f"""SELECT l.owner, l.fence, v.value, l.acquired_at, {self.remaining}, l.token,
                v.fence
            FROM {self.lock_table} AS l LEFT JOIN {self.value_table} AS v
                ON v.lock_name = l.lock_name
            WHERE l.lock_name = {self.name_parameter} AND l.token IS NOT NULL
                AND {self.lasting} AND NOT {shared("l.token")}"""
