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
        look = LookForUnused(after, idle)
        reply = yield from retry_or_raise(dialect, look, None, patience, now)
        page, now = reply.answer, reply.now
        if page is None:
            yield from delete_all(dialect, PruneValues(idle), patience, now)
            return count
        if page.fence is not None:
            raised = RaiseFloor(page.fence)
            now = (yield from retry_or_raise(dialect, raised, None, patience, now)).now
            some = Retire(after, page.last, page.fence, idle)
            retired = yield from retry_or_raise(dialect, some, None, patience, now)
            count, now = count + retired.answer, retired.now
        after = page.last
