"""Retiring names: the rows of unused names are deleted, and fences still grow.

The floor is a fence above which every new row begins. It is on disk before a row with a fence up to
it is deleted, so the procedure may be cut off anywhere. Each statement can be repeated, and does no
harm if it arrives late: the deleting statement itself decides which names are unused.

Values that are as old and whose names have no row are deleted last: no other statement deletes
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands import LookForUnused, PruneValues, RaiseFloor, Retire
from .retry import delete_all, retry_or_raise
from .steps import Procedure

if TYPE_CHECKING:
    from .statements import Statements


def retire(dialect: Statements, idle: float, patience: float, now: float) -> Procedure[int]:
    """Delete the rows of names that were unused for ``idle`` seconds; return how many.

    It goes page by page, each statement in a short transaction of its own.
    """
    after, count = "", 0
    while True:
        look = dialect.query(LookForUnused(after, idle))
        reply = yield from retry_or_raise(dialect, look, None, patience, now)
        page = look.read(reply)
        if page is None:
            yield from delete_all(dialect, dialect.query(PruneValues(idle)), patience, reply.now)
            return count
        if page.fence is not None:
            raised = dialect.query(RaiseFloor(page.fence))
            reply = yield from retry_or_raise(dialect, raised, None, patience, reply.now)
            some = dialect.query(Retire(after, page.last, page.fence, idle))
            reply = yield from retry_or_raise(dialect, some, None, patience, reply.now)
            count += some.read(reply)
        after, now = page.last, reply.now
