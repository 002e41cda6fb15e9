"""Jobs: a command or a function that several hosts start and one of them runs."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from .arguments import (
    Seconds,
    check_after,
    check_label,
    check_max_hold,
    check_name,
    check_runnable,
    check_zone,
)
from .errors import DBLockError, LockLost
from .protocol import job_runs
from .protocol.job_runs import PERIODS, JobRun

if TYPE_CHECKING:
    from .database import Database
    from .lease import Lease
    from .lock_state import RunState

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

logger = logging.getLogger("dblock")

SUCCEEDED, FAILED = 0, 1


class Job:
    """A lease that is held for a job's runs, and the record of these.

    ``at_least`` is for how long from its start a run keeps the name, also when it ends earlier;
    ``once_per`` names the slot that runs successfully once, or the period that the database's
    clock makes slots of, in UTC or in the time zone ``tz``.
    """

    def __init__(
        self,
        database: Database,
        lease: Lease,
        *,
        at_least: Seconds,
        at_most: Seconds | None,
        once_per: str | None,
        tz: str | tzinfo | None,
        label: str | None,
    ) -> None:
        self.database = database
        self.lease = lease
        self.at_least = check_after(at_least, "at_least")
        longest = check_max_hold(at_most, "at_most")
        if longest is not None and self.at_least > longest:
            raise ValueError(f"at_least ({at_least!r}) is longer than at_most ({at_most!r})")
        lease._last(self.at_least)
        self.once_per = None if once_per is None else check_name(once_per, "once_per")
        self.zone = check_zone(tz)
        if self.zone is not None and self.once_per not in PERIODS:
            periods = ", ".join(PERIODS)
            raise ValueError(
                f"a time zone goes with a period of once_per ({periods}), not {once_per!r}"
            )
        self.owner = functools.partial(database.owner, check_label(label or ""))

    def take(self) -> Running | None:
        """Get the lease and begin a run; None, and a line in the log, when there is to be none."""
        slot = self.slot()
        refusal = self.lease.try_within(self.lease.wait)
        if refusal is not None:
            logger.info("a run was skipped: %s", refusal)
            return None
        running = self.begin(slot)
        if running is None:
            logger.info("a run was skipped: %r has run for %r", self.lease.name, slot)
        return running

    def slot(self) -> str:
        """Return the slot of a run that begins now; the empty one is none."""
        if self.once_per not in PERIODS:
            return self.once_per or ""
        database = self.database
        moment = database.run(
            job_runs.clock(database.dialect, database.timeouts.socket, database.runtime.now())
        )
        return job_runs.slot_at(self.once_per, moment, self.zone)

    def begin(self, slot: str) -> Running | None:
        """Record that a run begins, the lease being held.

        None, and the lease given back, when one has succeeded in the slot. Raises LockLost when
        the lease did not last until now.
        """
        since = self.database.runtime.now()
        run = JobRun(self.lease.name, slot, self.lease.fence)
        patience = self.database.timeouts.socket
        try:
            begun = self.database.run(
                job_runs.begin(self.database.dialect, run, self.owner(), patience, since)
            )
        except BaseException:
            with contextlib.suppress(DBLockError):
                self.lease.release()
            raise
        if begun:
            self.lease.check()
            return Running(self, run, since)
        with contextlib.suppress(DBLockError):
            self.lease.release()
        return None

    def last_run(self) -> RunState | None:
        """Return the run that began last, on whichever host."""
        database = self.database
        return database.run(
            job_runs.last(database.dialect, self.lease.name, database.runtime.now())
        )


@dataclass(frozen=True, slots=True)
class Running:
    """A run of a job that has begun. :meth:`end` it, or :meth:`record` and :meth:`release`."""

    job: Job
    run: JobRun
    since: float

    def record(self, status: int) -> None:
        """Record the exit status.

        Raises Unavailable where it cannot be, LockLost when a later run is on record instead.
        """
        database = self.job.database
        patience, now = database.timeouts.socket, database.runtime.now()
        database.run(job_runs.end(database.dialect, self.run, status, patience, now))

    def release(self, lost: int = FAILED) -> None:
        """Give the lease back, or let it run out where the run is to count for longer.

        A run whose lease turns out to be lost is no success: it has the status ``lost``.
        """
        rest = self.since + self.job.at_least - self.job.database.runtime.now()
        try:
            self.job.lease.release(after=max(0.0, rest))
        except LockLost:
            with contextlib.suppress(DBLockError):
                self.record(lost)
            raise

    def end(self, status: int = SUCCEEDED) -> None:
        """Do both, whoever is cancelled meanwhile."""

        def end() -> None:
            try:
                self.record(status)
            finally:
                self.release()

        self.job.database.runtime.finish(end)

    def fail(self, error: BaseException) -> None:
        """Do both after an error of the function's own, which goes on and tells of the loss too."""
        try:
            self.end(FAILED)
        except DBLockError as failure:
            if failure is not error:
                error.add_note(f"{type(failure).__name__} at the end of {self!r}: {failure}")

    def __repr__(self) -> str:
        return f"<run of {self.run.name!r}>"


class CronJob(Protocol[P, T_co]):
    """What :meth:`Locks.cron` makes of a function: a function too, as queues want their tasks.

    Calling it returns what the function returns, or None when the run was skipped: another has
    the job, or it has run in its slot. That is logged, and no error.

    ``lease`` is the lease it runs under, for ``lease.check()`` and ``lease.fence`` in the function.
    """

    __name__: str
    lease: Lease

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co | None: ...

    def last_run(self) -> RunState | None:
        """Return the run that began last, on whichever host."""


class Cron:
    """The decorator that :meth:`Locks.cron` returns."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, function: Callable[P, T]) -> CronJob[P, T]:
        job = self._job

        @functools.wraps(check_runnable(function))
        def run(*args: P.args, **kwargs: P.kwargs) -> T | None:
            running = job.take()
            if running is None:
                return None
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                running.fail(error)
                raise
            running.end()
            return result

        made: Any = run
        made.lease, made.last_run = job.lease, job.last_run
        return cast("CronJob[P, T]", made)
