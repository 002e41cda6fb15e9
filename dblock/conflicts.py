"""Units of work that run again when another transaction came first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.orm.exc import StaleDataError
from tenacity import stop_after_attempt

from .decorating import check_runnable, wraps
from .dialects import ADAPTERS, Adapter
from .errors import Conflict, DeadlockDetected
from .events import Kind, tell
from .io.driver_errors import first_line
from .policy import RetryPolicy, Timeouts
from .protocol.faults import Fault
from .system import clock

P = ParamSpec("P")
T = TypeVar("T")

# The exceptions that may be conflicts.
CONFLICTS = (StaleDataError, Conflict, DeadlockDetected, DBAPIError)
_AGAIN = frozenset({Fault.DEADLOCK, Fault.SERIALIZATION, Fault.ALTERED})


def retry_on_conflict(
    sessions: sessionmaker[Any] | Callable[[], Session], *, retry: RetryPolicy | None = None
) -> Callable[[Callable[Concatenate[Session, P], T]], Callable[P, T]]:
    """Decorate a unit of work: run it in its own transaction, and again after a conflict.

    The function gets a new session from ``sessions`` as its first argument. When it returns, the
    transaction commits. After a conflict the function runs again, in a new transaction. These are
    conflicts: a stale ``version_id_col``, a serialization failure, a deadlock, and dblock's own
    Conflict and DeadlockDetected. A lost reply to the commit is not a conflict, because the server
    may have committed.

    The function's effects outside the database happen once for each try. Raises Conflict when
    ``retry`` gives up, by default after five tries.
    """

    def decorate(function: Callable[Concatenate[Session, P], T]) -> Callable[P, T]:
        @wraps(check_runnable(function, "after the commit"))
        def again(*args: P.args, **kwargs: P.kwargs) -> T:
            tries = Tries(again.__qualname__, retry)
            while True:
                try:
                    with sessions() as session, session.begin():
                        return function(session, *args, **kwargs)
                except CONFLICTS as error:
                    sleep = tries.sleep_after(error)
                time.sleep(sleep)

        return again

    return decorate


class Tries:
    """The tries of one unit of work."""

    def __init__(
        self,
        name: str,
        retry: RetryPolicy | None,
        adapters: Mapping[str, type[Adapter]] = ADAPTERS,
    ) -> None:
        self._name = name
        self._policy = retry if retry is not None else RetryPolicy(stop=stop_after_attempt(5))
        self._adapters = adapters.values()
        self._start = clock.now()
        self._number = 0

    def sleep_after(self, error: Exception) -> float:
        """Return how many seconds to sleep after a conflict. Raise an error that is no conflict;
        raise Conflict when the policy's tries are used up."""
        if not self._is_conflict(error):
            raise error
        self._number += 1
        elapsed = clock.now() - self._start
        tell(Kind.CONFLICT, "optimistic", self._name, elapsed, error)
        sleep = self._policy.sleep_after(self._name, self._number, elapsed, None)
        if sleep is None:
            tries = "the only try" if self._number == 1 else f"each of {self._number} tries"
            raise Conflict(
                f"another transaction came before {self._name} in {tries}: {first_line(error)}"
            ) from error
        return sleep

    def _is_conflict(self, error: Exception) -> bool:
        """Whether the same unit of work may succeed in a new transaction."""
        if not isinstance(error, DBAPIError):
            return True
        cause = error.orig
        if cause is None:
            return False
        drivers = (one for kind in self._adapters for one in kind(Timeouts()).borrowable)
        return any(driver.classify(cause) in _AGAIN for driver in drivers)
