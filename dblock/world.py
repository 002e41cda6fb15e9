"""What the strategies leave to their surroundings: waiting, and who it is that waits.

Here a thread is. :mod:`dblock.aio` has the same for a task of an event loop, and that is all that
is different there, but for the drivers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from .holds import FlowHolds, ThreadHolds

T = TypeVar("T")


class Turns(Protocol):
    """A semaphore, as :class:`threading.Semaphore` is one."""

    def acquire(self, blocking: bool = ..., timeout: float | None = ...) -> bool: ...

    def release(self) -> None: ...


class World:
    """Threads, which block, and are interrupted by nobody but KeyboardInterrupt."""

    #: What waits, and has holds of its own.
    flow = "thread"

    def who(self) -> int:
        """Return the number of the flow that calls."""
        return threading.get_ident()

    def holds(self) -> FlowHolds:
        """Return the place for what each flow holds."""
        return ThreadHolds()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def turns(self, limit: int) -> Turns:
        return threading.Semaphore(limit)

    def connect(self, make: Callable[[], T], keep: Callable[[T], None]) -> T:
        """Return what ``make`` makes; what is made too late for the caller goes to ``keep``."""
        return make()

    def finish(self, function: Callable[[], T], within: float | None = None) -> T | None:
        """Run a function to its end, even if the caller is to be cancelled meanwhile.

        After ``within`` seconds it goes on by itself, and None is returned.
        """
        return function()

    def check(self) -> None:
        """Raise a cancellation that came while a statement was under way."""
