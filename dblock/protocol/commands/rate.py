"""The places of a rate limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .command import Command, Name


class Arrival(NamedTuple):
    """The row of a rate limit, and the time, in microseconds by the database's clock.

    ``tat`` is the theoretical arrival time, and ``mark`` the mark of the call that set it. The row
    of another kind of name has no positive TAT.
    """

    mark: str
    tat: int
    now: int

    @classmethod
    def read(cls, rows: Sequence[Sequence[Any]]) -> Arrival | None:
        """Return the row that a statement has returned."""
        return cls(*rows[0]) if rows else None


class TakePlace(Command[Arrival | None]):
    """Move a name's TAT on by ``step`` microseconds, from the present time at the earliest, and put
    the call's ``mark`` there, unless the TAT would then be more than ``ahead`` in the future.

    Return the row afterwards: the call has its place if its own mark is there. A statement whose
    mark is there already changes nothing, so it can be repeated. One that is refused changes
    nothing either. The reply may be older than a place that another call takes at the same time;
    it is None if the row was not there yet.
    """

    name: Name
    mark: str
    step: int
    ahead: int
