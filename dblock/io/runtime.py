"""What dblock leaves to its surroundings: time, randomness, waiting.

Here it is that of a thread. :mod:`dblock.aio` has the same for a task of an event loop; and whoever
has one of his own decides what time it is, and what is drawn.
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
    """A :class:`threading.Event`, or what a task has for one."""

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
    """Threads, which block, and are interrupted by nobody but KeyboardInterrupt."""

    #: What is finished may go on when its caller does not wait for it any more.
    lingers = False
    #: Who is told of what is believed here; nobody, but for tests.
    observer: Observer | None = None

    # --- time and randomness -----------------------------------------------------------------

    #: The holder's clock: seconds since some moment in the past.
    now: Callable[[], float] = staticmethod(clock.now)
    #: A number from 0 to 1, for what is not to be in step with others.
    random: Callable[[], float] = staticmethod(random.random)
    #: So many bytes that nobody can guess, in hexadecimal.
    token: Callable[[int], str] = staticmethod(lambda size: os.urandom(size).hex())

    # --- waiting -----------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: Event, seconds: float | None) -> bool:
        """Wait until an event of this runtime is set, so long; return whether it is."""
        return bool(event.wait(seconds))

    def readable(self, descriptor: int, seconds: float) -> bool:
        """Wait until there is something to read, so long; return whether there is."""
        return poller(descriptor)(seconds)

    def hang_up(self, descriptor: int) -> None:
        """Let who waits for a connection to be readable find its end."""
        with socket.socket(fileno=os.dup(descriptor)) as connected:
            connected.shutdown(socket.SHUT_RDWR)

    def event(self) -> Event:
        return threading.Event()

    def turns(self, limit: int) -> Turns:
        """Return as many turns.

        No interruption leaves the queue locked, for it is written in C. A
        :class:`threading.Semaphore` is written in Python: a KeyboardInterrupt in its middle keeps
        its own lock, and everybody waits for ever.
        """
        turns: SimpleQueue[None] = SimpleQueue()
        for _ in range(limit):
            turns.put(None)
        return turns

    @contextmanager
    def settled(self, done: Callable[[], bool], patience: float) -> Iterator[None]:
        """Wait until a renewal under way has ended, so long; and keep others out for a moment."""
        with lock:
            settled.wait_for(done, patience)
            yield

    # --- being interrupted -------------------------------------------------------------------

    def connect(self, make: Callable[[], T], keep: Callable[[T], None]) -> T:
        """Return what ``make`` makes; what is made too late for the caller goes to ``keep``."""
        return make()

    def finish(self, function: Callable[[], T], *, cancelled: bool = False) -> T | None:
        """Run a function to its end, even if the caller is cancelled meanwhile, or was before.

        Where it need not wait for it, that caller does so for a moment only; None is returned then.
        """
        return function()

    def undo(self, error: BaseException, function: Callable[[], object]) -> None:
        """Undo what an error has interrupted. If the caller's stack is used up, on another one."""
        if isinstance(error, RecursionError):
            self.apart(function)
        else:
            function()

    def apart(self, function: Callable[[], object]) -> None:
        """Run a function to its end on a stack of its own. It takes few calls to begin one so."""
        done = _thread.allocate_lock()
        done.acquire()

        def run() -> None:
            try:
                # The application waits for signals where it likes.
                block_signals()
                function()
            finally:
                done.release()

        _thread.start_new_thread(run, ())
        done.acquire()

    #: Raises a cancellation that came while a statement was under way; nothing cancels a thread.
    check: Callable[[], None] | None = None
