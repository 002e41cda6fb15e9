"""A long queue stays in its row, uncompressed, on PostgreSQL.

Else the server would compress the queue of about 25 waiters, and unpack it, in each statement.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

from alembic import op

from dblock.schema.steps import Steps

revision = "dblock_0008"
down_revision = "dblock_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    steps = Steps(op)
    if steps.kind == "postgresql":
        # As long as a page has room for a row.
        steps.execute(f"ALTER TABLE {steps.name('lock')} SET (toast_tuple_target = 8160)")
    steps.done(8)


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(8)
    if steps.kind == "postgresql":
        steps.execute(f"ALTER TABLE IF EXISTS {steps.name('lock')} RESET (toast_tuple_target)")
