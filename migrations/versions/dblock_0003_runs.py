"""The runs of jobs: who ran them, when, and how they ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from dblock.schema.steps import Steps

revision = "dblock_0003"
down_revision = "dblock_0002"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
NAME = (
    sa.Text(collation="C")
    .with_variant(mysql.VARBINARY(1020), *MYSQL)
    .with_variant(sa.Text(), "sqlite")
)
LABEL = sa.String(255).with_variant(mysql.VARCHAR(255, charset="utf8mb4"), *MYSQL)
MOMENT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *MYSQL)


def upgrade() -> None:
    steps = Steps(op)
    steps.create_table(
        "run",
        sa.Column("lock_name", NAME, nullable=False, comment="The job's name."),
        sa.Column(
            "slot",
            NAME,
            nullable=False,
            comment="The slot, such as a day; empty for the last run of all.",
        ),
        sa.Column(
            "fence",
            sa.BigInteger(),
            nullable=False,
            comment="The fence of the lease that it ran under.",
        ),
        sa.Column("owner", LABEL, comment="Who ran it."),
        sa.Column("started_at", MOMENT, nullable=False, comment="When it began."),
        sa.Column(
            "ended_at", MOMENT, comment="When it ended; NULL while it runs, or if it was killed."
        ),
        sa.Column("exit_status", sa.Integer(), comment="The exit status of its command."),
        sa.PrimaryKeyConstraint("lock_name", "slot", name=f"{steps.prefix}run_pkey"),
        comment="The last run of each job, and of each slot of it.",
    )
    steps.done(3, "version")


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(3, "version")
    steps.drop_table("run")
