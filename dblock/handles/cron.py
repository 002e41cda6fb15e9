"""Jobs: several hosts start a command or a function, and one of them runs it."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from ..arguments import Seconds, check_after, check_label
from ..decorating import check_runnable, wraps
from ..errors import DBLockError, LockLost
from ..protocol import job_runs
from ..protocol.job_runs import JobRun
from .periods import check_period, check_slot, check_together, check_zone, slot_at

if TYPE_CHECKING:
    from ..holding.database import Database
    from ..lock_state import RunState
    from .lease import Lease, TakeableLease

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

logger = logging.getLogger("dblock")

SUCCEEDED, FAILED = 0, 1


class Terms(NamedTuple):
    """How long a job keeps its name, and in which slots it succeeds once; see :class:`Job`."""

    at_least: Seconds
    at_most: float | None
    once_per: str | None
    once_for: str | None
    tz: str | tzinfo | None


class Job:
    """The lease that a job's runs hold, and the record of the runs.

    A run keeps the name for ``at_least`` seconds from its start, even if it ends earlier. After
    ``at_most`` seconds its lease is lost; None is no limit. ``once_for`` is the slot in which the
    job succeeds once. With the period ``once_per`` the database's clock gives the slot, in UTC or
    in the time zone ``tz``. Runs that share the lease have no record, since they share its fence.
    """

    def __init__(
        self, database: Database, lease: TakeableLease, terms: Terms, *, label: str | None
    ) -> None:
        at_least, at_most, once_per, once_for, tz = terms
        self.database = database
        self.lease = lease
        self.at_least = check_after(at_least, "at_least")
        self.period = None if once_per is None else check_period(once_per)
        self.own_slot = "" if once_for is None else check_slot(once_for, "once_for")
        self.zone = check_zone(tz)
        check_together(self.at_least, at_most, once_per, once_for, self.zone)
        lease._last(self.at_least)
        self.recorded = not lease._shares
        self.owner = functools.partial(database.owner, check_label(label or ""))

    def take(self) -> Running | None:
        """Get the lease and begin a run. If there is nothing to run, log that and return None."""
        slot = self.slot()
        refusal = self.lease._acquire(self.lease.wait)
        if refusal is not None:
            logger.info("a run was skipped: %s", refusal)
            return None
        running = self.begin(slot)
        if running is None:
            logger.info("a run was skipped: %r has succeeded for %r", self.lease.name, slot)
        return running

    def slot(self) -> str:
        """Return the slot of a run that begins now, "" if the job has no slots."""
        if self.period is None:
            return self.own_slot
        database = self.database
        moment = database.run(job_runs.clock(database.exchange()))
        return slot_at(self.period, moment, self.zone)

    def begin(self, slot: str) -> Running | None:
        """Record that a run begins. The caller holds the lease.

        If the job has succeeded in the slot, release the lease and return None. Raises LockLost if
        the lease is lost by now.
        """
        since = self.database.runtime.now()
        run = JobRun(self.lease.name, slot, self.lease.fence)
        exchange = self.database.exchange(run.name)
        try:
            begun = not self.recorded or self.database.run(
                job_runs.begin(exchange, run, self.owner())
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
        """Return the run that began last, on any host; None if none is on record."""
        database = self.database
        return database.run(job_runs.last(database.exchange(self.lease.name)))


@dataclass(frozen=True, slots=True)
class Running:
    """A run of a job that has begun. :meth:`end` it, or :meth:`record` and :meth:`release`."""

    job: Job
    run: JobRun
    since: float

    def record(self, status: int) -> None:
        """Record the exit status.

        Raises Unavailable if dblock cannot, and LockLost if a later run is on record instead.
        """
        if not self.job.recorded:
            return
        database = self.job.database
        database.run(job_runs.end(database.exchange(self.run.name), self.run, status))

    def release(self, lost: int = FAILED) -> None:
        """Release the lease, or let it expire later if the run keeps the name for longer.

        If the lease turns out to be lost, the run has not succeeded: it gets the status ``lost``.
        """
        runtime = self.job.database.runtime
        rest = max(0.0, self.since + self.job.at_least - runtime.now())
        try:
            # Not `release`: a shared lease's has no `after`.
            runtime.finish(functools.partial(self.job.lease._release, rest))
        except LockLost:
            with contextlib.suppress(DBLockError):
                self.record(lost)
            raise

    def end(self, status: int = SUCCEEDED) -> None:
        """Record the status and release the lease, even if the caller is cancelled meanwhile."""

        def end() -> None:
            try:
                self.record(status)
            finally:
                self.release()

        self.job.database.runtime.finish(end)

    def fail(self, error: BaseException) -> None:
        """End the run after an error of the function.

        The caller goes on to raise ``error``. If ending fails too, a note on ``error`` says so.
        """
        try:
            self.end(FAILED)
        except DBLockError as failure:
            if failure is not error:
                error.add_note(f"{type(failure).__name__} at the end of {self!r}: {failure}")

    def __repr__(self) -> str:
        return f"<run of {self.run.name!r}>"


class CronJob(Protocol[P, T_co]):
    """A job, made of a function by :meth:`Locks.cron`. It is a plain function, because task queues
    register functions.

    Call it to run the job. The call returns the function's result. It returns None if dblock
    skipped the run, because another process runs the job or because the job has succeeded in its
    slot. dblock logs that.

    ``lease`` is the lease of the runs. The function can use ``lease.check()`` and ``lease.fence``.

    The call raises LockLost if the lease was lost before the function ended.
    """

    __name__: str
    lease: Lease

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co | None: ...

    def last_run(self) -> RunState | None:
        """Return the run that began last, on any host; None if none is on record."""


class Cron:
    """The decorator that :meth:`Locks.cron` returns."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, function: Callable[P, T]) -> CronJob[P, T]:
        job = self._job

        @wraps(check_runnable(function))
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
