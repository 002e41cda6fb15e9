"""The comment of the queue's column: every database has a queue, not only PostgreSQL.

Only the comment is changed: no row is read or written.

The version stays: code that knows nothing of this works on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from dblock.schema.steps import Steps

revision = "dblock_0012"
down_revision = "dblock_0011"
branch_labels = None
depends_on = None

QUEUE = sa.Text().with_variant(postgresql.ARRAY(sa.Text()), "postgresql")
COMMENT = "Tickets of the queue, first come first."


def upgrade() -> None:
    steps = Steps(op)
    steps.comment("lock", sa.Column("waiters", QUEUE, comment=COMMENT))
    steps.done(12)


def downgrade() -> None:
    # The comment stays, which is true of older code as well.
    Steps(op).undo(12)
