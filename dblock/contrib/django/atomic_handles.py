"""The handles of locks, adapted to Django's atomic blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils.asyncio import async_unsafe

from ...arguments import Seconds
from ...decorating import is_coroutine_function, wraps
from ...errors import DBLockError, DeadlockDetected, NotAcquired, Unsupported
from ...handles.attached import AttachedLease
from ...handles.base import log_skipped
from ...handles.election import Election, Leadership
from ...handles.held import HeldLease
from ...handles.lease import Lease, TakeableLease
from ...handles.row import RowLock
from ...handles.semaphore import Semaphore
from ...handles.shared import SharedLease
from ...holding.holds import RowHold
from . import in_thread
from .atomic import unfinished
from .engine import alias_of
from .writer import obstacle

if TYPE_CHECKING:
    from ...holding.database import Database
    from ...holding.lease_hold import LeaseHold
    from ...policy import RetryPolicy

P = ParamSpec("P")
T = TypeVar("T")


class DjangoHeldLease(HeldLease):
    """A lease as its holder uses it, also in atomic blocks."""

    def renew(self, ttl: Seconds | None = None) -> None:
        """See :meth:`dblock.Lease.renew`."""
        self._refuse("renewed")
        super().renew(ttl)

    def _end(self, hold: LeaseHold, after: float = 0.0) -> None:
        self._refuse("released")
        super()._end(hold, after)

    def _refuse(self, doing: str) -> None:
        why = self._obstacle()
        if why is not None:
            raise DeadlockDetected(f"{self.name!r} cannot be {doing}: {why}", name=self.name)

    def _obstacle(self) -> str | None:
        """Return why this thread would wait for itself, if its holds of dblock's do not show it."""
        known = self._database.callers.has_row(None, None)
        return None if known else obstacle(self._database)

    @contextlib.contextmanager
    def guard(self, session: Any = None) -> Iterator[int]:
        """Prove the lease inside the atomic block around it. See :meth:`dblock.Lease.guard`."""
        if session is None:
            session = connections[alias_of(self._database.engine)]
        with super().guard(session) as fence:
            yield fence

    def _leave(self) -> None:
        if self._forget_detached():
            return
        wrapper = unfinished()
        if wrapper is None or (hold := self._holds.get()).count > 1:
            self.release()
            return
        self.check()
        wrapper.on_commit(_Later(partial(self._end_later, hold)).release, robust=True)

    def _end_later(self, hold: LeaseHold) -> None:
        if not self._forget_detached():  # an earlier callback may have detached the hold
            self._end(hold)

    async def __aenter__(self) -> Self:
        def enter() -> None:
            self.__enter__()

        await in_thread.take(enter, self.release)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await in_thread.finish(sync_to_async(self.__exit__)(kind, error, traceback))


class DjangoTakeableLease(DjangoHeldLease, TakeableLease):
    """A lease that callers take, in coroutines too."""

    @async_unsafe
    def _acquire(self, wait: float | None) -> NotAcquired | None:
        return self._refusal(wait) or super()._acquire(wait)

    def _refusal(self, wait: float | None) -> NotAcquired | None:
        """Return the refusal if this thread would wait for itself, or raise DeadlockDetected."""
        why = self._obstacle()
        if why is not None and wait == 0:
            return NotAcquired(f"{self.name!r} was not acquired: {why}", name=self.name)
        if why is not None:
            raise DeadlockDetected(f"{self.name!r} was not acquired: {why}", name=self.name)
        return None

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        if not is_coroutine_function(function):
            return super().__call__(function)
        coroutine = cast("Callable[P, Coroutine[Any, Any, T]]", function)

        @wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> T:
            async with self:
                return await coroutine(*args, **kwargs)

        return cast("Callable[P, T]", locked)

    def _skipping(self, function: Callable[P, T]) -> Callable[P, T | None]:
        if not is_coroutine_function(function):
            return super()._skipping(function)
        coroutine = cast("Callable[P, Coroutine[Any, Any, T]]", function)

        @wraps(function)
        async def skipping(*args: P.args, **kwargs: P.kwargs) -> T | None:
            refusal = await in_thread.take(partial(self._acquire, 0), self.release)
            if refusal is not None:
                log_skipped(function, refusal)
                return None
            async with contextlib.AsyncExitStack() as taken:
                taken.push_async_exit(self)
                return await coroutine(*args, **kwargs)

        return cast("Callable[P, T | None]", skipping)


class DjangoLease(DjangoTakeableLease, Lease):
    """A lease; see :class:`dblock.Lease`. In coroutines ``async with`` runs it in a thread."""


class DjangoAttachedLease(DjangoLease, AttachedLease):
    """A lease whose hold was detached elsewhere; see :class:`~dblock.AttachedLease`."""


class DjangoSharedLease(SharedLease, DjangoTakeableLease):
    """A lease that others may share; see :class:`dblock.SharedLease`."""


class DjangoLeadership(Leadership, DjangoHeldLease):
    """A term; see :class:`dblock.Leadership`."""


class DjangoElection(Election):
    """An election; see :class:`dblock.Election`."""

    term_class = DjangoLeadership

    def campaign(self, wait: Seconds | None = None) -> DjangoLeadership:
        """Return a term in which you lead. See :meth:`dblock.Election.campaign`."""
        return cast("DjangoLeadership", super().campaign(wait))


class _Later:
    """Ends a hold when Django calls it, after a commit, or drops it, at a rollback; in any
    thread."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end: Callable[[], None] | None = end

    def release(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()

    def __del__(self) -> None:
        with contextlib.suppress(DBLockError):
            self.release()


class DjangoSemaphore(Semaphore):
    """A semaphore, whose slots are as :class:`DjangoLease`; see :class:`dblock.Semaphore`."""

    @async_unsafe
    def _acquire(self, wait: float | None) -> NotAcquired | None:
        lease = self._lease
        assert isinstance(lease, DjangoLease)
        return lease._refusal(wait) or super()._acquire(wait)


class DjangoRow(RowLock):
    """A row lock; see :class:`dblock.RowLock`. ``on`` may also be an alias of ``DATABASES``."""

    def __init__(
        self,
        database: Database,
        name: str,
        wait: Seconds | None,
        on: Any,
        *,
        retry: RetryPolicy,
    ) -> None:
        given: Any = connections[on] if isinstance(on, str) else on
        self._given = given
        super().__init__(database, name, wait, self._given, retry=retry)

    @property
    def _on(self) -> Any:
        """The connection whose atomic block the row is locked in; None for a separate transaction.

        It is looked up each time: one handle serves requests with and without an atomic block.
        """
        mine = self._database.callers.find(self.name)
        if self._given is not None or isinstance(mine, RowHold):
            return self._given
        wrapper = connections[alias_of(self._database.engine)]
        return wrapper if wrapper.in_atomic_block else None

    @_on.setter
    def _on(self, on: Any) -> None:
        pass

    @async_unsafe
    def _acquire(self, wait: float | None) -> NotAcquired | None:
        if self._on is None:
            self._refuse_block_elsewhere()
        return super()._acquire(wait)

    def _refuse_block_elsewhere(self) -> None:
        """Raise Unsupported in an atomic block of another database: it would commit after this
        row lock has ended."""
        around, mine = unfinished(), alias_of(self._database.engine)
        if around is not None and around.alias != mine:
            raise Unsupported(
                f"the atomic block is in the database {around.alias!r}, and these locks are in "
                f"{mine!r}: a row lock would end before that block commits. Let the locks be in "
                f"the same database (DATABASE in DBLOCK, or the router), take it with "
                f"using({around.alias!r}).row({self.name!r}), or take a lease before the block",
                name=self.name,
            )

    @property
    def held(self) -> bool:
        if self._on is None:
            return super().held
        return self._database.callers.has_row(None, self.name)
