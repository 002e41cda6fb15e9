"""The locks' handles under ``await``: each method is the sync one, run through the bridge."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from abc import ABC
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Self, TypeVar
from weakref import WeakKeyDictionary

from ..arguments import Seconds
from ..errors import LockLost
from ..handle import Handle
from ..holds import LeaseHold
from ..lease import Lease
from ..row import RowLock
from ..together import Together
from .borrowing import AsyncBorrowable, sync_of
from .bridge import this_task

if TYPE_CHECKING:
    from .locks import AsyncLocks
    from .world import TaskEvent

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound=Handle)


class AsyncHandle(ABC, Generic[H]):
    """A lock that can be taken and given back by tasks. ``sync`` is what does it."""

    def __init__(self, locks: AsyncLocks, sync: H) -> None:
        self._locks = locks
        self.sync = sync

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"

    def __reduce__(self) -> NoReturn:
        self.sync.__reduce__()
        raise AssertionError("not reached")

    @property
    def wait(self) -> float | None:
        return self.sync.wait

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; True when it is held now. The signature is threading.Lock's.

        A caller that is cancelled does not hold it, and neither does anybody for it.
        """
        return await self._locks.run(self.sync.acquire, blocking, timeout)

    async def release(self) -> None:
        """Give the lock back. A caller that is cancelled meanwhile has still done so."""
        await self._locks.run(self.sync.release)

    async def __aenter__(self) -> Self:
        await self._locks.run(self.sync.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._locks.run(self.sync.__exit__, kind, error, traceback)

    def __call__(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """Decorate a coroutine function to run while holding the lock."""
        if not inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{function!r} is no coroutine function: only an `async def` can await its lock"
            )

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> T:
            async with self:
                return await function(*args, **kwargs)

        return locked


class AsyncLease(AsyncHandle[Lease]):
    """A named lease, made by :meth:`AsyncLocks.lease`; see :class:`dblock.Lease`.

    What asks nobody (``held``, ``fence``, ``token``, ``remaining``, ``check()``, ``lost``) is not
    awaited.
    """

    def __init__(
        self, locks: AsyncLocks, make: Callable[..., Lease], *, cancel_on_loss: bool, **options: Any
    ) -> None:
        self._bodies: WeakKeyDictionary[LeaseHold, Body] = WeakKeyDictionary()
        self._cancel_on_loss = cancel_on_loss
        self._on_lost: Callable[[LockLost], object] | None = options["on_lost"]
        if cancel_on_loss or self._on_lost is not None:
            options["on_lost"] = locks.here(self._lose)
        if options["on_danger"] is not None:
            options["on_danger"] = locks.here(options["on_danger"])
        super().__init__(locks, make(**options))

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def ttl(self) -> float:
        """The seconds for which it is acquired and renewed."""
        return self.sync.ttl

    @property
    def held(self) -> bool:
        """Whether this handle holds the lease, by the holder's own clock. No round trip."""
        return self.sync.held

    @property
    def fence(self) -> int:
        """The fencing token of this hold; see :attr:`dblock.Lease.fence`."""
        return self.sync.fence

    @property
    def token(self) -> str:
        """The random proof of ownership that every statement carries. Raises NotHeld."""
        return self.sync.token

    @property
    def remaining(self) -> float:
        """Seconds for which the holder may still act, 0.0 when it may not. No round trip."""
        return self.sync.remaining

    @property
    def lost(self) -> TaskEvent:
        """An event (``is_set()``, ``await wait()``) that is set when the hold is lost."""
        event: Any = self.sync.lost
        return event  # type: ignore[no-any-return]

    def check(self) -> None:
        """Return if the lease is still held by the holder's own clock; raise LockLost if not."""
        self.sync.check()

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Move the expiry to ``ttl`` seconds from now; see :meth:`dblock.Lease.renew`."""
        await self._locks.run(self.sync.renew, ttl)

    async def locked(self) -> bool:
        """Return whether anybody holds a lease on the name, by the database's clock."""
        return await self._locks.run(self.sync.locked)

    @contextlib.asynccontextmanager
    async def guard(self, session: AsyncBorrowable) -> AsyncIterator[int]:
        """Prove the lease inside the transaction of ``session``; see :meth:`dblock.Lease.guard`."""
        proof = self.sync.guard(sync_of(session))
        yield await self._locks.run(proof.__enter__)

    # --- a body that is cancelled when the lease is lost -------------------------------------

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        hold = self.sync.current()
        if self._cancel_on_loss and hold is not None and hold.count == 1:
            self._bodies[hold] = body = Body(this_task())
            if hold.loss is not None:  # meanwhile
                body.lose(hold.loss)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        hold = self.sync.current()
        body = None
        if hold is not None and hold.count == 1:
            body = self._bodies.pop(hold, None)
        loss = None if body is None else body.end(error)
        if loss is None:
            await super().__aexit__(kind, error, traceback)
            return
        # The cancellation was the loss's alone: the body ended as one that was not cancelled.
        with contextlib.suppress(LockLost):
            await super().__aexit__(None, None, None)
        raise loss from error

    def _lose(self, loss: LockLost) -> None:
        for hold, body in list(self._bodies.items()):
            if hold.loss is loss:
                body.lose(loss)
        if self._on_lost is not None:
            self._on_lost(loss)


class Body:
    """What runs inside ``async with`` and is cancelled by a loss, as by :func:`asyncio.timeout`."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._cancelling = task.cancelling()
        self._loss: LockLost | None = None

    def lose(self, loss: LockLost) -> None:
        """Cancel it. Called in the task's own loop."""
        if self._loss is None:
            self._loss = loss
            self._task.cancel(f"{loss}")

    def end(self, error: BaseException | None) -> LockLost | None:
        """Return the loss that ``error`` is the cancellation of; None when it is anything else."""
        if self._loss is None:
            return None
        others = self._task.uncancel() > self._cancelling
        if others or not isinstance(error, asyncio.CancelledError):
            return None
        return self._loss


class AsyncRowLock(AsyncHandle[RowLock]):
    """A named row lock, made by :meth:`AsyncLocks.row`; see :class:`dblock.RowLock`."""

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def borrowed(self) -> bool:
        """Whether the lock is in a transaction of the user's, and ends with it."""
        return self.sync.borrowed

    @property
    def held(self) -> bool:
        """Whether the row is locked, as far as is known without asking the server."""
        return self.sync.held

    async def check(self) -> None:
        """Ask the server whether the lock's own transaction is still there; LockLost if not."""
        await self._locks.run(self.sync.check)


class AsyncTogether(AsyncHandle[Together]):
    """Locks taken as one, made by :meth:`AsyncLocks.all`; see :class:`dblock.Together`."""

    @property
    def held(self) -> bool:
        """Whether every one of the locks is held."""
        return self.sync.held
