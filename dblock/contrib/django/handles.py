"""The locks of a database in Django's settings, made once for each alias."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from django.db import connections

from ...arguments import Seconds
from ...errors import Unsupported
from ...handles.makers import Classes
from ...handles.once import Once
from ...handles.options import AttachKeywords, ElectionKeywords, LeaseKeywords, SkipKeywords
from ...locks import Locks
from ...policy import Timeouts
from . import conf
from .atomic_handles import (
    DjangoAttachedLease,
    DjangoElection,
    DjangoLeadership,
    DjangoLease,
    DjangoRow,
    DjangoSemaphore,
    DjangoSharedLease,
)
from .engine import alias_of, engine, in_memory
from .registry import Registry
from .signals import connect

if TYPE_CHECKING:
    from ...counters.numbers import Number
    from ...policy import RetryPolicy
    from .counter import ModelCounter

# The types that a user meets, in one place.
__all__ = [
    "DjangoAttachedLease",
    "DjangoElection",
    "DjangoLeadership",
    "DjangoLease",
    "DjangoLocks",
    "DjangoRow",
    "DjangoSemaphore",
    "DjangoSharedLease",
    "Skipping",
]

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
        self._database.dialect.upgraded_by = f"manage.py migrate dblock --database {alias}"
        self._database.whereabouts.alone = lambda: in_memory(connections[alias])
        _registry.note(self)

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

    def once(  # type: ignore[override]  # without a session: the atomic block is the transaction
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
        self._database.disconnect()

    def using(self, alias: str) -> DjangoLocks:
        """Return the locks in another database of ``DATABASES``."""
        return made(alias)


DjangoLocks._classes = Classes(
    DjangoLease, DjangoAttachedLease, DjangoRow, DjangoElection, DjangoSemaphore, DjangoSharedLease
)


def model_counter(
    alias: str | None, field: Any, stripes: None = None, **options: Any
) -> ModelCounter:
    """Return a counter in a database; for None, in the one that the router names for the model."""
    if stripes is not None:
        raise Unsupported(
            "a counter on a field of a model has no stripes, because it counts in one row: "
            "dblock.Locks.counter has them, for a table of SQLAlchemy"
        )
    from .counter import ModelCounter  # here, because it imports SQLAlchemy's ORM, which takes long

    return ModelCounter(counting, alias, field, **options)


_registry = Registry(DjangoLocks)
made, counting = _registry.made, _registry.counting
connect(_registry)
