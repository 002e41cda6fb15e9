"""The list of readers that share the hold of a name.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from dblock.schema.steps import Steps

revision = "dblock_0007"
down_revision = "dblock_0006"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
READERS = sa.Text().with_variant(mysql.LONGTEXT(charset="ascii", collation="ascii_bin"), *MYSQL)


def upgrade() -> None:
    steps = Steps(op)
    steps.add_column(
        "lock",
        sa.Column("readers", READERS, comment="Tokens of those who share the hold, its own first."),
    )
    steps.done(7)


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(7)
    steps.drop_column("lock", "readers")
