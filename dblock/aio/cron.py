"""Jobs under ``await``."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from ..cron import Job
from ..lock_state import RunState
from .handles import AsyncLease, check_coroutine

if TYPE_CHECKING:
    from .home import Home

P = ParamSpec("P")
T = TypeVar("T")


class AsyncCronJob(Generic[P, T]):
    """A coroutine function decorated by :meth:`AsyncLocks.cron`; see :class:`dblock.CronJob`.

    If a run is cancelled, it has failed: its slot stays open.
    """

    def __init__(
        self,
        home: Home,
        lease: AsyncLease,
        job: Job,
        function: Callable[P, Awaitable[T]],
    ) -> None:
        check_coroutine(function)
        functools.update_wrapper(self, function)
        self.lease = lease
        self._home = home
        self._job = job
        self._function = function

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T | None:
        running = await self._home.run(self._job.take)
        if running is None:
            return None
        self.lease.begin_body()
        try:
            result = await self._function(*args, **kwargs)
        except BaseException as error:
            loss = self.lease.end_body(error)
            await self._home.run(running.fail, loss or error)
            if loss is not None:
                raise loss from error
            raise
        self.lease.end_body(None)
        await self._home.run(running.end)
        return result

    def __repr__(self) -> str:
        return f"<AsyncCronJob {self.lease.name!r}>"

    async def last_run(self) -> RunState | None:
        """Return the run that began last, on whichever host; None if none is on record."""
        return await self._home.run(self._job.last_run)


class AsyncCron:
    """The decorator that :meth:`AsyncLocks.cron` returns."""

    def __init__(self, home: Home, lease: AsyncLease, job: Job) -> None:
        self._home = home
        self._lease = lease
        self._job = job

    def __call__(self, function: Callable[P, Awaitable[T]]) -> AsyncCronJob[P, T]:
        return AsyncCronJob(self._home, self._lease, self._job, function)
