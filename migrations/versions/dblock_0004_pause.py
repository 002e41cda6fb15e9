"""Where a pause ends, where no crash erases it; until when the longest TTL is known; revisions.

The version stays: code that knows nothing of this works on. From here on it is the oldest code's
that works with the tables, and how far they have been brought is their revision.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from dblock.schema.steps import Steps

revision = "dblock_0004"
down_revision = "dblock_0003"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
MOMENT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *MYSQL)


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
    steps = Steps(op)
    steps.add_key()  # first: MariaDB may refuse to change a table without
    for name, column in added():
        steps.add_column(name, column)
    steps.done(4)


def downgrade() -> None:
    steps = Steps(op)
    for name, column in reversed(added()):
        steps.drop_column(name, column.name)
