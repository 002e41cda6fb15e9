"""The row lock and the guard."""

from __future__ import annotations

from ..state import RowOutcome
from .command import Command, Name


class Create(Command[int]):
    """Insert the free row of a name, unless it exists."""

    name: Name


class LockRow(Command[RowOutcome]):
    """Lock a free name's row until the transaction ends, which may be ``borrowed``."""

    name: Name
    borrowed: bool


class Guard(Command[bool]):
    """Block, in the user's transaction, every grant of the name."""

    name: Name
    token: str
    fence: int
