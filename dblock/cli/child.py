"""The command as a child process, and the signals on their way to it.

While the lock is waited for, a signal ends dblock, which gives back what it may have been granted.
Once it is held, signals are blocked and taken one by one, synchronously: none is lost between the
two, none interrupts anything, and one that comes before the child is there reaches it all the same.

The child stays in dblock's process group, as the terminal expects. So it alone can be signalled,
not what it starts; and a ^C reaches it without dblock.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from ..errors import LockLost
from .output import complain

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
CHILD_ENDED = signal.SIGCHLD
LOOK = signal.SIGALRM  # the lease was lost, or the grace is over
# Python ignores these, and ignoring is inherited.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)

# What a command gets to end by itself when the lock is lost.
GRACE = 10.0


class Interrupted(KeyboardInterrupt):
    """A signal came while the lock was waited for.

    A KeyboardInterrupt, since drivers know how to let go of the server on that one.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """What dblock does with signals. To be used in the main thread."""

    def __init__(self) -> None:
        # Ignored means ignored, for the child as well: nohup, and `&` in a script.
        self.forwarded = [n for n in FORWARDED if signal.getsignal(n) is not signal.SIG_IGN]
        self._end_at_once()
        self.mask: set[int] = set()
        self._watched: set[signal.Signals] = set()
        self._main = threading.get_ident()

    def interrupt(self) -> None:
        """From now on a signal raises Interrupted; a second one ends the process at once."""
        for number in self.forwarded:
            signal.signal(number, self._raise)

    def keep(self) -> None:
        """From now on signals are kept for :meth:`next`."""
        # Not ignored, whatever the parent process had them: an ignored one may never come.
        for number in (CHILD_ENDED, LOOK):
            signal.signal(number, _nothing)
        watched = {*self.forwarded, CHILD_ENDED, LOOK}
        self.mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, watched))
        self._watched = watched

    def next(self) -> tuple[int, bool]:
        """Wait for a signal; return it, and whether the terminal sent it to the child as well."""
        if sys.platform == "darwin":  # does not tell who sent it
            return signal.sigwait(self._watched), False
        information = signal.sigwaitinfo(self._watched)
        return information.si_signo, information.si_code > 0  # by the kernel, not by a process

    def wake(self) -> None:
        """Make :meth:`next` return :data:`LOOK`. For other threads."""
        if self._watched:  # before, it would end the process
            signal.pthread_kill(self._main, LOOK)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self._end_at_once()
        raise Interrupted(number)

    def _end_at_once(self) -> None:
        """Leave signals to the system: there is nothing to give back, or it is too much to ask."""
        for number in self.forwarded:
            signal.signal(number, signal.SIG_DFL)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


class Child:
    """A running command. Raises OSError when it cannot be started."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], signals: Signals
    ) -> None:
        self.code: int | None = None
        self.pid = os.posix_spawnp(
            command[0], tuple(command), environment, setsigmask=signals.mask, setsigdef=RESTORED
        )

    def ended(self) -> bool:
        """Return whether it has ended; then ``code`` is its exit code, as a shell gives it."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == self.pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = code if code >= 0 else 128 - code
        return self.code is not None

    def send(self, number: int) -> None:
        # Until it is waited for, its pid is nobody else's.
        if self.code is None:
            os.kill(self.pid, number)


def supervise(child: Child, signals: Signals, loss: Callable[[], LockLost | None]) -> int:
    """Pass signals on until the child has ended; end it when the lock is lost. Return its code."""
    kill_at: float | None = None
    signals.wake()  # it may have been lost by now
    while not child.ended():
        number, from_terminal = signals.next()
        if number in FORWARDED and not from_terminal:
            child.send(number)
        elif number == LOOK and (lost := loss()) is not None:
            if kill_at is None:
                complain(f"lost the lock, ending the command (pid {child.pid}): {lost}")
                child.send(signal.SIGTERM)
                kill_at = time.monotonic() + GRACE
                signal.setitimer(signal.ITIMER_REAL, GRACE, 1.0)
            elif time.monotonic() >= kill_at:
                child.send(signal.SIGKILL)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert child.code is not None
    return child.code
