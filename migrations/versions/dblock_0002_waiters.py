"""A queue of waiters for each name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "dblock_0002"
down_revision = "dblock_0001"
branch_labels = None
depends_on = None

QUEUE = sa.Text().with_variant(postgresql.ARRAY(sa.Text()), "postgresql")


def place() -> tuple[str | None, str]:
    """Return the schema and prefix: the defaults where this runs in a history of the user's."""
    options = op.get_context().opts
    return options.get("dblock_schema"), options.get("dblock_prefix", "dblock_")


def upgrade() -> None:
    schema, prefix = place()
    op.add_column(f"{prefix}lock", sa.Column("waiters", QUEUE), schema=schema)
    version = sa.table(f"{prefix}schema", sa.column("version", sa.Integer), schema=schema)
    op.execute(version.update().values(version=op.inline_literal(2)))


def downgrade() -> None:
    schema, prefix = place()
    op.drop_column(f"{prefix}lock", "waiters", schema=schema)
    version = sa.table(f"{prefix}schema", sa.column("version", sa.Integer), schema=schema)
    op.execute(version.update().values(version=op.inline_literal(1)))
