"""The locks of a database in Django's settings, and their handles, adapted to atomic blocks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.core.signals import setting_changed
from django.db import connections
from django.db.backends.base.base import NO_DB_ALIAS, BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models.signals import pre_migrate
from django.utils.asyncio import async_unsafe

from ...arguments import Seconds
from ...decorating import is_coroutine_function, wraps
from ...errors import DBLockError, DeadlockDetected, NotAcquired, Unsupported
from ...handles.attached import AttachedLease
from ...handles.base import log_skipped
from ...handles.election import Election, Leadership
from ...handles.lease import Lease
from ...handles.once import Once
from ...handles.options import AttachKeywords, ElectionKeywords, LeaseKeywords, SkipKeywords
from ...handles.row import RowLock
from ...handles.semaphore import Semaphore
from ...handles.shared import SharedLease
from ...holding.holds import RowHold
from ...locks import Classes, Locks
from ...policy import Timeouts
from . import conf, in_thread
from .alias import alias as locks_alias
from .atomic import unfinished
from .engine import alias_of, engine, in_memory
from .writer import obstacle

if TYPE_CHECKING:
    from ...counters.numbers import Number
    from ...holding.database import Database
    from ...holding.lease_hold import LeaseHold
    from ...policy import RetryPolicy
    from .counter import ModelCounter

P = ParamSpec("P")
T = TypeVar("T")


class Skipping(Protocol):
    """The decorator that :meth:`DjangoLocks.skip` returns; a coroutine function stays one."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Callable[P, Coroutine[Any, Any, T | None]]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Callable[P, T | None]: ...


class DjangoLocks(Locks):
    """The locks in one database of ``DATABASES``. See :class:`dblock.Locks`.

    dblock takes a row lock in the atomic block around it, if there is one, and otherwise in a
    transaction of its own. If the ``with`` of a lease ends inside an atomic block, dblock releases
    the lease after the block's commit or rollback: until then no other process could see the
    changes that the holder made.
    """

    def __init__(self, alias: str) -> None:
        read = conf.conf()
        timeouts = Timeouts(**read.timeouts)
        self.alias = alias
        super().__init__(
            engine(alias, timeouts),
            timeouts=timeouts,
            schema=read.schema,
            prefix=read.prefix,
            label=read.label,
            trust_server=read.trust_server,
        )
        self.dialect.upgraded_by = f"manage.py migrate dblock --database {alias}"
        self.database.whereabouts.alone = lambda: in_memory(connections[alias])
        _all.add(self)

    def lease(
        self,
        name: str,
        **options: Unpack[LeaseKeywords[None]],
    ) -> DjangoLease:
        """Return a lease. See :meth:`dblock.Locks.lease`, also for the ``options``."""
        return cast("DjangoLease", super().lease(name, **options))

    def shared(
        self,
        name: str,
        **options: Unpack[LeaseKeywords[None]],
    ) -> DjangoSharedLease:
        """Return a lease that others may share. See :meth:`dblock.Locks.shared`."""
        return cast("DjangoSharedLease", super().shared(name, **options))

    def attach(self, text: str, **options: Unpack[AttachKeywords[None]]) -> DjangoAttachedLease:
        """Return a lease that goes on with a hold. See :meth:`dblock.Locks.attach`."""
        return cast("DjangoAttachedLease", super().attach(text, **options))

    def election(self, name: str, **options: Unpack[ElectionKeywords[None]]) -> DjangoElection:
        """Return an election. See :meth:`dblock.Locks.election`, also for the ``options``."""
        return cast("DjangoElection", super().election(name, **options))

    def row(
        self,
        name: str,
        *,
        wait: Seconds | None = None,
        on: Any = None,
        retry: RetryPolicy | None = None,
    ) -> DjangoRow:
        """Return a row lock. ``on`` is a connection of Django's or its alias, or what it is for
        :meth:`dblock.Locks.row`; None for the atomic block around it, if there is one."""
        return cast("DjangoRow", super().row(name, wait=wait, on=on, retry=retry))

    def counter(  # type: ignore[override]  # in models, where there is no session to be told
        self,
        field: Any,
        *,
        key: Any = None,
        version: Any = None,
        floor: Number | None = 0,
        retry: RetryPolicy | None = None,
        stripes: None = None,
    ) -> ModelCounter:
        """Return a counter over a field of a model, as ``Product.stock``, in this database.

        ``key`` is the field that finds a row: the primary key, or another one that is unique.
        ``version`` and ``floor`` are as for :meth:`dblock.Locks.counter`. There are no ``stripes``.
        """
        options = {"key": key, "version": version, "floor": floor, "stripes": stripes}
        return model_counter(self.alias, field, retry=retry, **options)

    def once(  # type: ignore[override]
        self,
        key: str,
        *,
        on: Any = None,
        fingerprint: Any = None,
        keep: Seconds = 24 * 3600.0,
        wait: Seconds | None = None,
    ) -> Once:
        """Return a call that is made once, in the atomic block around it.

        ``on`` is another connection of Django's, or its alias. See :meth:`dblock.Locks.once`.
        """
        given: Any = alias_of(self.engine) if on is None else on
        if isinstance(given, str):
            given = connections[given]
        return super().once(given, key, fingerprint=fingerprint, keep=keep, wait=wait)

    def skip(self, name: str, **options: Unpack[SkipKeywords[None]]) -> Skipping:
        """Decorate a task to do nothing, and return None, while another runs it.

        The task may be a coroutine function. See :meth:`dblock.Locks.skip`.
        """
        return cast("Skipping", super().skip(name, **options))

    def disconnect(self) -> None:
        """Close dblock's connections, each one in use when it is put back. New ones are made when
        needed."""
        self.database.disconnect()

    def using(self, alias: str) -> DjangoLocks:
        """Return the locks in another database of ``DATABASES``."""
        return made(alias)


class DjangoLease(Lease):
    """A lease; see :class:`dblock.Lease`. In coroutines ``async with`` runs it in a thread."""

    @async_unsafe
    def try_within(self, wait: float | None) -> NotAcquired | None:
        return self.refuse(wait) or super().try_within(wait)

    def refuse(self, wait: float | None) -> NotAcquired | None:
        """Return the refusal if this thread would wait for itself, or raise DeadlockDetected."""
        why = self._obstacle()
        if why is not None and wait == 0:
            return NotAcquired(f"{self.name!r} was not acquired: {why}", name=self.name)
        if why is not None:
            raise DeadlockDetected(f"{self.name!r} was not acquired: {why}", name=self.name)
        return None

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

    def guard(self, session: Any = None) -> contextlib.AbstractContextManager[int]:  # type: ignore[override]
        """Prove the lease inside the atomic block around it. See :meth:`dblock.Lease.guard`."""
        if session is None:
            session = connections[alias_of(self._database.engine)]
        return super().guard(session)

    def leave(self) -> None:
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
            refusal = await in_thread.take(partial(self.try_within, 0), self.release)
            if refusal is not None:
                log_skipped(function, refusal)
                return None
            async with contextlib.AsyncExitStack() as taken:
                taken.push_async_exit(self)
                return await coroutine(*args, **kwargs)

        return cast("Callable[P, T | None]", skipping)


class DjangoAttachedLease(DjangoLease, AttachedLease):
    """A lease whose hold was detached elsewhere; see :class:`~dblock.AttachedLease`."""


class DjangoSharedLease(SharedLease, DjangoLease):
    """A lease that others may share; see :class:`dblock.SharedLease`."""


class DjangoLeadership(Leadership, DjangoLease):
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
    def try_within(self, wait: float | None) -> NotAcquired | None:
        lease = self._lease
        assert isinstance(lease, DjangoLease)
        return lease.refuse(wait) or super().try_within(wait)


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
    def try_within(self, wait: float | None) -> NotAcquired | None:
        if self._on is None:
            self._refuse_block_elsewhere()
        return super().try_within(wait)

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


DjangoLocks._classes = Classes(
    DjangoLease, DjangoAttachedLease, DjangoRow, DjangoElection, DjangoSemaphore, DjangoSharedLease
)


def model_counter(alias: str | None, field: Any, **options: Any) -> ModelCounter:
    """Return a counter in a database; for None, in the one that the router names for the model."""
    from .counter import ModelCounter  # here, because it imports SQLAlchemy's ORM, which takes long

    return ModelCounter(counting, alias, field, **options)


_all: WeakSet[DjangoLocks] = WeakSet()
_made: dict[str, DjangoLocks] = {}
_counting: dict[str, DjangoLocks] = {}
_making = threading.Lock()


def made(alias: str | None) -> DjangoLocks:
    """Return the locks of an alias, made at the first call. No I/O."""
    return _once(_made, locks_alias() if alias is None else alias)


def counting(alias: str) -> DjangoLocks:
    """Return the locks for the counters of an alias.

    They are other locks than :func:`made` returns: dblock.testing moves these to a database of its
    own, but a counter stays where its table is.
    """
    return _once(_counting, alias)


def _once(those: dict[str, DjangoLocks], alias: str) -> DjangoLocks:
    with _making:
        if alias not in those:
            those[alias] = DjangoLocks(alias)
        return those[alias]


def _forget(*, setting: str, **signal: Any) -> None:
    """Forget all locks when settings change: a test's ``override_settings(DBLOCK=...)`` needs it.

    A function that was decorated before keeps its locks, so they are not closed.
    """
    if setting in ("DBLOCK", "DATABASES"):
        with _making:
            _made.clear()
            _counting.clear()
        _disconnect()


def _before_ddl(*, connection: BaseDatabaseWrapper, **signal: Any) -> None:
    """Close dblock's connections when Django connects to no database: it is about to create, copy
    or drop a test database."""
    if connection.alias == NO_DB_ALIAS:
        for locks in _disconnect():
            locks.database.keeper().stop(locks.database, "a database was made or dropped")


def _before_migrations(*, using: str, **signal: Any) -> None:
    """Close the connections to the alias's former database: a test database has replaced it."""
    _disconnect(using)


def _disconnect(alias: str | None = None) -> list[DjangoLocks]:
    found = [locks for locks in list(_all) if alias in (None, locks.alias)]
    for locks in found:
        locks.disconnect()
    return found


setting_changed.connect(_forget)
connection_created.connect(_before_ddl)
pre_migrate.connect(_before_migrations)
