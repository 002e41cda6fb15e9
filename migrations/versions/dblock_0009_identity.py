"""The identity of a set of tables, and a primary key for the table that has it.

A transaction of another set of tables is told apart by the identity. It is made by the database
when this runs: two databases that run the same printed statements have different ones.

Servers that replicate may refuse tables without a primary key, or changes to those. Newer tables
have it from ``dblock_0001`` on. An older table of SQLite does without: SQLite cannot add one, and
nothing there asks for it.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from dblock.schema.steps import Steps

revision = "dblock_0009"
down_revision = "dblock_0008"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
TOKEN = sa.String(32).with_variant(
    mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), *MYSQL
)

IDENTITY = {
    "postgresql": "replace(gen_random_uuid()::text, '-', '')",
    "mysql": "@dblock_identity",
    "sqlite": "lower(hex(randomblob(16)))",
}


def upgrade() -> None:
    steps = Steps(op)
    steps.add_key()
    steps.add_column(
        "schema",
        sa.Column("identity", TOKEN, comment="A random number that tells these tables apart."),
    )
    if steps.kind == "mysql":
        # In a variable, which is replicated with its value. By statements, UUID() is not. And by
        # SHA2, because MySQL 9.6 has no MD5 any more.
        steps.execute("SET @dblock_identity = LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 32)")
    steps.execute(
        f"UPDATE {steps.name('schema')} SET identity = {IDENTITY[steps.kind]} "
        "WHERE identity IS NULL"
    )
    steps.done(9)


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(9)
    steps.drop_column("schema", "identity")
