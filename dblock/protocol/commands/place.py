"""The place of the tables."""

from __future__ import annotations

from ..state import Found
from .command import Command


class LookAround(Command[Found]):
    """Read the location and the version of the tables."""


class SeeHidden(Command[str | None]):
    """Read whether a temporary table hides one of dblock's tables."""
