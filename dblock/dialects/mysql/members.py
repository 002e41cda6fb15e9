"""A member of a quorum on MySQL, where a vote is one packet, as the grant of a new name is."""

from __future__ import annotations

from ...protocol.commands import Vote
from ...protocol.state import Granted
from ..mariadb.lease import granted
from ..mariadb.members import MemberStatements as MariaDBs
from ..mariadb.members import parameters
from ..query import Result
from ..statement import statement
from .lease import LeaseStatements, done


def _read_vote(_: object, command: Vote, result: Result) -> Granted | None:
    return granted(done(result), command.token)


class MemberStatements(LeaseStatements, MariaDBs):
    """A member that does not vote refuses, also while the name's row is in use."""

    @statement(Vote, reads=_read_vote, parameters=parameters)
    def vote(self) -> str:
        free = f"{self._available} AND {self.votes}"
        return self._made_and(self._grant(free, rest="NULL"), free)
