"""What keeps Alembic's autogenerate from dropping tables that it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import MetaData

from .tables import tables

IncludeName = Callable[[str | None, str, Any], bool]


def leave_ours(
    other: IncludeName | None = None, *, schema: str | None = None, prefix: str = "dblock_"
) -> IncludeName:
    """Return an ``include_name`` for Alembic's ``context.configure`` that passes over our tables.

    For histories whose MetaData does not have them. ``other`` is one of the user's, asked about
    everything else.
    """
    ours = {table.name for table in tables(MetaData(), prefix=prefix).values()}
    ours.add(f"{prefix}version")

    def include_name(name: str | None, kind: str, parents: Any) -> bool:
        if kind == "table" and name in ours and parents.get("schema_name") == schema:
            return False
        return other is None or other(name, kind, parents)

    return include_name
