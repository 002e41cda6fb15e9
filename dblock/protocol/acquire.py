"""Taking a lease with waiting: ask, wait with the database's strategy, ask again.

:class:`.Attempt` asks and settles the outcome; :mod:`.waiting` has the waiting strategies.
"""

from __future__ import annotations

from ..errors import DBLockError, OutcomeUnknown
from .attempt import Attempt
from .exchange import Exchange
from .lease import Held, LeaseRequest, Refused
from .overview import with_row_lock
from .release import leave, renounce, return_all
from .sharing import SharedAttempt
from .steps import Procedure
from .waiting import Waiting, WaitOptions, way_to_wait


def acquire(
    exchange: Exchange,
    request: LeaseRequest,
    options: WaitOptions,
    *,
    hot: bool = False,
    look_first: bool = False,
) -> Procedure[Held | Refused]:
    """Take the lease, waiting until the deadline.

    * ``hot``: wait before the first try, since others are before this one in the local queue, or
      callers waited for the name a moment ago.
    * ``look_first``: read the name before the first try. Others held it the last time, and most
      likely still do: a read finds that out with one statement, a refused try takes two.
    """
    wait = exchange.wait
    attempt = (SharedAttempt if request.shares else Attempt)(exchange, request)
    # A refused reader reads the name, since it may share it. A waiter in the server reads it to
    # know how long to wait.
    if wait != 0 and not request.shares and (exchange.dialect.traits.can_notify or options.fair):
        attempt.after_refusal = "join"
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
    waiting = way_to_wait(attempt, options, hot=hot)
    try:
        return (yield from _wait(attempt, waiting))
    except DBLockError as error:
        yield from waiting.waiter.failed(error)
        raise


def _wait(attempt: Attempt, waiting: Waiting) -> Procedure[Held | Refused]:
    """Ask until the lease is held, or refused for good; then leave the queue."""
    begin = waiting.rest if waiting.number else waiting.begin
    try:
        going = yield from begin()
        while going:
            held = yield from waiting.ask()
            if held is not None:
                return held
            going = yield from waiting.rest()
    except OutcomeUnknown:
        yield from leave(attempt.exchange, attempt.request)
        raise
    except DBLockError:
        yield from _give_up(attempt)
        raise
    refused = yield from _refuse(attempt)
    return (yield from with_row_lock(attempt.exchange, refused))


def _refuse(attempt: Attempt) -> Procedure[Refused]:
    yield from _give_up(attempt)
    if attempt.timed_out is not None and attempt.seen.position.free:
        raise attempt.told(attempt.timed_out)
    return Refused(attempt.seen.state, attempt.closed)


def _give_up(attempt: Attempt) -> Procedure[None]:
    """Leave the queue, and release the name if it may have been granted. Raises OutcomeUnknown if
    the attempt may hold the name anyway."""
    exchange, request = attempt.exchange, attempt.request
    until = exchange.now + exchange.dialect.timing.leaving
    prevented = yield from leave(exchange, request)
    if attempt.doubt is not None:  # a try that is still under way must not become a hold
        renounce(request, lost=True)
    prevented = (yield from return_all(exchange, request, until - exchange.now)) or prevented
    if prevented is not None:
        raise attempt.unknown(prevented) from prevented
