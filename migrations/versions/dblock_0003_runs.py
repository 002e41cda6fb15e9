"""The runs of jobs: who ran them, when, and how they ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

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


def place() -> tuple[str | None, str]:
    """Return the schema and prefix: the defaults where this runs in a history of the user's."""
    options = op.get_context().opts
    return options.get("dblock_schema"), options.get("dblock_prefix", "dblock_")


def set_version(version: int) -> None:
    schema, prefix = place()
    table = sa.table(f"{prefix}schema", sa.column("version", sa.Integer()), schema=schema)
    op.execute(table.update().values(version=op.inline_literal(version)))


def upgrade() -> None:
    schema, prefix = place()
    op.create_table(
        f"{prefix}run",
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
        sa.PrimaryKeyConstraint("lock_name", "slot", name=f"{prefix}run_pkey"),
        if_not_exists=op.get_context().dialect.name in MYSQL or None,
        comment="The last run of each job, and of each slot of it.",
        schema=schema,
        mysql_engine="InnoDB",
    )
    set_version(3)


def downgrade() -> None:
    schema, prefix = place()
    again = op.get_context().dialect.name in MYSQL or None
    op.drop_table(f"{prefix}run", schema=schema, if_exists=again)
    set_version(2)
