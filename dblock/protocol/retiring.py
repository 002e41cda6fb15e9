"""Retiring names: the rows of unused names are deleted, and fences still grow.

The floor is a fence above which every new row begins. It is on disk before a row with a fence up to
it is deleted, so the procedure may be cut off anywhere. Each statement can be repeated, and does no
harm if it arrives late: the deleting statement itself decides which names are unused.

Values that are as old and whose names have no row are deleted last: no other statement deletes
them.
"""

from __future__ import annotations

from .commands import LookForUnused, PruneValues, RaiseFloor, Retire
from .exchange import Exchange
from .steps import Procedure


def retire(exchange: Exchange, idle: float) -> Procedure[int]:
    """Delete the rows of names that were unused for ``idle`` seconds; return how many.

    It goes page by page, each statement in a short transaction of its own.
    """
    after, count = "", 0
    while True:
        page = (yield from exchange.ask_or_explain(LookForUnused(after, idle))).answer
        if page is None:
            yield from exchange.delete_all(PruneValues(idle))
            return count
        if page.fence is not None:
            yield from exchange.ask_or_explain(RaiseFloor(page.fence))
            some = Retire(after, page.last, page.fence, idle)
            count += (yield from exchange.ask_or_explain(some)).answer
        after = page.last
