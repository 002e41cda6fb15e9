"""The list of readers that share the hold of a name.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "dblock_0007"
down_revision = "dblock_0006"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
READERS = sa.Text().with_variant(mysql.LONGTEXT(charset="ascii", collation="ascii_bin"), *MYSQL)


def place() -> tuple[str | None, str]:
    """Return the schema and prefix: the defaults where this runs in a history of the user's."""
    options = op.get_context().opts
    return options.get("dblock_schema"), options.get("dblock_prefix", "dblock_")


def set_revision(revision: int) -> None:
    schema, prefix = place()
    table = sa.table(f"{prefix}schema", sa.column("revision", sa.Integer()), schema=schema)
    op.execute(table.update().values(revision=op.inline_literal(revision)))


def upgrade() -> None:
    schema, prefix = place()
    op.add_column(
        f"{prefix}lock",
        sa.Column("readers", READERS, comment="Tokens of those who share the hold, its own first."),
        schema=schema,
        if_not_exists=op.get_context().dialect.name in MYSQL or None,
    )
    set_revision(7)


def downgrade() -> None:
    schema, prefix = place()
    again = op.get_context().dialect.name in MYSQL or None
    op.drop_column(f"{prefix}lock", "readers", schema=schema, if_exists=again)
    set_revision(6)
