"""The handles under ``await``: each method runs the sync one through the bridge."""

from __future__ import annotations

import contextlib
from abc import ABC
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Self, TypeVar

from ..arguments import Seconds
from ..decorating import check_coroutine, wraps
from ..errors import LockLost, NotHeld
from ..handles.base import Handle, log_skipped
from ..handles.held import HeldLease
from ..handles.lease import Lease
from ..handles.multi import MultiLock
from ..handles.once import Once
from ..handles.row import RowLock
from ..handles.semaphore import Semaphore
from ..handles.shared import SharedLease
from .bodies import Bodies, awaited
from .transactions import AsyncBorrowable, sync_of

if TYPE_CHECKING:
    from .bridge import Home
    from .runtime import TaskEvent

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
C = TypeVar("C", bound=contextlib.AbstractContextManager[Any])
H = TypeVar("H", bound=Handle)
L = TypeVar("L", bound=HeldLease | Semaphore)
K = TypeVar("K", bound=HeldLease)


class AsyncSurface(Generic[S]):
    """An object for tasks. ``sync`` does the work, run through the bridge; it is not public."""

    def __init__(self, home: Home, sync: S) -> None:
        self._home = home
        self.sync = sync

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"

    def __reduce__(self) -> NoReturn:
        self.sync.__reduce__()
        raise AssertionError("not reached")


class AsyncContext(AsyncSurface[C]):
    """An object that tasks enter with ``async with``."""

    async def __aenter__(self) -> Self:
        await self._home.run(self.sync.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._home.run(self.sync.__exit__, kind, error, traceback)


class AsyncHandle(AsyncContext[H], ABC):
    """A lock for tasks. ``sync`` is the sync lock that does the work."""

    @property
    def wait(self) -> float | None:
        return self.sync.wait

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock. Return True if you hold it now, False if not in time.

        The arguments and their errors are the same as for :meth:`threading.Lock.acquire`.
        ``timeout`` is in seconds. If the caller is cancelled, it does not hold the lock.
        """
        return await self._home.run(self.sync.acquire, blocking, timeout)

    async def release(self) -> None:
        """Release the lock, even if the caller is cancelled meanwhile.

        Raises NotHeld if you do not hold it, and LockLost if you have lost it.
        """
        await self._home.shielded(self.sync.release)

    def __call__(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Decorate a coroutine function: it holds the lock while it runs."""
        check_coroutine(function)

        @wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> T:
            async with self:
                return await function(*args, **kwargs)

        return locked


class AsyncHolder(AsyncContext[L], ABC):
    """A lock that is lost if it is not renewed. The loss can cancel its body."""

    def __init__(
        self,
        home: Home,
        make: Callable[..., L],
        name: str,
        cancel_on_loss: bool,
        options: Mapping[str, Any],
    ) -> None:
        """``make`` returns the sync handle for ``name`` and ``options``."""
        callbacks = awaited(options)
        self._bodies = Bodies(callbacks.get("on_lost")) if cancel_on_loss else None
        if self._bodies is not None:
            callbacks["on_lost"] = self._bodies.lose
        here = {what: home.here(callback) for what, callback in callbacks.items()}
        super().__init__(home, make(name, **{**options, **here}))

    # --- a body that is cancelled when the lease is lost -------------------------------------

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._begin_body()
        return self

    def _begin_body(self) -> None:
        """Note that the calling task is in the body now. Not part of the public surface."""
        if self._bodies is None:
            return
        hold = self.sync._current()
        if hold is not None and hold.count == 1:
            self._bodies.begin(hold)

    def _end_body(self, error: BaseException | None) -> LockLost | None:
        """Note that the body has ended; return the loss if ``error`` is its cancellation."""
        if self._bodies is None:
            return None
        hold = self.sync._current()
        if hold is not None and hold.count > 1:
            return None
        return self._bodies.end(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loss = self._end_body(error)
        if loss is None:
            await self._home.shielded(self.sync.__exit__, kind, error, traceback)
            return
        # Only the loss cancelled the body, so it counts as not cancelled.
        with contextlib.suppress(LockLost, NotHeld):
            await self._home.shielded(self.sync.__exit__, None, None, None)
        raise loss from error


class AsyncHeldLease(AsyncHolder[K]):
    """A lease as the task that holds it uses it."""

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def ttl(self) -> float:
        """The number of seconds for which dblock acquires and renews the lease."""
        return self.sync.ttl

    @property
    def renew_every(self) -> float:
        """The number of seconds between two renewals, by the keeper of this process."""
        return self.sync.renew_every

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
        """The random text that proves ownership to the database. Keep it secret. Raises NotHeld."""
        return self.sync.token

    @property
    def remaining(self) -> float:
        """The number of seconds for which the holder may still act, or 0.0. No round trip."""
        return self.sync.remaining

    @property
    def margin(self) -> float:
        """The seconds from a loss until the name is free; see :attr:`Lease.margin`."""
        return self.sync.margin

    @property
    def lost(self) -> TaskEvent:
        """An event (``is_set()``, ``await wait()``) that dblock sets if the hold is lost."""
        event: Any = self.sync.lost
        return event  # type: ignore[no-any-return]

    def check(self) -> None:
        """Return if you still hold the lease, by the holder's own clock; raise LockLost if not."""
        self.sync.check()

    async def release(self) -> None:
        """Release the lease, even if the caller is cancelled meanwhile."""
        await self._home.shielded(self.sync.release)

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Move the expiry to ``ttl`` seconds from now; see :meth:`dblock.Lease.renew`."""
        await self._home.run(self.sync.renew, ttl)

    async def locked(self) -> bool:
        """Return whether any process holds a lease on the name, by the database's clock."""
        return await self._home.run(self.sync.locked)

    @contextlib.asynccontextmanager
    async def guard(self, session: AsyncBorrowable) -> AsyncIterator[int]:
        """Prove the lease inside the transaction of ``session``; see :meth:`dblock.Lease.guard`."""
        proof = self.sync.guard(sync_of(session))
        yield await self._home.run(proof.__enter__)


class AsyncLease(AsyncHeldLease[Lease], AsyncHandle[Lease]):
    """A named lease, made by :meth:`AsyncLocks.lease`; see :class:`dblock.Lease`.

    It treats tasks as the sync lease treats threads.

    ``held``, ``fence``, ``token``, ``remaining``, ``check()`` and ``lost`` do not ask the database,
    so you do not await them.
    """

    async def release(self, after: Seconds = 0.0) -> None:
        """Release the lease; see :meth:`dblock.Lease.release`.

        It does so even if the caller is cancelled meanwhile.
        """
        await self._home.shielded(self.sync.release, after)

    async def detach(self, ttl: Seconds | None = None) -> str:
        """End this hold, for another process to continue it; see :meth:`dblock.Lease.detach`."""
        return await self._home.run(self.sync.detach, ttl)

    def _skipping(
        self, function: Callable[P, Awaitable[T]]
    ) -> Callable[P, Coroutine[Any, Any, T | None]]:
        """Decorate a coroutine function: a call that does not get the lock at once does nothing."""
        check_coroutine(function)

        @wraps(function)
        async def skipping(*args: P.args, **kwargs: P.kwargs) -> T | None:
            refusal = await self._home.run(self.sync._acquire, 0)
            if refusal is not None:
                log_skipped(function, refusal)
                return None
            self._begin_body()
            async with contextlib.AsyncExitStack() as taken:
                taken.push_async_exit(self)
                return await function(*args, **kwargs)

        return skipping


class AsyncSharedLease(AsyncHeldLease[SharedLease], AsyncHandle[SharedLease]):
    """A lease that others may share, made by :meth:`AsyncLocks.shared`; see
    :class:`dblock.SharedLease`.

    It treats tasks as the sync lease treats threads.
    """


class AsyncSemaphore(AsyncHolder[Semaphore], AsyncHandle[Semaphore]):
    """A semaphore, made by :meth:`AsyncLocks.semaphore`; see :class:`dblock.Semaphore`.

    ``async with`` gives a slot, an :class:`AsyncLease`. It treats tasks as the sync semaphore
    treats threads.
    """

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def limit(self) -> int:
        """The limit that this handle asks for: how many holders may have a slot at a time."""
        return self.sync.limit

    @property
    def slot(self) -> AsyncLease:
        """The calling task's newest slot, or else the handle's newest. Raises NotHeld."""
        return AsyncLease(self._home, lambda _: self.sync.slot, self.name, False, {})

    async def __aenter__(self) -> AsyncLease:  # type: ignore[override]  # as the sync one
        await super().__aenter__()
        return self.slot

    async def resize(self, limit: int) -> int:
        """Change the limit; see :meth:`dblock.Semaphore.resize`."""
        return await self._home.run(self.sync.resize, limit)


class AsyncRowLock(AsyncHandle[RowLock]):
    """A named row lock, made by :meth:`AsyncLocks.row`; see :class:`dblock.RowLock`."""

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def borrowed(self) -> bool:
        """Whether the lock is in your own transaction, and ends with it."""
        return self.sync.borrowed

    @property
    def held(self) -> bool:
        """Whether you hold the row, as far as dblock knows without asking the server."""
        return self.sync.held

    async def check(self) -> None:
        """Ask the server whether the lock's own transaction still exists; raise LockLost if not."""
        await self._home.run(self.sync.check)


class AsyncMultiLock(AsyncHandle[MultiLock]):
    """Locks that you take as one, made by :meth:`AsyncLocks.all`; see :class:`dblock.MultiLock`."""

    @property
    def held(self) -> bool:
        """Whether you hold every one of the locks."""
        return self.sync.held


class AsyncOnce(AsyncContext[Once]):
    """A call that is made once, made by :meth:`AsyncLocks.once`; see :class:`dblock.Once`."""

    @property
    def key(self) -> str:
        return self.sync.key

    @property
    def replayed(self) -> bool:
        """Whether an earlier call was made with this key: then do nothing, and use its result."""
        return self.sync.replayed

    @property
    def active(self) -> bool:
        """Whether the block's transaction is still open, as far as dblock knows without asking.

        If not, the transaction has ended or failed, and no result can be recorded in it.
        """
        return self.sync.active

    @property
    def result(self) -> Any:
        """The result of the call. Set it inside the block, to a value that JSON can express.

        It has at most one mebibyte. A replay gets the same value. Raises TypeError or ValueError
        for a value that JSON cannot express or would change (a tuple, a key that is not text), and
        ValueError for a larger one, outside the block, or if the call was made before.
        """
        return self.sync.result

    @result.setter
    def result(self, result: Any) -> None:
        self.sync.result = result
