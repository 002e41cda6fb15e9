"""Columns of text rather than varchar, on PostgreSQL.

A comparison of two texts has one operator that fits, PostgreSQL's own. For a varchar there is none,
so whoever may create one in a schema of the search_path could have it run by dblock's statements.
Nothing is rewritten, and no index is built.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "dblock_0011"
down_revision = "dblock_0010"
branch_labels = None
depends_on = None

COLUMNS = {
    "lock": {"token": 32, "owner": 255},
    "once": {"token": 32, "fingerprint": 64},
    "waiter": {"id": 32, "strategy": 8, "owner": 255},
    "run": {"owner": 255},
    "schema": {"identity": 32},
}


def place() -> tuple[str | None, str]:
    """Return the schema and prefix: the defaults where this runs in a history of the user's."""
    options = op.get_context().opts
    return options.get("dblock_schema"), options.get("dblock_prefix", "dblock_")


def set_revision(revision: int) -> None:
    schema, prefix = place()
    table = sa.table(f"{prefix}schema", sa.column("revision", sa.Integer()), schema=schema)
    op.execute(table.update().values(revision=op.inline_literal(revision)))


def set_types(*, text: bool) -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    schema, prefix = place()
    for name, columns in COLUMNS.items():
        table = op.get_context().dialect.identifier_preparer.format_table(
            sa.table(f"{prefix}{name}", schema=schema)
        )
        changes = ", ".join(
            f"ALTER {column} TYPE {'text' if text else f'varchar({length})'}"
            for column, length in columns.items()
        )
        op.execute(f"ALTER TABLE {table} {changes}")


def upgrade() -> None:
    set_types(text=True)
    set_revision(11)


def downgrade() -> None:
    set_types(text=False)
    set_revision(10)
