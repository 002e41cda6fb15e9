"""A long queue stays in its row, uncompressed, on PostgreSQL.

Else the server would compress the queue of about 25 waiters, and unpack it, in each statement.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "dblock_0008"
down_revision = "dblock_0007"
branch_labels = None
depends_on = None


def place() -> tuple[str | None, str]:
    """Return the schema and prefix: the defaults where this runs in a history of the user's."""
    options = op.get_context().opts
    return options.get("dblock_schema"), options.get("dblock_prefix", "dblock_")


def set_revision(revision: int) -> None:
    schema, prefix = place()
    table = sa.table(f"{prefix}schema", sa.column("revision", sa.Integer()), schema=schema)
    op.execute(table.update().values(revision=op.inline_literal(revision)))


def set_storage(change: str) -> None:
    schema, prefix = place()
    if op.get_context().dialect.name == "postgresql":
        lock = sa.table(f"{prefix}lock", schema=schema)
        quoted = op.get_context().dialect.identifier_preparer.format_table(lock)
        op.execute(f"ALTER TABLE {quoted} {change}")


def upgrade() -> None:
    # As long as a page has room for a row.
    set_storage("SET (toast_tuple_target = 8160)")
    set_revision(8)


def downgrade() -> None:
    set_storage("RESET (toast_tuple_target)")
    set_revision(7)
