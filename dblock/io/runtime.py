"""Time, randomness and waiting, which depend on where dblock runs.

:class:`Runtime` is for threads. :mod:`dblock.aio` has one for the tasks of an event loop. Tests
replace it to control time and randomness.
"""

from __future__ import annotations

import _thread
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..system import clock
from ..system.platform import block_signals, poller
from .process_lock import lock, settled

if TYPE_CHECKING:
    from ..protocol.observer import Observer

T = TypeVar("T")


class Event(Protocol):
    """A :class:`threading.Event`, or its counterpart for tasks."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Turns(Protocol):
    """The permits of a semaphore, with the verbs of a :class:`queue.SimpleQueue` of them.

    ``get`` raises :class:`queue.Empty` when none was there for ``timeout`` seconds.
    """

    def get(self, block: bool = ..., timeout: float | None = ...) -> None: ...

    def put(self, turn: None) -> None: ...


class Runtime:
    """The runtime of threads. They block, and only KeyboardInterrupt interrupts them."""

    #: Whether :meth:`finish` may return before the function has ended.
    lingers = False
    #: Receives each change of what the holders of this process believe. Only tests set it.
    observer: Observer | None = None

    # --- time and randomness -----------------------------------------------------------------

    #: The holder's clock: seconds since some moment in the past.
    now: Callable[[], float] = staticmethod(clock.now)
    #: A random number from 0 to 1, which keeps processes out of step.
    random: Callable[[], float] = staticmethod(random.random)
    #: ``size`` random bytes for secrets, in hexadecimal.
    token: Callable[[int], str] = staticmethod(lambda size: os.urandom(size).hex())

    # --- waiting -----------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: Event, seconds: float | None) -> bool:
        """Wait until an event of this runtime is set, for ``seconds`` at most; return whether it
        is."""
        return bool(event.wait(seconds))

    def readable(self, descriptor: int, seconds: float) -> bool:
        """Wait until the descriptor can be read, for ``seconds`` at most; return whether it can."""
        return poller(descriptor)(seconds)

    def hang_up(self, descriptor: int) -> None:
        """Shut a connection down, so that a thread which waits to read it finds its end."""
        with socket.socket(fileno=os.dup(descriptor)) as connected:
            connected.shutdown(socket.SHUT_RDWR)

    def event(self) -> Event:
        return threading.Event()

    def turns(self, limit: int) -> Turns:
        """Return a semaphore with ``limit`` permits.

        The queue is written in C, so no interruption leaves it locked. A
        :class:`threading.Semaphore` is written in Python: a KeyboardInterrupt within it leaves its
        internal lock locked, and all threads wait forever.
        """
        turns: SimpleQueue[None] = SimpleQueue()
        for _ in range(limit):
            turns.put(None)
        return turns

    @contextmanager
    def settled(self, done: Callable[[], bool], patience: float) -> Iterator[None]:
        """Wait until a renewal under way is ``done``, for ``patience`` seconds at most; run the
        block with the process-wide lock."""
        with lock:
            settled.wait_for(done, patience)
            yield

    # --- being interrupted -------------------------------------------------------------------

    def connect(self, make: Callable[[], T], keep: Callable[[T], None]) -> T:
        """Return what ``make`` returns; ``keep`` gets it if it comes too late for the caller."""
        return make()

    def finish(self, function: Callable[[], T], *, cancelled: bool = False) -> T | None:
        """Run a function to its end, even if the caller is cancelled meanwhile, or was before.

        If the runtime :attr:`lingers`, a cancelled caller waits for a moment only; then this
        returns None.
        """
        return function()

    def undo(self, error: BaseException, function: Callable[[], object]) -> None:
        """Run the ``function`` that undoes interrupted work; after a RecursionError on another
        stack, because the caller's is used up."""
        if isinstance(error, RecursionError):
            self.apart(function)
        else:
            function()

    def apart(self, function: Callable[[], object]) -> None:
        """Run a function to its end on a stack of its own.

        ``_thread``, because a :class:`threading.Thread` needs more of the caller's stack to start.
        """
        done = _thread.allocate_lock()
        done.acquire()

        def run() -> None:
            try:
                # The application decides which thread gets its signals.
                block_signals()
                function()
            finally:
                done.release()

        _thread.start_new_thread(run, ())
        done.acquire()

    #: Raises a cancellation that came during a statement. None for threads: they have none.
    check: Callable[[], None] | None = None
