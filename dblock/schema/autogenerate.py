"""What keeps Alembic's autogenerate from dropping tables that it does not know."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from sqlalchemy import MetaData

from .tables import tables

IncludeName = Callable[[str | None, str, Any], bool]


def leave_ours(
    other: IncludeName | None = None,
    *,
    schema: str | None = None,
    prefix: str = "dblock_",
    known: Container[str] = (),
) -> IncludeName:
    """Return an ``include_name`` for Alembic's ``context.configure`` that passes over our tables.

    For histories whose MetaData does not have them: those in ``known``, a MetaData's ``tables``,
    are compared. ``other`` is one of the user's, asked about everything else.
    """
    ours = {table.name for table in tables(MetaData(), prefix=prefix).values()}
    ours.add(f"{prefix}version")

    def include_name(name: str | None, kind: str, parents: Any) -> bool:
        key = f"{schema}.{name}" if schema else name
        # Alembic has no name for the connection's own schema, which may be the one.
        here = kind == "table" and parents.get("schema_name") in (None, schema)
        if here and name in ours and key not in known:
            return False
        return other is None or other(name, kind, parents)

    return include_name
