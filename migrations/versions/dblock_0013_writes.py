"""A number in the guard's row, which locks and guards raise in a Galera cluster (MariaDB).

The nodes of a cluster do not see each other's row locks. They refuse one of two transactions that
have written the same row. So there is something to write.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from dblock.schema.steps import Steps

revision = "dblock_0013"
down_revision = "dblock_0012"
branch_labels = None
depends_on = None

COMMENT = "How often locks and guards have written this row, in a Galera cluster."


def upgrade() -> None:
    steps = Steps(op)
    steps.add_column("guard", sa.Column("writes", sa.BigInteger, comment=COMMENT))
    steps.done(13)


def downgrade() -> None:
    steps = Steps(op)
    steps.undo(13)
    steps.drop_column("guard", "writes")
