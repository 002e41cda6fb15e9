"""The worker: a daemon thread, begun when it is first needed, which ends when it is no more."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from ..io.process_lock import at_the_end, lock
from ..system.platform import block_signals

logger = logging.getLogger("dblock")

# After work that failed it is tried again so many seconds later.
AGAIN = 1.0


class Worker:
    """A daemon thread that does something when woken, or when its own time has come.

    ``work`` returns after how many seconds it is to be done again: at once when somebody called
    :meth:`wake` meanwhile; and when it says that there is nothing to do, and nobody calls for
    ``linger`` seconds, ``end`` is called and the thread ends.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], float],
        end: Callable[[], object] = lambda: None,
        *,
        linger: float,
    ) -> None:
        self._name = name
        self._work = work
        self._end = end
        self._linger = linger
        self._woken = False
        self._wake = threading.Condition(lock)
        self.running = False

    def wake(self) -> None:
        with lock:
            self._woken = True
            self._wake.notify()
            if not self.running:
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self.running = True
        try:
            start_quietly(thread)
        except BaseException as error:
            self.running = thread.is_alive()
            if not isinstance(error, RuntimeError):  # no thread starts at the end of the process
                raise

    def _run(self) -> None:
        while True:
            try:
                pause = self._work()
            except Exception:
                logger.exception("the keeper failed")
                pause = AGAIN
            with lock:
                if not self._woken:
                    self._wake.wait(min(pause, self._linger))
                if not self._woken and pause == math.inf:
                    self.running = False
                    self._end()
                    return
                self._woken = False


def start_quietly(thread: threading.Thread) -> None:
    """Start a thread that gets no signal: the application waits for them where it likes.

    Raises RuntimeError at the end of the interpreter. Before Python 3.12 one would be waited for
    there that never begins.
    """
    if at_the_end():
        raise RuntimeError("no thread starts at the end of the interpreter")
    unblock = block_signals()
    try:
        thread.start()
    finally:
        unblock()
