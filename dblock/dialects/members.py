"""The statements over a member of a quorum, nearly the same for all databases.

The member's record is the row of the empty name in the table of values. Its value is a JSON text:
the members of the quorum, a space, and the start of the server; in other states of the member, a
word more. Its fence is the longest TTL in milliseconds, and it votes from ``written_at`` on.
"""

from __future__ import annotations

import json
from typing import ClassVar

from ..protocol.commands import RaiseFences, ReadMember, Stamp, Vote, WriteMember
from ..protocol.state import Member
from .dialect import Dialect
from .query import Result
from .statement import statement


def vote_parameters(_: Dialect, command: Vote | Stamp) -> dict[str, object]:
    """Return the parameter of :attr:`MemberStatements.votes`, in milliseconds."""
    return {"longest": round(command.ttl * 1000)}


def _texts(_: Dialect, command: WriteMember) -> dict[str, object]:
    before = "" if command.before is None else json.dumps(command.before)
    return {"before": before, "after": json.dumps(command.after)}


def _member(result: Result) -> Member:
    value, longest, opens, instance, fence = result.rows[0]
    return Member(
        None if value is None else json.loads(value),
        int(longest or 0),
        float(opens or 0.0),
        str(instance or ""),
        int(fence or 0),
    )


class MemberStatements(Dialect):
    """A statement that gives a vote has :attr:`votes` in its condition.

    A database that shows the start of its server has it in :attr:`record`: a member that was
    started again does not vote before it has joined again.
    """

    #: Ends a statement that must be on disk before the client learns of it.
    durably: ClassVar[str] = ""

    @property
    def record(self) -> str:
        """The value of a member that votes: the same text as :func:`.membership.joined` makes."""
        return f"""'"' || {self.parameter("members")} || ' "'"""

    @property
    def instance(self) -> str:
        """The start of the server; the empty text where the database does not show it."""
        return "''"

    @property
    def votes(self) -> str:
        """Whether the member votes, by its record, for a TTL of ``longest`` milliseconds."""
        return f"""EXISTS (SELECT 1 FROM {self.value_table} AS v WHERE v.lock_name = ''
                AND v.written_at <= {self.clock} AND v.value = {self.record}
                AND v.fence >= {self.parameter("longest")})"""

    @property
    def opens(self) -> str:
        """The seconds until the member ``v`` votes."""
        return self.remaining.replace("expires_at", "v.written_at")

    @property
    def largest(self) -> str:
        """The largest fence that any name may have: the floor is among the rows."""
        return f"(SELECT MAX(fence) FROM {self.lock_table})"

    @statement(ReadMember, read=_member)
    def read_member(self) -> str:
        return f"""SELECT v.value, v.fence, {self.opens}, {self.instance}, {self.largest}
            FROM (SELECT 1 AS one) AS always
            LEFT JOIN {self.value_table} AS v ON v.lock_name = ''"""

    @statement(WriteMember, parameters=_texts)
    def write_member(self, command: WriteMember) -> str:
        after, longest = map(self.parameter, ("after", "longest"))
        moment = self.later.format(self.parameter("pause"))
        if command.before is None:
            return f"""INSERT INTO {self.value_table} (lock_name, fence, value, written_at)
                VALUES ('', {longest}, {after}, {moment})
                {self.keeps_record}{self.durably}"""
        return f"""UPDATE {self.value_table} SET value = {after}, written_at = {moment},
                fence = CASE WHEN fence > {longest} THEN fence ELSE {longest} END
            WHERE lock_name = '' AND value = {self.parameter("before")}{self.durably}"""

    #: Ends the statement that writes the first record: an existing record stays.
    keeps_record: ClassVar[str] = "ON CONFLICT (lock_name) DO NOTHING"

    @statement(RaiseFences)
    def raise_fences(self) -> str:
        fence = self.parameter("fence")
        return f"UPDATE {self.lock_table} SET fence = {fence} WHERE fence < {fence}{self.durably}"

    @statement(Stamp, parameters=vote_parameters)
    def stamp(self) -> str:
        name, token, fence = map(self.parameter, ("name", "token", "fence"))
        return f"""UPDATE {self.lock_table} SET fence = {fence}
            WHERE lock_name = {name} AND token = {token} AND {self.lasting}
                AND fence <= {fence} AND {self.votes}"""
