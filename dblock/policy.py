"""When to try again, with tenacity's strategies under an exact deadline; and timeouts."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from .arguments import seconds

# tenacity imports parts of asyncio, so dblock imports it only for users of its strategies.
if TYPE_CHECKING:
    from tenacity import RetryCallState
    from tenacity.stop import StopBaseT
    from tenacity.wait import WaitBaseT

# The usual sleep: from LEAST to a bound that doubles with every try, in seconds.
LEAST, FIRST, MOST = 0.001, 0.02, 1.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """The argument of a ``before_sleep`` hook.

    ``name`` is the lock's name, ``number`` the number of the failed try, from 1. ``elapsed`` is the
    time since the first try began, and ``sleep`` the time until the next try, both in seconds.
    """

    name: str
    number: int
    elapsed: float
    sleep: float


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How dblock repeats a refused try.

    ``wait`` and ``stop`` are tenacity strategies (``wait_fixed(1)``, ``stop_after_attempt(4) |
    stop_after_delay(30)``, or your own callable). ``stop`` applies in addition to the deadline that
    ``wait=`` or ``timeout=`` sets. dblock cuts a sleep short so that it makes the last try at the
    deadline, not after it. A row lock's wait in the server's queue counts as one try, no matter how
    long it takes: limit it by the deadline. dblock calls ``before_sleep`` with an :class:`Attempt`
    before each sleep.

    By default dblock sleeps with full jitter: a random time from 0 to a limit that doubles with
    each try, at most 1 s. So waiters do not move in step: see Brooker, "Exponential Backoff And
    Jitter" (AWS, 2015). Only the deadline ends the default.
    """

    wait: WaitBaseT | None = None
    stop: StopBaseT | None = None
    before_sleep: Callable[[Attempt], None] | None = None
    _random: Callable[[], float] = field(default=random.random, repr=False, compare=False)

    @property
    def endless(self) -> bool:
        """Whether only the deadline ends it.

        If so, a waiter that will be notified in its turn does not have to try before.
        """
        if self.stop is None:
            return True
        from tenacity import stop_never

        return self.stop is stop_never

    @classmethod
    def textbook(cls) -> RetryPolicy:
        """Four tries, one second apart."""
        from tenacity import stop_after_attempt, wait_fixed

        return cls(wait=wait_fixed(1), stop=stop_after_attempt(4))

    def drawing(self, random: Callable[[], float]) -> Self:
        """Return the same policy, but draw its jitter with ``random``, a number from 0 to 1."""
        return replace(self, _random=random)

    @property
    def usual(self) -> bool:
        """Whether it has the default times and number of sleeps."""
        return self.wait is None and self.endless

    def sleep_after(
        self,
        name: str,
        number: int,
        elapsed: float,
        left: float | None,
        *,
        share: float = 1.0,
        most: float = math.inf,
    ) -> float | None:
        """Return how many seconds to sleep after try ``number``, or None to give up.

        ``elapsed`` is the time since the first try began, ``left`` the time to the deadline, None
        if there is none. If there is reason to hurry, the sleep is only a ``share`` of the policy's
        sleep, and at most ``most`` seconds.
        """
        if left is not None and left <= 0:
            return None
        if self.stop is not None and self.stop(_call_state(number, elapsed)):
            return None
        sleep = min(max(0.0, self._drawn(number, elapsed)) * share, most)
        if left is not None:
            sleep = min(sleep, left)
        if self.before_sleep is not None:
            self.before_sleep(Attempt(name, number, elapsed, sleep))
        return sleep

    def _drawn(self, number: int, elapsed: float) -> float:
        """Return the policy's sleep in seconds. For any jitter but the full one, tenacity draws the
        random numbers itself."""
        if self.wait is None:
            bound = min(FIRST * 2.0 ** min(number - 1, 10), MOST)
            return LEAST + (bound - LEAST) * self._random()
        from tenacity import wait_exponential, wait_random_exponential

        state = _call_state(number, elapsed)
        if type(self.wait) is not wait_random_exponential:
            return float(self.wait(state))
        most = wait_exponential.__call__(self.wait, state)
        return self.wait.min + (most - self.wait.min) * self._random()


def check_retry(retry: object) -> RetryPolicy:
    """Return a policy, or raise TypeError: a strategy of tenacity is only a part of one."""
    if not isinstance(retry, RetryPolicy):
        raise TypeError(f"retry is a dblock.RetryPolicy, not {type(retry).__name__}: {retry!r}")
    return retry


def _call_state(number: int, elapsed: float) -> RetryCallState:
    from tenacity import RetryCallState, Retrying

    state = RetryCallState(Retrying(), None, (), {})  # the strategies never use these
    state.attempt_number = number
    state.start_time = time.monotonic() - elapsed
    state.outcome_timestamp = state.start_time + elapsed
    return state


def how_often(wait: object) -> Hashable:
    """Return a value that two strategies share if they are known to wait in the same way.

    Strategies of tenacity wait in the same way if they have the same class and settings. Other
    strategies do if they compare equal.
    """
    what = type(wait)
    if what.__module__.partition(".")[0] == "tenacity":
        return what, tuple((name, how_often(value)) for name, value in sorted(vars(wait).items()))
    if isinstance(wait, tuple):  # the parts of a combined tenacity strategy
        return tuple(how_often(one) for one in wait)
    try:
        hash(wait)
    except TypeError:
        return id(wait)
    return wait


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long three layers may take, in seconds. Each has its own error.

    ``connect``
        until a new connection is ready. Then you get :class:`~dblock.ConnectTimeout`.
    ``query``
        until the server cancels a statement, so that the client does not have to. Then you get
        :class:`~dblock.QueryTimeout`. A lease's statements wait for no row. A row lock waits in
        pieces of this length, so that a dead waiter does not stay in the queue for longer.
    ``socket``
        until the client stops waiting for a reply, no matter what the kernel does. It closes the
        connection too. Then you get :class:`~dblock.SocketTimeout`. If the statement may have
        changed something, dblock first ends the session on the server and finds out whether the
        statement was executed. If it does not know after the same time again, you get
        :class:`~dblock.OutcomeUnknown`.

    They apply to dblock's own connections. ``socket`` also applies to dblock's statements in your
    own transactions, except the statements of counters, which may wait for a row as long as your
    settings allow. dblock does not change how your engine connects. It logs once which timeouts
    your engine lacks.
    """

    connect: float = 3.0
    query: float = 5.0
    socket: float = 10.0

    def __post_init__(self) -> None:
        for layer in ("connect", "query", "socket"):
            if seconds(f"Timeouts.{layer}", getattr(self, layer)) == 0:
                raise ValueError(f"Timeouts.{layer} must be above 0")
        if self.query >= self.socket:
            raise ValueError(
                f"Timeouts.query ({self.query}) must be shorter than Timeouts.socket "
                f"({self.socket}): the server has to answer before the client stops listening"
            )
