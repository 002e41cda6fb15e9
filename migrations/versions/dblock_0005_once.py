"""The calls that are made once: their keys, what they were for, and their results.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from dblock.schema.steps import Steps

revision = "dblock_0005"
down_revision = "dblock_0004"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
NAME = (
    sa.Text(collation="C")
    .with_variant(mysql.VARBINARY(1020), *MYSQL)
    .with_variant(sa.Text(), "sqlite")
)
TOKEN = sa.String(32).with_variant(
    mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), *MYSQL
)
FINGERPRINT = sa.String(64).with_variant(
    mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), *MYSQL
)
RESULT = sa.Text().with_variant(mysql.LONGTEXT(charset="ascii"), *MYSQL)
MOMENT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *MYSQL)


def upgrade() -> None:
    steps = Steps(op)
    steps.create_table(
        "once",
        sa.Column("idempotency_key", NAME, nullable=False, comment="The key of the call."),
        sa.Column("token", TOKEN, nullable=False, comment="Which transaction recorded the call."),
        sa.Column(
            "fingerprint",
            FINGERPRINT,
            comment="A hash of what was asked for; NULL if it was not given.",
        ),
        sa.Column(
            "result", RESULT, comment="What the call returned, as JSON; NULL until it has ended."
        ),
        sa.Column("made_at", MOMENT, nullable=False, comment="When the call was recorded."),
        sa.Column("expires_at", MOMENT, nullable=False, comment="Until when the record counts."),
        sa.PrimaryKeyConstraint("idempotency_key", name=f"{steps.prefix}once_pkey"),
        comment="Calls that are made once, and what came of them.",
    )
    steps.done(5)


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(5)
    steps.drop_table("once")
