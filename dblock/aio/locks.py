"""AsyncLocks: one database as a lock server for the tasks of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import tzinfo
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, Unpack

from sqlalchemy.engine import URL, Engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ..arguments import Seconds, check_max_hold
from ..handles.cron import Job, Terms
from ..handles.options import (
    AttachKeywords,
    CronKeywords,
    ElectionKeywords,
    LeaseKeywords,
    SemaphoreKeywords,
    SkipKeywords,
    check_keywords,
)
from ..holding.database import Database
from ..io.target import Drivers, address, resolve
from ..locks import Locks
from ..policy import RetryPolicy, Timeouts
from . import bridge
from .adapters import ASYNC_ADAPTERS
from .bridge import Home
from .counter import AsyncCounter
from .cron import AsyncCron
from .detached import AsyncDetachedLease, AsyncDetachedSemaphore
from .election import AsyncElection
from .handles import (
    AsyncHandle,
    AsyncLease,
    AsyncMultiLock,
    AsyncOnce,
    AsyncRowLock,
    AsyncSemaphore,
    AsyncSharedLease,
)
from .holding import TaskHolds, keeper_here, keeper_in_thread, keeper_thread
from .operators import AsyncOperators
from .runtime import AsyncioRuntime
from .transactions import AsyncBorrowable, sync_of

if TYPE_CHECKING:
    from sqlalchemy.orm import InstrumentedAttribute
    from sqlalchemy.schema import Column

    from ..counters.numbers import Number
    from ..handles.rate import Rate

P = ParamSpec("P")
T = TypeVar("T")
Told = TypeVar("Told")


def _create(url: URL, **options: Any) -> Engine:
    return create_async_engine(url, **options).sync_engine


class Bridged(Locks):
    """The sync Locks, for tasks."""

    _resolve = staticmethod(partial(resolve, drivers=Drivers(ASYNC_ADAPTERS, _create)))
    _runtime = AsyncioRuntime
    _callers = TaskHolds

    def __init__(self, target: str | URL | Engine, *, keeper_thread: bool, **options: Any) -> None:
        self._keeper = keeper_in_thread if keeper_thread else keeper_here
        super().__init__(target, **options)


class AsyncLocks(AsyncOperators):
    """The locks in one database, for the tasks of one event loop.

    ``target``
        a database URL or a SQLAlchemy AsyncEngine.
    ``keeper``
        how dblock renews the leases: ``"task"`` renews them in your loop. ``"thread"`` uses a
        thread with its own connections, so it renews them even while your loop is blocked.

    All other arguments, and all errors, are the same as for :class:`dblock.Locks`.

    AsyncLocks belong to the event loop in which you first use them. In another loop they raise
    RuntimeError: make other AsyncLocks there. Close them (``async with AsyncLocks(...)`` or
    ``await locks.close()``) before the loop ends.
    """

    def __init__(
        self,
        target: str | URL | AsyncEngine,
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        schema: str | None = None,
        prefix: str = "dblock_",
        label: str | None = None,
        trust_server: bool = False,
        keeper: Literal["task", "thread"] = "task",
    ) -> None:
        if keeper not in ("task", "thread"):
            raise ValueError(f'keeper must be "task" or "thread", not {keeper!r}')
        self._keeper_thread = keeper == "thread"
        options: dict[str, Any] = {
            "timeouts": timeouts,
            "retry": retry,
            "schema": schema,
            "prefix": prefix,
            "label": label,
            "trust_server": trust_server,
        }
        #: Return AsyncLocks in the same tables for another event loop.
        self.for_another_loop: Callable[[], AsyncLocks] = partial(
            type(self), target, keeper=keeper, **options
        )
        #: The sync Locks that do the work. Not part of the public surface.
        self.sync: Locks = Bridged(
            target.sync_engine if isinstance(target, AsyncEngine) else target,
            keeper_thread=self._keeper_thread,
            **options,
        )
        self._home = Home(repr(self))
        self._database = self.sync._database
        if self._keeper_thread:
            database = self._database
            database.kept = Database(
                database.engine,
                database.dialect,
                database.label,
                lent=False,
                runtime=database.runtime,
                keeper=keeper_in_thread,
                callers=TaskHolds(),
            )

    def __repr__(self) -> str:
        return f"<AsyncLocks in {address(self.sync.engine.url)}>"

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call sync code in the calling task; not part of the public surface."""
        return await self._home.run(function, *args, **kwargs)

    # --- the strategies ----------------------------------------------------------------------

    def lease(
        self, name: str, *, cancel_on_loss: bool = False, **options: Unpack[LeaseKeywords[object]]
    ) -> AsyncLease:
        """Return a lease on ``name``; see :meth:`dblock.Locks.lease` for the arguments.

        With ``reentrant=True`` the holding task can take the lease again, and no other task can
        release it, not even a task that the holding task has started.

        dblock calls ``on_danger`` and ``on_lost`` in your loop. They may be coroutine functions.

        With ``cancel_on_loss=True`` dblock cancels the body of ``async with`` if the lease is lost,
        and ``async with`` raises LockLost. It works like :func:`asyncio.timeout`: a cancellation
        from another source stays a CancelledError.
        """
        return AsyncLease(self._home, self.sync.lease, name, cancel_on_loss, options)

    def skip(
        self, name: str, *, cancel_on_loss: bool = False, **options: Unpack[SkipKeywords[object]]
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T | None]]]:
        """Decorate a coroutine function: it holds a lease while it runs. While another
        holder has the lease, a call does nothing and returns None.

        See :meth:`dblock.Locks.skip`. The ``options`` are as in :meth:`lease`.
        """
        check_keywords("skip", options)
        return self.lease(name, cancel_on_loss=cancel_on_loss, wait=0, **options)._skipping

    def shared(
        self, name: str, *, cancel_on_loss: bool = False, **options: Unpack[LeaseKeywords[object]]
    ) -> AsyncSharedLease:
        """Return a lease on ``name`` that others may share; see :meth:`dblock.Locks.shared`.

        ``cancel_on_loss`` and the callbacks are as for :meth:`lease`.
        """
        return AsyncSharedLease(self._home, self.sync.shared, name, cancel_on_loss, options)

    def attach(
        self, text: str, *, cancel_on_loss: bool = False, **options: Unpack[AttachKeywords[object]]
    ) -> AsyncLease:
        """Return a lease that continues a detached hold; see :meth:`dblock.Locks.attach`.

        ``cancel_on_loss`` and the callbacks are as for :meth:`lease`.
        """
        return AsyncLease(self._home, self.sync.attach, text, cancel_on_loss, options)

    def detached(
        self,
        name: str,
        token: str | None = None,
        *,
        owner: str | None = None,
        shared: bool = False,
    ) -> AsyncDetachedLease:
        """Return a lease that belongs to its ``token``; see :meth:`dblock.Locks.detached`."""
        detached = self.sync.detached(name, token, owner=owner, shared=shared)
        return AsyncDetachedLease(self._home, detached)

    def detached_semaphore(
        self, name: str, limit: int, token: str | None = None, *, owner: str | None = None
    ) -> AsyncDetachedSemaphore:
        """Return a semaphore whose slots are taken by ``token``; see
        :meth:`dblock.Locks.detached_semaphore`."""
        detached = self.sync.detached_semaphore(name, limit, token, owner=owner)
        return AsyncDetachedSemaphore(self._home, detached)

    def detached_from(self, text: str, *, owner: str | None = None) -> AsyncDetachedLease:
        """Return the detached lease that the text of :meth:`AsyncLease.detach` names."""
        return AsyncDetachedLease(self._home, self.sync.detached_from(text, owner=owner))

    def row(
        self,
        name: str,
        *,
        wait: Seconds | None = None,
        on: AsyncBorrowable | None = None,
        retry: RetryPolicy | None = None,
    ) -> AsyncRowLock:
        """Return a row lock on ``name``, in the transaction of ``on``.

        ``on`` is an AsyncConnection, an AsyncSession or an async_scoped_session. Without it the row
        lock has its own transaction. See :meth:`dblock.Locks.row`.
        """
        given = None if on is None else sync_of(on)
        return AsyncRowLock(self._home, self.sync.row(name, wait=wait, on=given, retry=retry))

    def election(
        self,
        name: str,
        *,
        cancel_on_loss: bool = False,
        **options: Unpack[ElectionKeywords[object]],
    ) -> AsyncElection:
        """Return the election of the leader of ``name``; see :meth:`dblock.Locks.election`.

        ``on_danger``, ``on_lost`` and ``cancel_on_loss`` are as for :meth:`lease`.
        """
        return AsyncElection(self._home, self.sync.election, name, cancel_on_loss, options)

    def all(
        self, *locks: AsyncLease | AsyncSharedLease | AsyncRowLock, wait: Seconds | None = None
    ) -> AsyncMultiLock:
        """Return the given locks as one lock; see :meth:`dblock.Locks.all`."""
        for lock in locks:
            if not isinstance(lock, AsyncLease | AsyncSharedLease | AsyncRowLock):
                raise TypeError(
                    f"all() takes AsyncLocks' leases and row locks, not {type(lock).__name__}"
                )
        return AsyncMultiLock(self._home, self.sync.all(*(lock.sync for lock in locks), wait=wait))

    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        cancel_on_loss: bool = False,
        **options: Unpack[SemaphoreKeywords[object]],
    ) -> AsyncSemaphore:
        """Return a semaphore; see :meth:`dblock.Locks.semaphore` for the arguments.

        ``on_danger``, ``on_lost`` and ``cancel_on_loss`` are as for :meth:`lease`.
        """
        make = partial(self.sync.semaphore, limit=limit)
        return AsyncSemaphore(self._home, make, name, cancel_on_loss, options)

    def rate(
        self,
        name: str,
        limit: int,
        *,
        per: Seconds,
        burst: int | None = None,
        cost: int = 1,
        wait: Seconds | None = 0.0,
    ) -> AsyncHandle[Rate]:
        """Return a rate limit; see :meth:`dblock.Locks.rate`."""
        made = self.sync.rate(name, limit, per=per, burst=burst, cost=cost, wait=wait)
        return AsyncHandle(self._home, made)

    def cron(
        self,
        name: str,
        *,
        wait: Seconds | None = 0.0,
        at_least: Seconds = 0.0,
        at_most: Seconds | None = None,
        once_per: str | None = None,
        once_for: str | None = None,
        tz: str | tzinfo | None = None,
        cancel_on_loss: bool = False,
        **options: Unpack[CronKeywords[object]],
    ) -> AsyncCron:
        """Return a decorator for a coroutine function that is a job; see :meth:`dblock.Locks.cron`.

        With ``cancel_on_loss=True`` dblock cancels the run if its lease is lost or ``at_most`` is
        over, and the call raises LockLost.
        """
        longest = check_max_hold(at_most, "at_most")
        check_keywords("cron", options)
        lease = self.lease(
            name, wait=wait, max_hold=longest, cancel_on_loss=cancel_on_loss, **options
        )
        job = Job(
            self._database,
            lease.sync,
            Terms(at_least, longest, once_per, once_for, tz),
            label=options.get("label"),
        )
        return AsyncCron(self._home, lease, job)

    def counter(
        self,
        column: Column[Any] | InstrumentedAttribute[Any],
        *,
        key: Column[Any] | InstrumentedAttribute[Any],
        version: Column[Any] | InstrumentedAttribute[Any] | None = None,
        floor: Number | None = 0,
        stripes: int | None = None,
        retry: RetryPolicy | None = None,
    ) -> AsyncCounter:
        """Return a counter over a column of your table; see :meth:`dblock.Locks.counter`."""
        made = self.sync.counter(
            column, key=key, version=version, floor=floor, stripes=stripes, retry=retry
        )
        return AsyncCounter(self._home, made)

    def once(
        self,
        session: AsyncBorrowable,
        key: str,
        *,
        fingerprint: Any = None,
        keep: Seconds = 24 * 3600.0,
        wait: Seconds | None = None,
    ) -> AsyncOnce:
        """Return a call that takes effect once for its key; see :meth:`dblock.Locks.once`."""
        made = self.sync.once(sync_of(session), key, fingerprint=fingerprint, keep=keep, wait=wait)
        return AsyncOnce(self._home, made)

    # --- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the idle connections. dblock stops renewing held leases: they expire."""
        await self.run(self.sync.close)
        if self._keeper_thread:
            loop = keeper_thread().loop
            closing = asyncio.run_coroutine_threadsafe(_close(self._database.kept), loop)
            await asyncio.wrap_future(closing)
        await keeper_here().rest()
        await bridge.drain()  # the keeper's connections too

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


async def _close(database: Database) -> None:
    database.close()
    await bridge.drain()
