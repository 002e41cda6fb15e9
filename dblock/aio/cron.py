"""Jobs under ``await``."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from ..decorating import check_coroutine, wraps
from ..handles.cron import Job
from ..lock_state import RunState
from .handles import AsyncLease

if TYPE_CHECKING:
    from .bridge import Home

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class AsyncCronJob(Protocol[P, T_co]):
    """A job, made of a coroutine function by :meth:`AsyncLocks.cron`; see :class:`CronJob`.

    If a run is cancelled, it has failed: its slot stays open.
    """

    __name__: str
    lease: AsyncLease

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co | None: ...

    async def last_run(self) -> RunState | None:
        """Return the run that began last, on whichever host; None if none is on record."""


class AsyncCron:
    """The decorator that :meth:`AsyncLocks.cron` returns."""

    def __init__(self, home: Home, lease: AsyncLease, job: Job) -> None:
        self._home = home
        self._lease = lease
        self._job = job

    def __call__(self, function: Callable[P, Awaitable[T]]) -> AsyncCronJob[P, T]:
        check_coroutine(function)
        home, lease, job = self._home, self._lease, self._job

        @wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> T | None:
            running = await home.run(job.take)
            if running is None:
                return None
            lease._begin_body()
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                loss = lease._end_body(error)
                await home.run(running.fail, loss or error)
                if loss is not None:
                    raise loss from error
                raise
            lease._end_body(None)
            await home.run(running.end)
            return result

        made: Any = run
        made.lease, made.last_run = lease, functools.partial(home.run, job.last_run)
        return cast("AsyncCronJob[P, T]", made)
