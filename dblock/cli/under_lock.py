"""A command under a lock: acquire, run the command, record its end, release."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..errors import DBLockError, LockLost
from . import exits
from .child import Child, Interrupted, Signals, Watchdog, supervise
from .options import told
from .output import complain

if TYPE_CHECKING:
    from ..handles.cron import Running
    from ..handles.held import AcquirableLease, HeldLease
    from ..handles.semaphore import Semaphore


@dataclass(frozen=True, slots=True)
class Ending:
    """Whether dblock ends the command if the lock is lost; ``grace`` is None for the default."""

    kill: bool
    grace: float | None

    def after_loss(self, lease: HeldLease) -> float:
        return lease.margin if self.grace is None else self.grace

    def without_dblock(self, lease: HeldLease) -> float:
        # The last renewal was less than an interval ago, so another interval ends before the lease.
        longest = lease.renew_every
        return longest if self.grace is None else min(self.grace, longest)


def acquire(lock: AcquirableLease | Semaphore, signals: Signals) -> None:
    """Take the lock. If a signal comes before, give up, and hold nothing."""
    try:
        signals.interrupt()
        refusal = lock._acquire(lock.wait)
        if refusal is not None:
            raise refusal
        signals.keep()
    except Interrupted:
        hold = lock._current()
        if hold is not None and hold.alive:
            _release(lock, exits.OK)
        raise


def run_under(
    lease: HeldLease,
    command: Sequence[str],
    signals: Signals,
    lost: Sequence[LockLost],
    ending: Ending,
    running: Running | None = None,
) -> int:
    """Run the command, record its end if it is a job's run, and release the lease; return dblock's
    exit code."""
    environment = os.environ | {
        "DBLOCK_NAME": lease.name,
        "DBLOCK_FENCE": str(lease.fence),
        "DBLOCK_TOKEN": lease.token,
    }
    if running is not None and running.run.slot:
        environment["DBLOCK_SLOT"] = running.run.slot
    guard = Watchdog(ending.without_dblock(lease), signals) if ending.kill else None
    try:
        child = Child(command, environment, signals, guard)
    except OSError as error:
        if guard is not None:
            guard.dismiss()
        complain(f"cannot run {command[0]!r}: {error.strerror}")
        missing = error.errno == errno.ENOENT
        code = exits.NOT_FOUND if missing else exits.NOT_EXECUTABLE
        if running is not None:
            _record(running, code)
        return _release(lease, code)  # at once: another host may have the command
    grace = partial(ending.after_loss, lease) if ending.kill else None
    code = supervise(child, signals, lambda: lost[0] if lost else None, grace)
    if guard is not None:
        guard.dismiss()
    if lost:
        complain(f"{told(lost[0])}; the command ended with {code}")
        if running is not None and lost[0].reason != "unreachable":
            _record(running, exits.LOST)
        return exits.LOST
    return _release(lease, code, running)


def _record(running: Running, code: int) -> int:
    """Record the command's exit code; return dblock's."""
    try:
        running.record(code)
    except LockLost:
        return exits.LOST  # the release says why
    except DBLockError as failure:
        complain(
            f"could not record this run of {running.run.name!r} (it ended with {code}): {failure}"
        )
        if running.run.slot and code == exits.OK:  # so the job will run for that slot again
            return exits.code_of(failure)
    return code


def _release(lease: HeldLease | Semaphore, code: int, running: Running | None = None) -> int:
    """Record a run's end, if there is a run, and release the lease; return the exit code.

    It is the command's ``code``, unless the lease was lost, or the slot needs the record and dblock
    could not write it.
    """
    recorded = code if running is None else _record(running, code)
    try:
        if running is None:
            lease.release()
        else:
            running.release(exits.LOST)
    except LockLost as loss:
        complain(f"{told(loss)}; the command ended with {code}")
        return exits.LOST
    except DBLockError as failure:
        complain(f"could not release {lease.name!r}, so it stays until it expires: {failure}")
    return recorded
