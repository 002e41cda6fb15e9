"""A database as one member of a quorum.

Its record is in the table of values under the empty name, which is never a user's: the members of
the quorum, the longest TTL that the quorum has granted, and since when the member votes.
"""

from __future__ import annotations

from ..state import Granted, Member
from .command import Command, Duration, Name


class Vote(Command[Granted | None]):
    """Take the name as :class:`.Grant` does, if the database votes: its record says so, for these
    ``members``, for this start of the server and for TTLs up to ``ttl``."""

    name: Name
    token: str
    owner: str
    ttl: Duration
    members: str


class Stamp(Command[int]):
    """Raise the fence of an unexpired hold to ``fence``, if the database votes, for TTLs up to
    ``ttl`` too; one row when the token holds the name with this fence now. The statement never
    lowers a fence."""

    name: Name
    token: str
    fence: int
    members: str
    ttl: Duration


class ReadMember(Command[Member]):
    """Read the member's record, and the largest fence that any name may have there."""


class WriteMember(Command[int]):
    """Replace the record ``before`` (None: there is none) by ``after``; one row when it did.

    The member votes ``pause`` seconds from now. It never forgets a longer TTL than ``longest``
    milliseconds.
    """

    before: str | None
    after: str
    longest: int
    pause: Duration


class RaiseFences(Command[int]):
    """Raise the fences of all names that have a smaller one to ``fence``."""

    fence: int
