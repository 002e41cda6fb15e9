"""A member of a quorum on PostgreSQL, which shows when its server was started again.

A cold copy of the data keeps the witness. So the member's record has the start of the server
beside the epoch, and a server that was started again does not vote before it has joined again.
"""

from __future__ import annotations

from ...protocol.commands import Stamp, Vote
from ..members import MemberStatements as Members
from ..members import vote_parameters
from ..replies import read_grant
from ..statement import statement
from .fragments import DURABLE, PATIENT, TURN
from .lease import LeaseStatements
from .witness import OPEN, known

_STARTED = """(pg_catalog.date_part('epoch', pg_postmaster_start_time())
                        * 1000000::float8)::bigint"""


class MemberStatements(LeaseStatements, Members):
    """The witness is in the condition of each statement that gives a vote."""

    @property
    def record(self) -> str:
        return f"""pg_catalog.concat('"', %(members)s::text, ' ', {_STARTED}, '/',
                    {self.witness_table}.epoch, '"')"""

    @property
    def instance(self) -> str:
        return f"pg_catalog.concat({_STARTED}, '/', ({self.epoch()}))"

    @statement(Vote, read=read_grant, parameters=vote_parameters, lock_timeout=0.0)
    def vote(self) -> str:
        voting = self.epoch(OPEN, known(), self.votes)
        return self.grant_any(f"({voting}) AS open")

    @statement(Stamp, parameters=vote_parameters, lock_timeout=TURN)
    def stamp(self) -> str:
        voting = self.epoch(OPEN, "epoch < l.fence", self.votes)
        return f"""UPDATE {self.lock_table} AS l SET fence = %(fence)s
            WHERE lock_name = %(name)s AND token = %(token)s AND expires_at > clock_timestamp()
                AND fence <= %(fence)s AND EXISTS ({voting}) AND {PATIENT}
            RETURNING {DURABLE}"""

    @property
    def largest(self) -> str:
        return f"""greatest((SELECT max(fence) FROM {self.lock_table}),
                (SELECT epoch FROM {self.epoch_table}))"""
