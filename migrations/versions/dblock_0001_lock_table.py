"""The lock table, what guards lock, the keys of applied changes, and the tables' own version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from dblock.schema.steps import Steps

revision = "dblock_0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out here rather than imported: a migration says what was, whatever the code becomes.
MYSQL = ("mysql", "mariadb")
NAME = (
    sa.Text(collation="C")
    .with_variant(mysql.VARBINARY(1020), *MYSQL)
    .with_variant(sa.Text(), "sqlite")
)
TOKEN = sa.String(32).with_variant(
    mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), *MYSQL
)
LABEL = sa.String(255).with_variant(mysql.VARCHAR(255, charset="utf8mb4"), *MYSQL)
MOMENT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *MYSQL)


def upgrade() -> None:
    steps = Steps(op)
    steps.create_table(
        "lock",
        sa.Column("lock_name", NAME, nullable=False, comment="The name."),
        sa.Column(
            "fence",
            sa.BigInteger(),
            nullable=False,
            comment="The number of the newest hold. It only grows.",
        ),
        sa.Column(
            "token",
            TOKEN,
            comment="The secret of the holder's process; NULL while the name is free.",
        ),
        sa.Column("owner", LABEL, comment="Who holds it: host, process, or what label= says."),
        sa.Column("acquired_at", MOMENT, comment="When the hold began."),
        sa.Column("expires_at", MOMENT, comment="When the lease runs out if nobody renews it."),
        sa.PrimaryKeyConstraint("lock_name", name=f"{steps.prefix}lock_pkey"),
        comment="One row for each name that was ever locked.",
    )
    if steps.kind == "postgresql":
        # Not an argument of the table: SQLAlchemy 2.0 has none for it.
        steps.execute(f"ALTER TABLE {steps.name('lock')} SET (fillfactor = 50)")
    steps.create_table(
        "guard",
        sa.Column("lock_name", NAME, nullable=False, comment="The name."),
        sa.PrimaryKeyConstraint("lock_name", name=f"{steps.prefix}guard_pkey"),
        comment="What a guard locks in a user's transaction (MariaDB).",
    )
    steps.create_table(
        "applied",
        sa.Column("idempotency_key", NAME, nullable=False, comment="The key."),
        sa.Column("applied_at", MOMENT, nullable=False, comment="When the change was made."),
        sa.PrimaryKeyConstraint("idempotency_key", name=f"{steps.prefix}applied_pkey"),
        comment="Idempotency keys of counter changes.",
    )
    steps.create_table(
        "schema",
        sa.Column(
            "version",
            sa.Integer(),
            nullable=False,
            autoincrement=False,
            comment="The oldest code that works with these tables.",
        ),
        sa.PrimaryKeyConstraint("version", name=f"{steps.prefix}schema_pkey"),
        comment="How far dblock's tables have been brought.",
    )
    steps.execute(
        f"INSERT INTO {steps.name('schema')} (version) SELECT first.version "
        "FROM (SELECT 1 AS version) AS first "
        f"WHERE NOT EXISTS (SELECT 1 FROM {steps.name('schema')})"
    )


def downgrade() -> None:
    steps = Steps(op)
    for name in ("schema", "applied", "guard", "lock"):
        steps.drop_table(name)
