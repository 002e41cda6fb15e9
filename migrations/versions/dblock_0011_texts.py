"""Columns of text rather than varchar, on PostgreSQL.

A comparison of two texts has one operator that fits, PostgreSQL's own. For a varchar there is none,
so whoever may create one in a schema of the search_path could have it run by dblock's statements.
Nothing is rewritten, and no index is built.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

from alembic import op

from dblock.schema.steps import Steps

revision = "dblock_0011"
down_revision = "dblock_0010"
branch_labels = None
depends_on = None

COLUMNS = {
    "lock": ("token", "owner"),
    "once": ("token", "fingerprint"),
    "waiter": ("id", "strategy", "owner"),
    "run": ("owner",),
    "schema": ("identity",),
}


def upgrade() -> None:
    steps = Steps(op)
    if steps.kind == "postgresql":
        for table, columns in COLUMNS.items():
            changes = ", ".join(f"ALTER {column} TYPE text" for column in columns)
            steps.execute(f"ALTER TABLE {steps.name(table)} {changes}")
    steps.done(11)


def downgrade() -> None:
    # The columns stay text, which older code takes as well.
    Steps(op).undo(11)
