"""The worker: a daemon thread that starts when it is first needed, and ends when it is idle."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from ..io.process_lock import at_the_end, lock
from ..system.platform import block_signals

logger = logging.getLogger("dblock")

# Seconds before failed work is tried again.
AGAIN = 1.0


class Worker:
    """A daemon thread that calls ``work`` when it is woken, or at the time that ``work`` asked for.

    ``work`` returns the seconds until its next call, infinity if it has nothing to do. A call of
    :meth:`wake` meanwhile makes the next call at once. If ``work`` has nothing to do and no
    :meth:`wake` comes for ``linger`` seconds, the thread calls ``end`` and ends.
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
    """Start a thread that gets no signals: the application decides which of its threads does.

    Raises RuntimeError at the end of the interpreter. Before Python 3.12 ``start`` would wait there
    forever for a thread that never begins.
    """
    if at_the_end():
        raise RuntimeError("no thread starts at the end of the interpreter")
    unblock = block_signals()
    try:
        thread.start()
    finally:
        unblock()
