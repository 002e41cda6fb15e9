"""Elections under ``await``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..arguments import Seconds, check_wait
from ..decorating import check_coroutine
from ..errors import LockLost
from ..handles.election import Election, Leadership, Observation
from ..lock_state import Leader
from .bodies import awaited
from .handles import AsyncHeldLease, AsyncSurface

if TYPE_CHECKING:
    from .bridge import Home

T = TypeVar("T")


class AsyncLeadership(AsyncHeldLease[Leadership]):
    """One term of a leader, made by :meth:`AsyncElection.campaign`; see :class:`dblock.Leadership`.

    It is a lease that is already held.
    """

    async def proclaim(self, value: Any) -> None:
        """Publish ``value`` with the leader; see :meth:`dblock.Leadership.proclaim`."""
        await self._home.run(self.sync.proclaim, value)

    async def resign(self) -> None:
        """End the term, even if the caller is cancelled meanwhile."""
        await self.release()


class AsyncElection(AsyncSurface[Election]):
    """An election, made by :meth:`AsyncLocks.election`; see :class:`dblock.Election`."""

    def __init__(
        self,
        home: Home,
        make: Callable[..., Election],
        name: str,
        cancel_on_loss: bool,
        options: Mapping[str, Any],
    ) -> None:
        # The sync election has no callbacks: this one awaits them.
        self._callbacks = awaited(options)
        super().__init__(home, make(name, **{**options, **dict.fromkeys(self._callbacks)}))
        self._cancel_on_loss = cancel_on_loss

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def ttl(self) -> float:
        """The number of seconds without a renewal after which a leader is deposed."""
        return self.sync.ttl

    def campaign(self, wait: Seconds | None = None) -> Campaign:
        """Await a term in which you lead, or enter it with ``async with``.

        ``wait`` and the errors are the same as for :meth:`dblock.Election.campaign`.
        """
        return Campaign(self.name, partial(self._campaign, check_wait(wait)))

    async def _campaign(self, wait: float | None) -> AsyncLeadership:
        term = self._stand()
        refusal = await self._home.run(term.sync.begin, wait)
        if refusal is not None:
            raise refusal
        return term

    def _stand(self) -> AsyncLeadership:
        def stand(_: str, **callbacks: Any) -> Leadership:
            return self.sync.stand(**callbacks)

        return AsyncLeadership(self._home, stand, self.name, self._cancel_on_loss, self._callbacks)

    async def run(self, work: Callable[[AsyncLeadership], Awaitable[T]]) -> T:
        """Campaign for ever, and await ``work`` with each term; see :meth:`dblock.Election.run`.

        With ``cancel_on_loss=True`` the work is cancelled when its term is lost.
        """
        check_coroutine(work, taker="election.run")
        while True:
            term = self._stand()
            await self._home.run(self.sync.lead, term.sync)
            try:
                async with term:
                    return await work(term)
            except LockLost:
                if not term.lost.is_set():  # it is another lock's
                    raise

    async def leader(self) -> Leader | None:
        """Return the current leader, by the database's clock, or None."""
        return await self._home.run(self.sync.leader)

    def observe(self, interval: Seconds = 0.5) -> AsyncObservation:
        """Return an async iterator over the leaders; see :meth:`dblock.Election.observe`."""
        return AsyncObservation(self._home, self.sync.observe(interval))


class Campaign:
    """A campaign: ``await`` it for its term, or be in that with ``async with``."""

    def __init__(self, name: str, campaign: Callable[[], Awaitable[AsyncLeadership]]) -> None:
        self._name = name
        self._campaign = campaign
        self._term: AsyncLeadership | None = None

    def __repr__(self) -> str:
        return f"<Campaign for {self._name!r}: await it, or enter it with `async with`>"

    def __await__(self) -> Generator[Any, None, AsyncLeadership]:
        return self._campaign().__await__()

    async def __aenter__(self) -> AsyncLeadership:
        self._term = await self._campaign()
        self._term.sync.__enter__()  # which asks no database
        self._term._begin_body()
        return self._term

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._term is not None
        await self._term.__aexit__(kind, error, traceback)


class AsyncObservation:
    """An endless iterator over the leaders, made by :meth:`AsyncElection.observe`."""

    def __init__(self, home: Home, sync: Observation) -> None:
        self._home = home
        self.sync = sync

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Leader | None:
        return await self._home.run(self.sync.__next__)
