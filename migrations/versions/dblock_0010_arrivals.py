"""Triggers that tell when rows come from another server (PostgreSQL).

Logical replication brings rows that another server has granted, and the witness here does not vouch
for those. In sessions that are no replication's the triggers are not fired, but for the epoch, when
its row is copied.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from dblock.dialects.postgresql.arrivals import functions, triggers

revision = "dblock_0010"
down_revision = "dblock_0009"
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


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for table in ("lock", "epoch"):
            for statement in triggers(table, *place()):
                op.execute(statement)
    set_revision(10)


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        for function in functions(*place()):
            op.execute(f"DROP FUNCTION IF EXISTS {function}() CASCADE")
    set_revision(9)
