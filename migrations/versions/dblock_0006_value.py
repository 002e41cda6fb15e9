"""What names carry beside their leases: the value of a leader, the limit of a semaphore.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

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


def place() -> tuple[str | None, str]:
    """Return the schema and prefix: the defaults where this runs in a history of the user's."""
    options = op.get_context().opts
    return options.get("dblock_schema"), options.get("dblock_prefix", "dblock_")


def set_revision(revision: int) -> None:
    schema, prefix = place()
    table = sa.table(f"{prefix}schema", sa.column("revision", sa.Integer()), schema=schema)
    op.execute(table.update().values(revision=op.inline_literal(revision)))


def upgrade() -> None:
    schema, prefix = place()
    op.create_table(
        f"{prefix}value",
        sa.Column("lock_name", NAME, nullable=False, comment="The name."),
        sa.Column(
            "fence",
            sa.BigInteger,
            nullable=False,
            comment="The fence of the hold that wrote the value; 0 if none did.",
        ),
        sa.Column("value", VALUE, comment="The value, as JSON."),
        sa.Column("written_at", MOMENT, nullable=False, comment="When it was written."),
        sa.PrimaryKeyConstraint("lock_name", name=f"{prefix}value_pkey"),
        if_not_exists=op.get_context().dialect.name in MYSQL or None,
        comment="Values of names: what a leader proclaims, the limit of a semaphore.",
        schema=schema,
        mysql_engine="InnoDB",
    )
    set_revision(6)


def downgrade() -> None:
    schema, prefix = place()
    again = op.get_context().dialect.name in MYSQL or None
    op.drop_table(f"{prefix}value", schema=schema, if_exists=again)
    set_revision(5)
