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
    "lock": {"token": 32, "owner": 255},
    "once": {"token": 32, "fingerprint": 64},
    "waiter": {"id": 32, "strategy": 8, "owner": 255},
    "run": {"owner": 255},
    "schema": {"identity": 32},
}


def set_types(steps: Steps, *, text: bool) -> None:
    if steps.kind != "postgresql":
        return
    for table, columns in COLUMNS.items():
        for column, length in columns.items():
            steps.set_type(table, column, "text" if text else f"varchar({length})")


def upgrade() -> None:
    steps = Steps(op)
    set_types(steps, text=True)
    steps.done(11)


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(11)
    set_types(steps, text=False)
