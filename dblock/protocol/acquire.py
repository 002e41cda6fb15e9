"""Taking a lease, however long that takes: ask, wait in the way that the database has, ask again.

:class:`.Attempt` asks and settles what became of that; :mod:`.waiting` has the ways to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DBLockError, DeadlockDetected
from .attempt import Attempt
from .deadline import Deadline
from .lease import Held, LeaseRequest, Refused
from .release import give_back, leave
from .steps import Procedure
from .waiting import Waiting, way_to_wait

if TYPE_CHECKING:
    from ..policy import RetryPolicy
    from .statements import Statements
    from .waiters import Waiter


def acquire(
    dialect: Statements,
    request: LeaseRequest,
    policy: RetryPolicy,
    *,
    fair: bool,
    wait: float | None,
    patience: float,
    waiter: Waiter,
    can_wait_in_server: bool = False,
    hot: bool = False,
) -> Procedure[Held | Refused]:
    """Take the lease, waiting up to ``wait`` seconds from the waiter's start.

    ``patience`` bounds how long an unreachable database is tried, and how long an attempt whose
    reply was lost is looked for. ``fair`` keeps the order of arrival in any case.
    ``can_wait_in_server`` says that there may be a connection for that; ``hot``, that the name was
    waited for a moment ago.
    """
    attempt = Attempt(dialect, request, Deadline(waiter.start, wait, patience, waiter.start))
    waiting = way_to_wait(
        attempt, policy, waiter, fair=fair, can_wait_in_server=can_wait_in_server, hot=hot
    )
    try:
        held = yield from _take(attempt, waiting)
    except DeadlockDetected:
        yield from _give_up(attempt)
        raise
    except DBLockError:
        yield from leave(dialect, request, attempt.deadline.now)
        raise
    if held is not None:
        return held
    yield from _give_up(attempt)
    if attempt.timed_out is not None and attempt.seen.position.free:
        raise attempt.timed_out
    return Refused(attempt.seen.state, attempt.closed)


def _take(attempt: Attempt, waiting: Waiting) -> Procedure[Held | None]:
    """Ask until it is held, or the deadline or the policy ends that."""
    if attempt.deadline.wait != 0 and not (yield from waiting.begin()):
        yield from attempt.look(None)
        return None
    while True:
        held = yield from waiting.ask()
        if held is not None:
            return held
        if not (yield from waiting.rest()):
            return None


def _give_up(attempt: Attempt) -> Procedure[None]:
    yield from leave(attempt.dialect, attempt.request, attempt.deadline.now)
    if attempt.doubt is not None:  # one that is still under way must not outlive this
        yield from give_back(attempt.dialect, attempt.request, attempt.deadline.now)
