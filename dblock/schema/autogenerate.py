"""Keeps Alembic's autogenerate from dropping dblock's tables."""

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
    """Return an ``include_name`` for Alembic's ``context.configure`` that skips dblock's tables.

    Use it if your MetaData does not have these tables. Without it autogenerate would drop them.
    ``other`` is your own ``include_name``: it decides about all other names. ``schema`` and
    ``prefix`` say where dblock's tables are. Alembic still compares the tables that are in
    ``known``, for example ``metadata.tables``.
    """
    ours = {table.name for table in tables(MetaData(), prefix=prefix).values()}
    ours |= {f"{prefix}version", f"{prefix}fence"}

    def include_name(name: str | None, kind: str, parents: Any) -> bool:
        key = f"{schema}.{name}" if schema else name
        # Alembic gives no name for the connection's own schema, and that may be dblock's.
        here = kind == "table" and parents.get("schema_name") in (None, schema)
        if here and name in ours and key not in known:
            return False
        return other is None or other(name, kind, parents)

    return include_name
