"""The command as a child process, and the signals on their way to it.

While dblock waits for the lock, a signal ends dblock, and dblock gives back what it may have been
granted. Once it holds the lock, it blocks signals and takes them one by one, synchronously. So none
is lost between the two, none interrupts anything, and a signal that comes before the child exists
reaches the child all the same.

Without a terminal, as under cron, the child has a process group of its own, and dblock sends every
signal to the whole group, a shell's children included. On a terminal the child stays in dblock's
group, because otherwise it could not read from the terminal. Then dblock signals the child alone,
and a ^C reaches the child without dblock. If dblock is killed by KILL, a shell that waits for this
ends the child or its group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from ..errors import LockLost
from .options import told
from .orphans import guest, reap
from .output import complain

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
CHILD_ENDED = signal.SIGCHLD
LOOK = signal.SIGALRM  # the lease was lost, or the grace is over
# Python ignores these, and ignoring is inherited.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)

# Between two looks at what is left of a command that is being ended.
LOOK_AGAIN = 0.1
# After KILL what is left of it is dead, and listed only where nobody waits for it.
UNCLAIMED = 1.0

# Told what to kill, it waits for a second line. The end of its input instead is that of dblock.
_GUARD = """
trap '' TERM INT HUP QUIT
read -r target || exit
read -r dismissed && exit
kill -s TERM -- "$target"
while [ "$1" -gt 0 ] && kill -s 0 -- "$target"; do
    sleep 1
    set -- "$(($1 - 1))"
done
kill -s KILL -- "$target"
"""
_OWN_GROUP = 0


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Leave this process's signals as they were, and its children, where it goes on after the
    command."""
    handlers = {n: signal.getsignal(n) for n in (*FORWARDED, CHILD_ENDED, LOOK)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = guest.set(True)
    try:
        yield
    finally:
        guest.reset(before)
        # What is still pending of the last two was for the command: it goes to handlers of its own.
        main = threading.current_thread() is threading.main_thread()  # nowhere else can they be set
        for number in FORWARDED if main else ():
            signal.signal(number, handlers[number])
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in (CHILD_ENDED, LOOK) if main else ():
            signal.signal(number, handlers[number])


class Interrupted(KeyboardInterrupt):
    """A signal came while the lock was waited for.

    A KeyboardInterrupt, since drivers know how to let go of the server on that one.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """What dblock does with signals. Use it in the main thread."""

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
        signal.signal(CHILD_ENDED, _reap)  # of an orphan: the command has not begun
        reap()

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


def _reap(number: int, frame: FrameType | None) -> None:
    reap()


class Guard:
    """Sees to it that the command does not outlive a dblock that is killed by KILL.

    It gets TERM, and KILL ``grace`` whole seconds later. A shell, not a fork of this process: that
    has threads, and goes by the same name when somebody kills all of that name. It leads the group
    that the command is in, so that it need not be told of a command that has begun. Without a
    shell there is no guard.
    """

    def __init__(self, grace: float, signals: Signals) -> None:
        end, self._line = os.pipe()
        self.pid: int | None = None
        self._dismissed = False
        try:
            self.pid = os.posix_spawn(
                "/bin/sh",
                ("sh", "-c", _GUARD, "dblock guard", str(int(grace))),
                {"PATH": os.defpath},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, end, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setpgroup=0,
                setsigmask={*signals.mask, *FORWARDED},  # until it ignores what the command is sent
            )
        except OSError as error:
            complain(f"if dblock is killed, nothing ends the command: {error}")
        finally:
            os.close(end)

    def watch(self, target: int) -> None:
        self._write(str(target))

    def dismiss(self) -> None:
        """The command has ended."""
        if not self._dismissed:
            self._dismissed = True
            self._write("dismissed")
            os.close(self._line)

    def ended(self) -> bool:
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG)[0] == self.pid:
            self.pid = None
        return self.pid is None

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # it is not there any more
            os.write(self._line, f"{line}\n".encode())


class Child:
    """A running command. Raises OSError when it cannot be started."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        signals: Signals,
        guard: Guard | None,
    ) -> None:
        self.code: int | None = None
        self._guard = guard
        leader = 0 if guard is None or guard.pid is None else guard.pid
        #: Whether it is in a group apart from dblock's, which is then sent what it is sent.
        self.apart = not _has_terminal()
        group: dict[str, Any] = {"setpgroup": leader} if self.apart else {}
        if guard is not None and self.apart:
            guard.watch(_OWN_GROUP)
        self.pid = os.posix_spawnp(
            command[0],
            tuple(command),
            environment,
            setsigmask=signals.mask,
            setsigdef=RESTORED,
            **group,
        )
        if guard is not None and not self.apart:
            guard.watch(self.pid)
        self._target = -(leader or self.pid) if self.apart else self.pid

    def ended(self) -> bool:
        """Return whether it has ended; then ``code`` is its exit code, as a shell gives it."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == self.pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = code if code >= 0 else 128 - code
        return self.code is not None

    def is_reaped(self, pid: int) -> bool:
        """Wait for a child that has ended if it is the command, or its guard."""
        if pid == self.pid:
            return self.ended()
        return self._guard is not None and pid == self._guard.pid and self._guard.ended()

    def all_ended(self) -> bool:
        """Return whether its group has ended too. From its own end on it needs no guard."""
        if not self.ended():
            return False
        if self._guard is not None:
            self._guard.dismiss()
            if not self._guard.ended():
                return False
        return not (self.apart and self.send(0))

    def send(self, number: int) -> bool:
        """Send it a signal, or its group; False when there is nobody."""
        # Until it is waited for, its pid is nobody else's.
        if self.code is not None and not self.apart:
            return False
        try:
            os.kill(self._target, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # it has become somebody else, as sudo does
            return True
        return True


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def supervise(
    child: Child,
    signals: Signals,
    loss: Callable[[], LockLost | None],
    grace: Callable[[], float] | None,
) -> int:
    """Pass signals on until the child has ended; return its exit code.

    If the lock is lost, end the child: TERM, and KILL after ``grace`` seconds. If ``grace`` is
    None, only warn.
    """
    lost: LockLost | None = None
    kill_at: float | None = None
    signals.wake()  # it may have been lost by now
    while not (child.ended() if kill_at is None else child.all_ended()):
        number, from_terminal = signals.next()
        reap(child.is_reaped)
        if number in FORWARDED and (child.apart or not from_terminal):
            child.send(number)
        if number != LOOK:
            continue
        if lost is None and (lost := loss()) is not None:
            ending = "the command goes on" if grace is None else "ending the command"
            complain(f"lost the lock, {ending} (pid {child.pid}): {told(lost)}")
            if grace is not None:
                child.send(signal.SIGTERM)
                kill_at = time.monotonic() + grace()
                signal.setitimer(signal.ITIMER_REAL, LOOK_AGAIN, LOOK_AGAIN)
        elif kill_at is not None and time.monotonic() >= kill_at:
            child.send(signal.SIGKILL)
            if child.ended() and time.monotonic() >= kill_at + UNCLAIMED:
                break
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert child.code is not None
    return child.code
