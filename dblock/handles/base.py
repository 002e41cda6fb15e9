"""The base classes of all locks' handles: threading.Lock's methods, ``with``, and decorating."""

from __future__ import annotations

import contextlib
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, NoReturn, ParamSpec, Self, TypeVar

from ..arguments import WAIT_MAX, Seconds, check_wait
from ..decorating import check_runnable, wraps
from ..errors import DBLockError, NotAcquired
from ..events import Kind, outcome, tell, wanted
from ..io.process_lock import at_the_end, take_over

if TYPE_CHECKING:
    from ..holding.database import Database

logger = logging.getLogger("dblock")

P = ParamSpec("P")
T = TypeVar("T")


class Releasable(ABC):
    """A lock that its holder releases, by a call or at the end of a ``with`` block."""

    def __init__(self, wait: Seconds | None, database: Database) -> None:
        self.wait = None if wait is None else check_wait(wait)
        self._database = database

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def release(self) -> None: ...

    def _leave(self) -> None:
        """End the ``with`` block's hold."""
        self.release()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._leave()
        except DBLockError as failure:
            if error is None:
                raise
            # The body's own error goes on, with a note about the loss, unless it is the loss.
            if failure is not error:
                error.add_note(f"{type(failure).__name__} at the end of {self!r}: {failure}")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} belongs to this process, and you cannot send it to another: only its holder "
            "may use a hold. Make Locks there, from the URL"
        )


class Handle(Releasable):
    """A lock that can be acquired and released."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock. Return True if you hold it now, False if not in time.

        The signature is the same as in threading.Lock. ``blocking=False`` tries once and does not
        wait. ``timeout`` is in seconds; -1 means the ``wait`` that the lock was made with.
        """
        return self._acquire(check_acquire(blocking, timeout, self.wait)) is None

    @abstractmethod
    def _acquire(self, wait: float | None) -> NotAcquired | None:
        """Take the lock, waiting up to ``wait`` seconds; return the refusal, which the caller may
        raise."""

    def __enter__(self) -> Self:
        refusal = self._acquire(self.wait)
        if refusal is not None:
            raise refusal
        return self

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function: each call takes the lock, or raises NotAcquired.

        Raises TypeError for coroutine and generator functions: they return before their body runs.
        """

        @wraps(check_runnable(function))
        def locked(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return function(*args, **kwargs)

        return locked

    def _skipping(self, function: Callable[P, T]) -> Callable[P, T | None]:
        """Decorate a function: a call that does not get the lock at once does nothing."""

        @wraps(check_runnable(function))
        def skipping(*args: P.args, **kwargs: P.kwargs) -> T | None:
            refusal = self._acquire(0)
            if refusal is not None:
                log_skipped(function, refusal)
                return None
            with contextlib.ExitStack() as taken:  # `with self` would take the lock a second time
                taken.push(self)
                return function(*args, **kwargs)

        return skipping


class Named:
    """A handle for one name, which reports events."""

    strategy: ClassVar[str]
    name: str
    _database: Database

    def _tell(
        self, kind: Kind, start: float, error: Exception | None = None, *, again: bool = False
    ) -> None:
        if wanted(kind):
            seconds = self._database.runtime.now() - start
            tell(kind, self.strategy, self.name, seconds, error, again=again)


class SingleHandle(Named, Handle):
    """The lock of one name, which callers take. Each attempt is an event."""

    #: The owner and the fence of the holder that the last attempt was refused for.
    _refused_for: tuple[str | None, int] | None = None

    def _acquire(self, wait: float | None) -> NotAcquired | None:
        """Take the lock, waiting up to ``wait`` seconds; return the refusal, if there is one."""
        if at_the_end():
            take_over()
        start = self._database.runtime.now()
        try:
            refusal = self._try_within(wait)
        except DBLockError as error:
            self._tell(outcome(error), start, error)
            raise
        if refusal is not None:
            holder = refusal.holder
            held_by = None if holder is None else (holder.owner, holder.fence)
            again = held_by is not None and held_by == self._refused_for
            self._refused_for = held_by
            self._tell(Kind.REFUSED, start, refusal, again=again)
        return refusal

    @abstractmethod
    def _try_within(self, wait: float | None) -> NotAcquired | None: ...


class Silent(Named):
    """A handle that another handle uses inside: its attempts and holds are no events."""

    def _tell(self, *event: object, **how: object) -> None:
        pass


def log_skipped(function: Callable[..., object], refusal: NotAcquired) -> None:
    """Log that a call does nothing, and which lock was not free."""
    logger.info("%s was skipped: %s", getattr(function, "__qualname__", function), refusal)


def check_acquire(blocking: object, timeout: object, wait: float | None) -> float | None:
    """Return the wait that ``acquire(blocking, timeout)`` asks for.

    The arguments and their errors are the same as for :meth:`threading.Lock.acquire`. A timeout of
    -1 means the wait that the lock was made with.
    """
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"a timeout is a number of seconds, not {type(timeout).__name__}")
    if not blocking:
        if timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        return 0.0
    if timeout == -1:
        return wait
    if math.isnan(timeout):
        raise ValueError("a timeout cannot be NaN")
    if timeout < 0:
        raise ValueError(f"a timeout is -1 or not negative: {timeout!r}")
    if timeout > WAIT_MAX:
        raise OverflowError(f"a timeout is at most {WAIT_MAX:.0f} seconds: {timeout!r}")
    return float(timeout)
