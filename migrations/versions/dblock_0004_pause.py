"""Where a pause ends, where no crash erases it; until when the longest TTL is known; revisions.

The version stays: code that knows nothing of this works on. From here on it is the oldest code's
that works with the tables, and how far they have been brought is their revision.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "dblock_0004"
down_revision = "dblock_0003"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
MOMENT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *MYSQL)


def place() -> tuple[str | None, str]:
    """Return the schema and prefix: the defaults where this runs in a history of the user's."""
    options = op.get_context().opts
    return options.get("dblock_schema"), options.get("dblock_prefix", "dblock_")


def added() -> tuple[tuple[str, sa.Column[object]], ...]:
    return (
        ("epoch", sa.Column("grants_from", MOMENT, comment="When the pause after a crash ends.")),
        (
            "witness",
            sa.Column(
                "valid_until", MOMENT, comment="Until when longest_ttl is known to be right."
            ),
        ),
        (
            "schema",
            sa.Column("revision", sa.Integer(), comment="The newest revision that was applied."),
        ),
    )


def upgrade() -> None:
    schema, prefix = place()
    again = op.get_context().dialect.name in MYSQL or None
    for name, column in added():
        op.add_column(f"{prefix}{name}", column, schema=schema, if_not_exists=again)
    table = sa.table(f"{prefix}schema", sa.column("revision", sa.Integer()), schema=schema)
    op.execute(table.update().values(revision=op.inline_literal(4)))


def downgrade() -> None:
    schema, prefix = place()
    again = op.get_context().dialect.name in MYSQL or None
    for name, column in reversed(added()):
        op.drop_column(f"{prefix}{name}", column.name, schema=schema, if_exists=again)
