"""Reading names, from outside."""

from __future__ import annotations

from ...lock_state import RowLockState
from ..state import LockRow
from .command import Command, Name


class Look(Command[list[LockRow]]):
    """Read the rows of names, without waiting."""

    names: tuple[str, ...]


class ListHeld(Command[list[LockRow]]):
    """Read the rows of all names that have a token, an expired one too, or have waiters."""


class ListRowLocks(Command[dict[str, RowLockState]]):
    """Read which transactions have locked the row of a name that has no lease, or of any such name.

    On a database that locks a file as a whole, this fails as busy while a transaction writes.
    """

    name: Name | None
