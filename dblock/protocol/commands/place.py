"""The place of the tables."""

from __future__ import annotations

from ..state import Found
from .command import Command


class LookAround(Command[Found]):
    """Read the location and the version of the tables: with ``borrowed``, of the tables that a
    user's transaction sees."""

    borrowed: bool = False


class SeeHidden(Command[str | None]):
    """Read whether a temporary table hides one of dblock's tables; return its name then. A
    dialect's ``hidden`` makes one for each table."""

    table: str
