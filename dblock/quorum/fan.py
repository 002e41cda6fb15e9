"""The fan: runs work at several members at a time, and hands the outcomes over as they come.

The caller waits for a verdict, or for a deadline. Work that takes longer goes on without it, and
acts on its late reply itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from ..holding.worker import start_quietly
from ..io.fork import begins_anew

if TYPE_CHECKING:
    from ..io.runtime import Runtime

T = TypeVar("T")

#: Threads for one member, at most: as many as it has connections. Work beyond that waits for them,
#: so a member that hangs takes no more than these.
MOST = 8
# Seconds that an idle thread stays alive.
LINGER = 5.0

Work = Callable[[], None]


class Crew:
    """The threads that work at one member."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.forget_parent()
        begins_anew(self)

    def forget_parent(self) -> None:
        """Begin anew: a forked child has none of its parent's threads."""
        self._waiting: deque[Work] = deque()
        # The callers enter the lock itself: an interrupt could get between the lines of a
        # condition's entry, and the lock would stay taken.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ended = threading.Condition(self._lock)
        self._idle, self._threads = 0, set[threading.Thread]()

    def begin(self, work: Work) -> None:
        """Begin a piece of work, or let it wait for a thread."""
        with self._lock:
            self._waiting.append(work)
            if self._idle >= len(self._waiting):
                self._changed.notify()
                return
            if len(self._threads) >= MOST:
                return
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._threads.add(thread)
        try:
            start_quietly(thread)
        except RuntimeError:  # no thread starts at the end of the process
            self._work_here(thread)
        except BaseException:  # an interrupt: the next begin() starts a thread for both
            with self._lock:
                if thread.ident is None:  # it has not begun, and may never begin
                    self._threads.discard(thread)
            raise

    def rest(self, seconds: float) -> None:
        """Wait until all work has ended, for ``seconds`` at most."""
        with self._lock:
            self._ended.wait_for(
                lambda: not self._waiting and self._idle == len(self._threads), seconds
            )

    def _work_here(self, thread: threading.Thread) -> None:
        with self._lock:
            self._threads.discard(thread)
            work = self._waiting.pop() if self._waiting else None
        if work is not None:
            work()

    def _run(self) -> None:
        thread = threading.current_thread()
        with self._lock:  # an interrupt of its start may have struck it off
            self._threads.add(thread)
        while True:
            with self._lock:
                if not self._waiting:
                    self._idle += 1
                    self._ended.notify_all()
                    self._changed.wait_for(lambda: bool(self._waiting), LINGER)
                    self._idle -= 1
                if not self._waiting:
                    self._threads.discard(thread)
                    return
                work = self._waiting.popleft()
            work()
            del work  # it has the caller's objects


class Fan:
    """Runs work at members, in threads. :class:`.TaskFan` runs it in tasks."""

    def __init__(self, size: int) -> None:
        self._crews = [Crew(f"dblock member {number}") for number in range(size)]

    def begin(self, member: int, work: Work) -> None:
        """Begin work at a member. It raises nothing."""
        self._crews[member].begin(work)

    def rest(self, member: int, seconds: float) -> None:
        """Wait until the work at a member has ended, for ``seconds`` at most."""
        self._crews[member].rest(seconds)


class Mailbox(Generic[T]):
    """The outcomes of one round, in the order in which they come."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._came = runtime.event()
        self._outcomes: deque[tuple[int, T]] = deque()

    def put(self, member: int, outcome: T) -> None:
        self._outcomes.append((member, outcome))
        self._came.set()

    def next(self, seconds: float) -> tuple[int, T] | None:
        """Return the next outcome and its member; None if none comes for ``seconds``."""
        until = self._runtime.now() + seconds
        while True:
            self._came.clear()
            if self._outcomes:
                return self._outcomes.popleft()
            left = until - self._runtime.now()
            if left <= 0:
                return None
            self._runtime.wait(self._came, left)

    def rest(self) -> list[tuple[int, T]]:
        """Return the outcomes that are there."""
        found = []
        while self._outcomes:
            found.append(self._outcomes.popleft())
        return found
