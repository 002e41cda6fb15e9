"""What a holder believes, told at the moment it begins to, or stops.

Not for users, whose :mod:`.events` are told when there is time for it: this is for whoever checks
that no two believe at once.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from .term import Term


class Change(StrEnum):
    """What became of a belief. After any but the first two there is none."""

    #: Told before anybody can act on it.
    GRANTED = "granted"
    #: It has another term: a later one, or, where the holder asks for that, an earlier one.
    RENEWED = "renewed"
    #: Told before the statement that gives it back is sent, whatever comes of that.
    RELEASED = "released"
    LOST = "lost"
    #: It was granted to a call that was interrupted, and is given back.
    ABANDONED = "abandoned"


class Belief(NamedTuple):
    """That a lock is held: of a lease until its term is over, also where nobody tells of that.

    The token of a reader is its own. A row lock has neither token, fence nor term. One in a
    transaction of the user's ends with that, of which nobody is told here.
    """

    strategy: str
    name: str
    token: str | None = None
    fence: int | None = None
    term: Term | None = None


#: It is called where the belief changes, perhaps under the process-wide lock: it does not wait.
Observer = Callable[[Belief, Change], object]
