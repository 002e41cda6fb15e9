"""What names carry beside their leases: the value of a leader, the limit of a semaphore.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from dblock.schema.steps import Steps

revision = "dblock_0006"
down_revision = "dblock_0005"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
NAME = (
    sa.Text(collation="C")
    .with_variant(mysql.VARBINARY(1020), *MYSQL)
    .with_variant(sa.Text(), "sqlite")
)
VALUE = sa.Text().with_variant(mysql.LONGTEXT(charset="ascii"), *MYSQL)
MOMENT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *MYSQL)


def upgrade() -> None:
    steps = Steps(op)
    steps.create_table(
        "value",
        sa.Column("lock_name", NAME, nullable=False, comment="The name."),
        sa.Column(
            "fence",
            sa.BigInteger,
            nullable=False,
            comment="The fence of the hold that wrote the value; 0 if none did.",
        ),
        sa.Column("value", VALUE, comment="The value, as JSON."),
        sa.Column("written_at", MOMENT, nullable=False, comment="When it was written."),
        sa.PrimaryKeyConstraint("lock_name", name=f"{steps.prefix}value_pkey"),
        comment="Values of names: what a leader proclaims, the limit of a semaphore.",
    )
    steps.done(6)


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(6)
    steps.drop_table("value")
