"""Beliefs: an observer learns at once when a holder begins or ceases to count on a lock.

This is not for users: their :mod:`.events` may come a little later. It is for tests, which check
that no two holders count on one lock at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from .term import Term


class Change(StrEnum):
    """The change of a belief. After GRANTED and RENEWED the holder counts on the lock; after the
    others it does not."""

    #: The observer is called before the caller can act on the lock.
    GRANTED = "granted"
    #: The hold has another term: a later one, or an earlier one if the holder asks for that.
    RENEWED = "renewed"
    #: The observer is called before the releasing statement is sent, whatever its outcome is.
    RELEASED = "released"
    LOST = "lost"
    #: The lock was granted to a call that was interrupted, and is released.
    ABANDONED = "abandoned"


class Belief(NamedTuple):
    """The belief that a lock is held. For a lease it ends with the term, without another change.

    A reader has its own token here. A row lock has neither token, fence nor term. A row lock in the
    user's transaction ends with that transaction, without another change.
    """

    strategy: str
    name: str
    token: str | None = None
    fence: int | None = None
    term: Term | None = None


#: Called in the thread in which the belief changes, perhaps under the process-wide lock. So it must
#: not block.
Observer = Callable[[Belief, Change], object]
