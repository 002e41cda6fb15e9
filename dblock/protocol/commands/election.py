"""A leader's value."""

from __future__ import annotations

from ..state import LeaderRow
from .command import Command, Name


class WriteValue(Command[bool]):
    """Write a name's value if the token holds the name, and notify the name's observers; true when
    the value has this hold's fence now.

    The statement never replaces the value of a later hold, and waits for no lease.
    """

    name: Name
    token: str
    fence: int
    value: str


class ReadLeader(Command[LeaderRow | None]):
    """Read the holder of a name, and the newest value that a hold of the name has written; None if
    the name has no row."""

    name: Name


class CallObservers(Command[int]):
    """Notify the observers of a name, so that they read it again."""

    name: Name
