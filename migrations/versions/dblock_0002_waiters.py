"""A queue of waiters for each name, and who they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, postgresql

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
HOLDS = sa.Text().with_variant(mysql.TEXT(charset="ascii"), *MYSQL)
MOMENT = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *MYSQL)


def place() -> tuple[str | None, str]:
    """Return the schema and prefix: the defaults where this runs in a history of the user's."""
    options = op.get_context().opts
    return options.get("dblock_schema"), options.get("dblock_prefix", "dblock_")


def upgrade() -> None:
    schema, prefix = place()
    op.add_column(f"{prefix}lock", sa.Column("waiters", QUEUE), schema=schema)
    op.create_table(
        f"{prefix}waiter",
        sa.Column("id", TOKEN, nullable=False),
        sa.Column("lock_name", NAME, nullable=False),
        sa.Column("strategy", STRATEGY, nullable=False),
        sa.Column("owner", LABEL, nullable=False),
        sa.Column("since", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("holds", HOLDS),
        sa.PrimaryKeyConstraint("id", name=f"{prefix}waiter_pkey"),
        schema=schema,
        mysql_engine="InnoDB",
    )
    version = sa.table(f"{prefix}schema", sa.column("version", sa.Integer), schema=schema)
    op.execute(version.update().values(version=op.inline_literal(2)))


def downgrade() -> None:
    schema, prefix = place()
    op.drop_table(f"{prefix}waiter", schema=schema)
    op.drop_column(f"{prefix}lock", "waiters", schema=schema)
    version = sa.table(f"{prefix}schema", sa.column("version", sa.Integer), schema=schema)
    op.execute(version.update().values(version=op.inline_literal(1)))
