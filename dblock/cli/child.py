"""The command as a child process, and the signals that dblock passes on to it.

While dblock waits for the lock, a signal ends dblock, and dblock releases the lock that it may have
been granted. Once it holds the lock, it blocks signals and takes them one by one, synchronously. So
none is lost between the two, none interrupts anything, and a signal that comes before the child
exists still reaches the child.

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
from contextvars import ContextVar
from types import FrameType
from typing import Any

from ..errors import LockLost
from .options import told
from .output import complain

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
CHILD_ENDED = signal.SIGCHLD
LOOK = signal.SIGALRM  # the lease was lost, or the grace is over
# Python ignores these, and ignoring is inherited.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)

# Seconds between two checks whether a command that dblock ends has processes left.
LOOK_AGAIN = 0.1
# Seconds after KILL. A process that is still listed then is a zombie whose parent does not reap it.
UNCLAIMED = 1.0

# It reads the process or group to kill, then waits for a second line. If its input ends instead,
# dblock has died, and it kills the command.
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

#: Whether dblock runs inside another program: then it must not wait for that program's children.
guest: ContextVar[bool] = ContextVar("guest", default=False)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore this process's signals after the command, for a process that goes on; and leave its
    other children alone."""
    handlers = {n: signal.getsignal(n) for n in (*FORWARDED, CHILD_ENDED, LOOK)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = guest.set(True)
    try:
        yield
    finally:
        guest.reset(before)
        # SIGCHLD and SIGALRM are restored last: a pending one was for the command, and its handlers
        # still take it when the mask is lifted.
        main = threading.current_thread() is threading.main_thread()  # others cannot set handlers
        for number in FORWARDED if main else ():
            signal.signal(number, handlers[number])
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in (CHILD_ENDED, LOOK) if main else ():
            signal.signal(number, handlers[number])


class Interrupted(KeyboardInterrupt):
    """A signal came while dblock waited for the lock.

    It is a KeyboardInterrupt, because drivers know how to cancel a statement on that.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """dblock's handling of signals. Use it in the main thread."""

    def __init__(self) -> None:
        # An ignored signal stays ignored, for the child as well: nohup, and `&` in a script.
        self.forwarded = [n for n in FORWARDED if signal.getsignal(n) is not signal.SIG_IGN]
        self._end_at_once()
        self.mask: set[int] = set()
        self._watched: set[signal.Signals] = set()
        self._main = threading.get_ident()

    def interrupt(self) -> None:
        """From now on a signal raises Interrupted; a second one ends the process at once."""
        for number in self.forwarded:
            signal.signal(number, self._raise)
        signal.signal(CHILD_ENDED, _reap)  # the child is an orphan: the command has not begun
        reap()

    def keep(self) -> None:
        """From now on signals are kept for :meth:`next`."""
        # Set handlers, even if the parent process ignored these: an ignored signal may never come.
        for number in (CHILD_ENDED, LOOK):
            signal.signal(number, _nothing)
        watched = {*self.forwarded, CHILD_ENDED, LOOK}
        self.mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, watched))
        self._watched = watched

    def next(self) -> tuple[int, bool]:
        """Wait for a signal; return it, and whether the terminal sent it to the child as well."""
        if sys.platform == "darwin":  # macOS does not name the sender
            return signal.sigwait(self._watched), False
        information = signal.sigwaitinfo(self._watched)
        return information.si_signo, information.si_code > 0  # by the kernel, not by a process

    def wake(self) -> None:
        """Make :meth:`next` return :data:`LOOK`. Other threads may call it."""
        if self._watched:  # before `keep` the signal would end the process
            signal.pthread_kill(self._main, LOOK)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self._end_at_once()
        raise Interrupted(number)

    def _end_at_once(self) -> None:
        """Leave signals to the system: there is no lock to release, or the user does not wait."""
        for number in self.forwarded:
            signal.signal(number, signal.SIG_DFL)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def _reap(number: int, frame: FrameType | None) -> None:
    reap()


class Watchdog:
    """Ends the command if dblock is killed by KILL.

    The command gets TERM, and KILL ``grace`` whole seconds later. The watchdog is a shell and not a
    fork of this process, because this process has threads, and because a killall of its name would
    end a fork too. It leads the command's group, so it knows the group before the command begins.
    Without a shell there is no watchdog.
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
                setsigmask={*signals.mask, *FORWARDED},  # until its `trap` ignores them
            )
        except OSError as error:
            complain(f"if dblock is killed, nothing ends the command: {error}")
        finally:
            os.close(end)

    def watch(self, target: int) -> None:
        self._write(str(target))

    def dismiss(self) -> None:
        """Tell the watchdog that the command has ended."""
        if not self._dismissed:
            self._dismissed = True
            self._write("dismissed")
            os.close(self._line)

    def ended(self) -> bool:
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG)[0] == self.pid:
            self.pid = None
        return self.pid is None

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the watchdog has ended
            os.write(self._line, f"{line}\n".encode())


class Child:
    """A running command. Raises OSError when it cannot be started."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        signals: Signals,
        watchdog: Watchdog | None,
    ) -> None:
        self.code: int | None = None
        self._watchdog = watchdog
        leader = 0 if watchdog is None or watchdog.pid is None else watchdog.pid
        #: Whether it has a group apart from dblock's. Then dblock sends signals to the whole group.
        self.apart = not _has_terminal()
        group: dict[str, Any] = {"setpgroup": leader} if self.apart else {}
        if watchdog is not None and self.apart:
            watchdog.watch(_OWN_GROUP)
        self.pid = os.posix_spawnp(
            command[0],
            tuple(command),
            environment,
            setsigmask=signals.mask,
            setsigdef=RESTORED,
            **group,
        )
        if watchdog is not None and not self.apart:
            watchdog.watch(self.pid)
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
        """Wait for a child that has ended if it is the command, or its watchdog."""
        if pid == self.pid:
            return self.ended()
        return self._watchdog is not None and pid == self._watchdog.pid and self._watchdog.ended()

    def all_ended(self) -> bool:
        """Return whether its group has ended too. After that it needs no watchdog."""
        if not self.ended():
            return False
        if self._watchdog is not None:
            self._watchdog.dismiss()
            if not self._watchdog.ended():
                return False
        return not (self.apart and self.send(0))

    def send(self, number: int) -> bool:
        """Send a signal to it, or to its group; False if no process is left."""
        # Until dblock has waited for it, its pid is not another process's.
        if self.code is not None and not self.apart:
            return False
        try:
            os.kill(self._target, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # it runs as another user now, as with sudo
            return True
        return True


def reap(known: Callable[[int], bool] = lambda pid: False) -> None:
    """Wait for all children that have ended, orphans too.

    An orphan's parent has ended. The first process of a container gets the orphans as its children,
    and so does a subreaper. If it does not wait for them, they stay in the table of processes as
    zombies when they end, until it is full.

    ``known`` gets the pid of each. It returns True if it has waited for that process itself.
    """
    if sys.platform == "darwin" or guest.get():  # macOS has no subreapers, and no containers
        return
    try:
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if not known(ended.si_pid):
                os.waitpid(ended.si_pid, os.WNOHANG)
    except ChildProcessError:  # there are none
        pass


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
    signals.wake()  # the lock may be lost already
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
