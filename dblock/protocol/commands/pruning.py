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
    """Read a page of names after ``after``, and which of them were unused for ``idle`` seconds."""

    after: Name
    idle: float


class RaiseFloor(Command[int]):
    """Raise the floor: every name that is new from now on gets a fence above ``fence``."""

    fence: int


class Retire(Command[int]):
    """Delete the rows of names after ``after``, up to ``last``, that were unused for ``idle``
    seconds and have fences up to ``fence``, the floor."""

    after: Name
    last: Name
    fence: int
    idle: float
