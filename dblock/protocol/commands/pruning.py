"""Deleting old records and unused names."""

from __future__ import annotations

from ..state import NamePage
from .command import Command, Name


class PruneApplied(Command[int]):
    """Delete some of the keys that are older than ``age`` seconds, if there are any."""

    age: float


class PruneOnce(Command[int]):
    """Delete some of the calls' records that have expired, if there are any."""


class PruneRuns(Command[int]):
    """Delete some of the runs that are older than ``age`` seconds, except each name's last."""

    age: float


class PruneValues(Command[int]):
    """Delete some of the values that are older than ``age`` seconds and whose names have no row, if
    there are any."""

    age: float


class LookForUnused(Command[NamePage | None]):
    """Read a page of the names that follow ``after``, in order; None if there are no more.

    A name is unused if its queue is empty and no lease has held it for ``idle`` seconds. A name
    that only row locks have used is unused too.
    """

    after: Name
    idle: float


class RaiseFloor(Command[int]):
    """Raise the floor to ``fence`` if it is lower. This commits before any row is deleted: so a
    statement that finds no row of a name sees the raised floor, and grants a larger fence."""

    fence: int


class Retire(Command[int]):
    """Delete the rows of names that follow ``after``, up to ``last``, that were unused for ``idle``
    seconds and have fences up to ``fence``. The statement does not wait: a row that is locked
    stays."""

    after: Name
    last: Name
    fence: int
    idle: float
