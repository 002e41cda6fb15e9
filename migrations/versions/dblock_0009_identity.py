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

revision = "dblock_0009"
down_revision = "dblock_0008"
branch_labels = None
depends_on = None

MYSQL = ("mysql", "mariadb")
TOKEN = sa.String(32).with_variant(
    mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), *MYSQL
)

PRIMARY_KEY = {
    # Where there is one, it is made anew: PostgreSQL has no IF NOT EXISTS for it.
    "postgresql": "ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {key}, "
    "ADD CONSTRAINT {key} PRIMARY KEY (version)",
    "mysql": "ALTER TABLE {table} ADD PRIMARY KEY IF NOT EXISTS (version)",
}
IDENTITY = {
    "postgresql": "replace(gen_random_uuid()::text, '-', '')",
    "mysql": "@dblock_identity",
    "sqlite": "lower(hex(randomblob(16)))",
}


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
    dialect = op.get_context().dialect
    kind = "mysql" if dialect.name in MYSQL else dialect.name
    preparer = dialect.identifier_preparer
    table = preparer.format_table(sa.table(f"{prefix}schema", schema=schema))
    if kind in PRIMARY_KEY:
        key = preparer.quote(f"{prefix}schema_pkey")
        op.execute(PRIMARY_KEY[kind].format(table=table, key=key))
    op.add_column(
        f"{prefix}schema",
        sa.Column("identity", TOKEN, comment="A random number that tells these tables apart."),
        schema=schema,
        if_not_exists=(kind == "mysql") or None,
    )
    if kind == "mysql":
        # In a variable, which is replicated with its value. By statements, UUID() is not.
        op.execute("SET @dblock_identity = MD5(CONCAT(UUID(), RAND()))")
    op.execute(f"UPDATE {table} SET identity = {IDENTITY[kind]} WHERE identity IS NULL")
    set_revision(9)


def downgrade() -> None:
    schema, prefix = place()
    again = op.get_context().dialect.name in MYSQL or None
    op.drop_column(f"{prefix}schema", "identity", schema=schema, if_exists=again)
    set_revision(8)
