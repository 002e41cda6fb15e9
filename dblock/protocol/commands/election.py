"""A leader's value."""

from __future__ import annotations

from ...lock_state import Leader
from .command import Command, Name


class WriteValue(Command[bool]):
    """Write the value of a name, if the token holds it, under the hold's fence."""

    name: Name
    token: str
    fence: int
    value: str


class ReadLeader(Command[Leader | None]):
    """Read the holder of a name, and the value that this hold has written."""

    name: Name


class CallObservers(Command[int]):
    """Notify the observers of a name."""

    name: Name
