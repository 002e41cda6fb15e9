"""How a refused lease waits where the database keeps a queue of waiters in the name's row.

::

    Stand ── the first of this process ── join the queue ── Await ── called ──> try again
                                              ^               │
                                              └── not in it ──┴── looked ──> free for us? try again

A release calls the first in the queue and nobody else, and keeps the name for it for a moment:
:data:`GRACE`. Then the second may take it, a moment later the third, and so on; so a waiter that
has died, or cannot be called, stops nobody for long. Everybody looks now and then, since a call can
be lost.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from .faults import Trouble
from .state import LockState, Place
from .steps import Protocol, Run

if TYPE_CHECKING:
    from ..dialects import Dialect

#: How long a free name is kept for each one in the queue, in seconds, before the next may have it.
GRACE = 0.4
# Between two looks of one who is not called: those further back look less often.
LOOK, LOOK_MORE, LOOK_MAX = 2.5, 0.5, 10.0


def nap(state: LockState | None, place: Place, jitter: float) -> float:
    """Return how long to wait for the call before looking: until it may be our turn anyway."""
    before = place.before or 0
    look = min(LOOK + LOOK_MORE * before, LOOK_MAX) + jitter
    if state is None or state.remaining is None:
        return look
    return min(look, max(0.001, state.remaining + before * GRACE))


def leave(dialect: Dialect, name: str, ticket: str | None) -> Protocol[None]:
    """Leave the queue; a call that came too late goes to the next. If it fails, that comes anyway,
    after :data:`GRACE`."""
    if ticket is not None:
        with contextlib.suppress(Trouble):
            yield Run(dialect.leave(name, ticket))
