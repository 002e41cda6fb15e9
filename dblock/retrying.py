"""Units of work that are run again when another transaction came first."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.orm.exc import StaleDataError
from tenacity import stop_after_attempt

from . import clock
from .connections import first_line
from .dialects import DIALECTS
from .errors import Conflict, DeadlockDetected
from .events import Kind, tell
from .policy import RetryPolicy
from .protocol.faults import Fault
from .timeouts import Timeouts

P = ParamSpec("P")
T = TypeVar("T")

_AGAIN = frozenset({Fault.DEADLOCK, Fault.SERIALIZATION})


def retry_on_conflict(
    sessions: sessionmaker[Any] | Callable[[], Session], *, retry: RetryPolicy | None = None
) -> Callable[[Callable[Concatenate[Session, P], T]], Callable[P, T]]:
    """Decorate a unit of work, to be run in a transaction of its own, and again on a conflict.

    The function gets a new session first, from ``sessions``; what it does is committed when it
    returns. A conflict is what another transaction caused and a new one may not meet: a stale
    ``version_id_col``, a serialization failure, a deadlock, dblock's own Conflict and
    DeadlockDetected. A lost reply to the commit is none, since it may have been committed.

    What is not in the database is done once for each try. Raises Conflict when ``retry`` gives up:
    after five tries, unless it says otherwise.
    """
    policy = retry if retry is not None else RetryPolicy(stop=stop_after_attempt(5))

    def decorate(function: Callable[Concatenate[Session, P], T]) -> Callable[P, T]:
        @functools.wraps(function)
        def again(*args: P.args, **kwargs: P.kwargs) -> T:
            name = function.__qualname__
            start, number = clock.now(), 0
            while True:
                number += 1
                try:
                    with sessions() as session, session.begin():
                        return function(session, *args, **kwargs)
                except (StaleDataError, Conflict, DeadlockDetected, DBAPIError) as error:
                    if not is_conflict(error):
                        raise
                    elapsed = clock.now() - start
                    tell(Kind.CONFLICT, "optimistic", name, elapsed, error)
                    sleep = policy.sleep_after(name, number, elapsed, None)
                    if sleep is None:
                        raise Conflict(
                            f"{name} met others' changes in each of {number} tries: "
                            f"{first_line(error)}"
                        ) from error
                time.sleep(sleep)

        return again

    return decorate


def is_conflict(error: BaseException) -> bool:
    """Return whether the same unit of work may succeed in a new transaction."""
    if isinstance(error, StaleDataError | Conflict | DeadlockDetected):
        return True
    if not isinstance(error, DBAPIError) or error.orig is None:
        return False
    faults = (kind(None, "", Timeouts()).classify(error.orig) for kind in DIALECTS.values())
    return any(fault in _AGAIN for fault in faults)
