"""The calls that are made once: their keys, what they were for, and their results.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

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
        f"{prefix}once",
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
        sa.PrimaryKeyConstraint("idempotency_key", name=f"{prefix}once_pkey"),
        if_not_exists=op.get_context().dialect.name in MYSQL or None,
        comment="Calls that are made once, and what came of them.",
        schema=schema,
        mysql_engine="InnoDB",
    )
    set_revision(5)


def downgrade() -> None:
    schema, prefix = place()
    again = op.get_context().dialect.name in MYSQL or None
    op.drop_table(f"{prefix}once", schema=schema, if_exists=again)
    set_revision(4)
