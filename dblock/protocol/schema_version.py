"""Versions that other modules compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

#: The newest migration's number: how far this code needs the tables to have been brought.
SCHEMA_VERSION = 13


class Schema(NamedTuple):
    """How far the tables have been brought.

    ``version`` is raised by migrations that older code does not work with, and is that of the
    oldest code that does. ``revision`` is raised by all of them.
    """

    version: int
    revision: int

    @classmethod
    def of(cls, row: Sequence[Any] | None) -> Schema:
        """Return what the table's row says, all its columns: before ``dblock_0004`` it has one."""
        version, revision = (*(row or ()), None, None)[:2]
        return cls(version or 0, revision or version or 0)
