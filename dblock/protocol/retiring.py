"""Retiring names: the rows of those that nobody uses any more are deleted, and fences still grow.

The floor is a fence above which every new row begins. It is on disk before the first row with that
fence is deleted, so it does not matter where this ends. Each statement can be repeated, and comes
late without harm: what is unused is decided by the one that deletes.

The values of such names go last, when they are as old: those of no name have no other end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .retry import delete_all, retry_or_raise
from .steps import Procedure

if TYPE_CHECKING:
    from .statements import Statements


def retire(dialect: Statements, idle: float, patience: float, now: float) -> Procedure[int]:
    """Delete the rows of names that were not used for ``idle`` seconds; return how many.

    Page by page, each statement in a short transaction of its own.
    """
    after, count = "", 0
    while True:
        look = dialect.look_for_unused(after, idle)
        reply = yield from retry_or_raise(dialect, look, None, patience, now)
        page = look.read(reply)
        if page is None:
            yield from delete_all(dialect, dialect.prune_values(idle), patience, reply.now)
            return count
        if page.fence is not None:
            raised = dialect.raise_floor(page.fence)
            reply = yield from retry_or_raise(dialect, raised, None, patience, reply.now)
            some = dialect.retire(after, page.last, page.fence, idle)
            reply = yield from retry_or_raise(dialect, some, None, patience, reply.now)
            count += some.read(reply)
        after, now = page.last, reply.now
