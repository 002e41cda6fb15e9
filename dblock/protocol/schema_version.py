"""Versions that other modules compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

#: The number of the newest migration. This code needs tables at this revision.
SCHEMA_VERSION = 13


class Schema(NamedTuple):
    """The tables' version and revision.

    Every migration raises ``revision``. A migration raises ``version`` if older code cannot use the
    tables afterwards: ``version`` is the SCHEMA_VERSION of the oldest code that can.
    """

    version: int
    revision: int

    @classmethod
    def of(cls, row: Sequence[Any] | None) -> Schema:
        """Return the version in a row with all columns of the version table. Before
        ``dblock_0004`` the table has one column."""
        version, revision = (*(row or ()), None, None)[:2]
        return cls(version or 0, revision or version or 0)
