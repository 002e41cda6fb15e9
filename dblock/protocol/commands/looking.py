"""Reading names, from outside."""

from __future__ import annotations

from ...lock_state import RowLockState
from ..state import LockRow
from .command import Command, Name


class Look(Command[list[LockRow]]):
    """Read the rows of names."""

    names: tuple[str, ...]


class ListHeld(Command[list[LockRow]]):
    """Read the rows of all names that have a token or waiters."""


class ListRowLocks(Command[dict[str, RowLockState]]):
    """Read which transactions have locked the row of a name, or of any name."""

    name: Name | None
