"""Triggers that tell when rows come from another server (PostgreSQL).

Logical replication brings rows that another server has granted, and the witness here does not vouch
for those. In sessions that are no replication's the triggers are not fired, but for the epoch, when
its row is copied.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

from alembic import op

from dblock.dialects.postgresql.arrivals import functions, triggers
from dblock.schema.steps import Steps

revision = "dblock_0010"
down_revision = "dblock_0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    steps = Steps(op)
    if steps.kind == "postgresql":
        for table in ("lock", "epoch"):
            for statement in triggers(table, steps.schema, steps.prefix):
                steps.execute(statement)
    steps.done(10)


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(10)
    if steps.kind == "postgresql":
        for function in functions(steps.schema, steps.prefix):
            steps.execute(f"DROP FUNCTION IF EXISTS {function}() CASCADE")
