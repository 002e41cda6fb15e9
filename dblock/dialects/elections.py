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
    """Read the columns of :class:`.LeaderRow`; None if the name has no row."""
    if not result.rows:
        return None
    leads, owner, fence, acquired_at, remaining, token, value, written_by = result.rows[0]
    leader = None
    if leads:
        since = utc(acquired_at)
        assert since is not None
        leader = Leader(owner, int(fence), None, since, float(remaining))
    told = None if value is None else json.loads(value)
    return LeaderRow(leader, token, told, None if written_by is None else int(written_by))


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
        # The value too where nobody leads: a member of a quorum that has lost the leader's hold may
        # be one of the majority that have its value.
        return f"""SELECT {self.leads}, l.owner, l.fence, l.acquired_at, {self.remaining},
                l.token, v.value, v.fence
            FROM {self.lock_table} AS l LEFT JOIN {self.value_table} AS v
                ON v.lock_name = l.lock_name
            WHERE l.lock_name = {self.name_parameter}"""

    @property
    def leads(self) -> str:
        """Whether the hold of a name's row is a leader's."""
        return f"l.token IS NOT NULL AND {self.lasting} AND NOT {shared('l.token')}"
