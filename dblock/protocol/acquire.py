"""Taking a lease, however long that takes: ask, wait in the way that the database has, ask again.

:class:`.Attempt` asks and settles what became of that; :mod:`.waiting` has the ways to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DBLockError, OutcomeUnknown
from .attempt import Attempt
from .deadline import Deadline
from .lease import Held, LeaseRequest, Refused
from .overview import with_row_lock
from .release import leave, renounce, return_all
from .sharing import SharedAttempt
from .steps import Procedure
from .waiting import Waiting, way_to_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ..policy import RetryPolicy
    from .statements import Statements
    from .waiters import Waiter


def acquire(
    dialect: Statements,
    request: LeaseRequest,
    policy: RetryPolicy,
    *,
    fair: bool,
    start: float,
    wait: float | None,
    patience: float,
    line: Hashable,
    waiter: Callable[[], Waiter],
    can_wait_in_server: bool = False,
    hot: bool = False,
    look_first: bool = False,
) -> Procedure[Held | Refused]:
    """Take the lease, waiting up to ``wait`` seconds from ``start``.

    ``patience`` bounds how long an unreachable database is tried, and how long an attempt whose
    reply was lost is looked for. ``fair`` keeps the order of arrival in any case. ``line`` is that
    of this process's waiters, ``waiter`` makes the one that others see: nothing of waiting is there
    before the first refusal. ``can_wait_in_server`` says that there may be a connection for that;
    ``hot``, that others are before it in that line, or that the name was waited for a moment ago,
    so that the first thing is to wait; ``look_first``, that others had it the last time, and have
    it most likely still, which is one statement to find out where a refused try is two.
    """
    kind = SharedAttempt if request.shares else Attempt
    attempt = kind(dialect, request, Deadline(start, wait, patience, start))
    # A reader looks: it may share the name. A waiter in the server looks for how long to wait.
    attempt.joins_next = wait != 0 and not request.shares and (dialect.can_notify or fair)
    if look_first:
        yield from attempt.look(None)
        if wait == 0 and not attempt.promising:
            return Refused(attempt.seen.state)
    if not hot:
        held = yield from attempt.run(None)
        if held is not None:
            return held
        if wait == 0:
            return (yield from _refuse(attempt))
    waiting = way_to_wait(
        attempt,
        policy,
        waiter(),
        line,
        fair=fair,
        can_wait_in_server=can_wait_in_server,
        hot=hot,
    )
    return (yield from waiting.waiter.during(_wait(attempt, waiting)))


def _wait(attempt: Attempt, waiting: Waiting) -> Procedure[Held | Refused]:
    """Ask until it is held, or refused for good, and leave the queue then."""
    try:
        held = yield from _take(attempt, waiting)
    except OutcomeUnknown:
        yield from leave(attempt.dialect, attempt.request, attempt.deadline.now)
        raise
    except DBLockError:
        yield from _give_up(attempt)
        raise
    if held is not None:
        return held
    refused = yield from _refuse(attempt)
    return (yield from with_row_lock(attempt.dialect, refused, attempt.deadline.now))


def _take(attempt: Attempt, waiting: Waiting) -> Procedure[Held | None]:
    """Ask until it is held, or the deadline or the policy ends that."""
    if waiting.number == 0:  # it was not asked for yet
        if not (yield from waiting.begin()):
            yield from attempt.look(None)
            return None
        held = yield from waiting.ask()
        if held is not None:
            return held
    while (yield from waiting.rest()):
        held = yield from waiting.ask()
        if held is not None:
            return held
    return None


def _refuse(attempt: Attempt) -> Procedure[Refused]:
    yield from _give_up(attempt)
    if attempt.timed_out is not None and attempt.seen.position.free:
        raise attempt.told(attempt.timed_out)
    return Refused(attempt.seen.state, attempt.closed)


def _give_up(attempt: Attempt) -> Procedure[None]:
    """Leave nothing behind. Raises OutcomeUnknown where it may have got the name all the same."""
    dialect, request, deadline = attempt.dialect, attempt.request, attempt.deadline
    prevented = yield from leave(dialect, request, deadline.now)
    if attempt.doubt is not None:  # one that is still under way must not outlive this
        renounce(request)
    prevented = (yield from return_all(dialect, request, deadline.now)) or prevented
    if prevented is not None:
        raise attempt.unknown(prevented) from prevented
