"""A queue of waiters for each name, and who they are; the witness of what was forgotten.

For a table in use: it is locked for adding a column, which rewrites nothing. Where a transaction is
in the way of that, all who come later wait behind this one. So it gives up after a moment, or after
the ``lock_timeout`` that was set (MariaDB: ``lock_wait_timeout``); run it again then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, postgresql

from dblock.schema.steps import Steps

revision = "dblock_0002"
down_revision = "dblock_0001"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
QUEUE = sa.Text().with_variant(postgresql.ARRAY(sa.Text()), "postgresql")
NAME = (
    sa.Text(collation="C")
    .with_variant(mysql.VARBINARY(1020), *MYSQL)
    .with_variant(sa.Text(), "sqlite")
)
TOKEN = sa.String(32).with_variant(
    mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), *MYSQL
)
STRATEGY = sa.String(8).with_variant(mysql.VARCHAR(8, charset="ascii"), *MYSQL)
LABEL = sa.String(255).with_variant(mysql.VARCHAR(255, charset="utf8mb4"), *MYSQL)
HOLDS = sa.Text().with_variant(mysql.LONGTEXT(charset="ascii"), *MYSQL)
MOMENT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *MYSQL)

# No lease of before is forgotten: this is the server that granted them. How long they may last is
# known from what is left of them; NULL says that there never was one.
FIRST_EPOCH = """INSERT INTO {epoch} (id, epoch, longest_ttl, server, writer)
SELECT 1, 0,
    max(CASE WHEN token IS NULL THEN 0
        ELSE greatest(0, extract(epoch FROM expires_at - clock_timestamp())) END),
    (SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
        FROM pg_control_system()),
    pg_current_xact_id()::xid::text
FROM {lock} HAVING NOT EXISTS (SELECT FROM {epoch})"""


def upgrade() -> None:
    steps = Steps(op)
    create_witness(steps)
    create_waiter(steps)
    if steps.kind == "postgresql":  # before the table is locked, since it reads the whole
        steps.execute(FIRST_EPOCH.format(epoch=steps.name("epoch"), lock=steps.name("lock")))
    steps.add_column(
        "lock",
        sa.Column("waiters", QUEUE, comment="Tickets of the queue, first come first (PostgreSQL)."),
    )
    steps.done(2, "version")


def create_witness(steps: Steps) -> None:
    steps.create_table(
        "epoch",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False, comment="Always 1."),
        sa.Column(
            "epoch",
            sa.BigInteger(),
            nullable=False,
            comment="A number that grows with each crash or failover.",
        ),
        sa.Column("cause", sa.Text(), comment="Why the newest epoch began."),
        sa.Column(
            "longest_ttl", sa.Double(), comment="The longest TTL of a lease so far, in seconds."
        ),
        sa.Column("server", sa.Text(), comment="The server and its timeline that grant leases."),
        sa.Column(
            "writer", sa.Text(), nullable=False, comment="The transaction that wrote this row."
        ),
        sa.PrimaryKeyConstraint("id", name=f"{steps.prefix}epoch_pkey"),
        comment="Since when leases are granted without a gap (PostgreSQL).",
    )
    steps.create_table(
        "witness",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False, comment="Always 1."),
        sa.Column(
            "epoch",
            sa.BigInteger(),
            nullable=False,
            comment="The epoch that leases are granted in.",
        ),
        sa.Column(
            "longest_ttl",
            sa.Double(),
            nullable=False,
            comment="The longest TTL that may be granted, in seconds.",
        ),
        sa.Column(
            "grants_from",
            MOMENT,
            nullable=False,
            comment="When the first lease of this epoch may be granted.",
        ),
        sa.Column(
            "writer", sa.Text(), nullable=False, comment="The transaction that wrote this row."
        ),
        sa.PrimaryKeyConstraint("id", name=f"{steps.prefix}witness_pkey"),
        comment="A copy of the epoch that a crash empties (PostgreSQL).",
        prefixes=["UNLOGGED"] if steps.kind == "postgresql" else [],
    )


def create_waiter(steps: Steps) -> None:
    steps.create_table(
        "waiter",
        sa.Column("id", TOKEN, nullable=False, comment="The waiter's own number."),
        sa.Column("lock_name", NAME, nullable=False, comment="The name that it waits for."),
        sa.Column("strategy", STRATEGY, nullable=False, comment="lease or row."),
        sa.Column(
            "owner", LABEL, nullable=False, comment="Who waits: host, process, or what label= says."
        ),
        sa.Column("since", MOMENT, nullable=False, comment="When the wait began."),
        sa.Column(
            "expires_at",
            MOMENT,
            nullable=False,
            comment="When the waiter counts as dead unless it says more.",
        ),
        sa.Column("holds", HOLDS, comment="What it holds meanwhile, to find deadlocks."),
        sa.PrimaryKeyConstraint("id", name=f"{steps.prefix}waiter_pkey"),
        comment="Who waits for a lock.",
    )


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(2, "version")
    steps.drop_column("lock", "waiters")
    for name in ("waiter", "witness", "epoch"):
        steps.drop_table(name)
