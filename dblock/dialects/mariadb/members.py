"""A member of a quorum on MariaDB, which does not show when a backup was restored."""

from __future__ import annotations

from ...protocol.commands import Vote
from ...protocol.state import Granted
from ..members import MemberStatements as Members
from ..members import vote_parameters
from ..query import Result
from ..statement import statement
from .lease import LeaseStatements, granted


def parameters(dialect: MemberStatements, command: Vote) -> dict[str, object]:
    return vote_parameters(dialect, command) | dialect.with_user_lock(command)


def _read_vote(_: object, command: Vote, result: Result) -> Granted | None:
    return granted(result, command.token)


class MemberStatements(LeaseStatements, Members):
    """MariaDB's INSERT has no ON CONFLICT, and ``||`` does not join texts there."""

    keeps_record = "ON DUPLICATE KEY UPDATE lock_name = lock_name"

    @property
    def record(self) -> str:
        return """CONCAT('"', %(members)s, ' "')"""

    @statement(Vote, reads=_read_vote, parameters=parameters)
    def vote(self) -> str:
        free = f"{self._available} AND {self.votes}"
        return self._made_and(self._grant(free, rest="NULL"))
