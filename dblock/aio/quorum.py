"""A majority of independent databases, for the tasks of one event loop."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from ..quorum.fan import Fan, Work
from ..quorum.lease import QuorumLease
from ..quorum.quorum import OneDatabase, Quorum, check_targets
from . import bridge
from .bridge import Home
from .election import AsyncElection
from .handles import AsyncHandle, AsyncHeldLease, AsyncMultiLock
from .holding import keeper_here
from .locks import Bridged

if TYPE_CHECKING:
    from ..arguments import Seconds
    from ..handles.options import ElectionKeywords, LeaseKeywords
    from ..lock_state import LockState
    from ..policy import RetryPolicy, Timeouts
    from ..quorum.members import MemberStatus


class TaskFan(Fan):
    """Runs work at members in tasks. A cancellation of the caller does not reach them.

    Each member's connections are limited, so there is no other limit.
    """

    def __init__(self, size: int) -> None:
        self._tasks: list[set[asyncio.Task[None]]] = [set() for _ in range(size)]

    def begin(self, member: int, work: Work) -> None:
        task = bridge.act_for(bridge.whose(), work)
        self._tasks[member].add(task)
        task.add_done_callback(self._tasks[member].discard)
        bridge.leave(task)

    def rest(self, member: int, seconds: float) -> None:
        if self._tasks[member]:
            bridge.await_(asyncio.wait(self._tasks[member], timeout=max(0.0, seconds)))


class _BridgedQuorum(Quorum):
    """The sync Quorum, for tasks."""

    _locks = partial(Bridged, keeper_thread=False)
    _fan = TaskFan


class AsyncQuorumLease(AsyncHeldLease[QuorumLease], AsyncHandle[QuorumLease]):
    """A lease at a majority of databases, made by :meth:`AsyncQuorum.lease`; see
    :class:`dblock.QuorumLease`.

    It treats tasks as the sync lease treats threads.
    """


class AsyncQuorum(OneDatabase):
    """The locks at a majority of independent databases, for the tasks of one event loop.

    ``targets`` are database URLs or SQLAlchemy AsyncEngines. All arguments, methods and errors mean
    the same as for :class:`dblock.Quorum`. Close it before the loop ends (``async with`` or
    ``await quorum.close()``).
    """

    def __init__(
        self,
        targets: Sequence[str | URL | AsyncEngine],
        *,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        schema: str | None = None,
        prefix: str = "dblock_",
        label: str | None = None,
        trust_server: bool = False,
    ) -> None:
        given = check_targets(targets)
        #: The sync Quorum that does the work. Not part of the public surface.
        self.sync: Quorum = _BridgedQuorum(
            [one.sync_engine if isinstance(one, AsyncEngine) else one for one in given],
            timeouts=timeouts,
            retry=retry,
            schema=schema,
            prefix=prefix,
            label=label,
            trust_server=trust_server,
        )
        self._home = Home(repr(self))

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"

    @property
    def timeouts(self) -> Timeouts:
        """How long each layer may take; see :attr:`dblock.Quorum.timeouts`."""
        return self.sync.timeouts

    def lease(
        self, name: str, *, cancel_on_loss: bool = False, **options: Unpack[LeaseKeywords[object]]
    ) -> AsyncQuorumLease:
        """Return a lease on ``name`` at a majority of the databases; see
        :meth:`dblock.Quorum.lease`.

        The callbacks and ``cancel_on_loss`` are as for :meth:`AsyncLocks.lease`.
        """
        return AsyncQuorumLease(self._home, self.sync.lease, name, cancel_on_loss, options)

    def election(
        self,
        name: str,
        *,
        cancel_on_loss: bool = False,
        **options: Unpack[ElectionKeywords[object]],
    ) -> AsyncElection:
        """Return the election of the leader of ``name`` at a majority of the databases; see
        :meth:`dblock.Quorum.election`.

        The callbacks and ``cancel_on_loss`` are as for :meth:`AsyncLocks.election`.
        """
        return AsyncElection(self._home, self.sync.election, name, cancel_on_loss, options)

    def all(self, *leases: AsyncQuorumLease, wait: Seconds | None = None) -> AsyncMultiLock:
        """Return the given leases as one lock; see :meth:`dblock.Quorum.all`."""
        for lease in leases:
            if not isinstance(lease, AsyncQuorumLease):
                raise TypeError(
                    f"all() takes the leases of an AsyncQuorum, not {type(lease).__name__}"
                )
        return AsyncMultiLock(self._home, self.sync.all(*(one.sync for one in leases), wait=wait))

    async def check(self) -> builtins.list[MemberStatus]:
        """Return what each database is in this quorum; see :meth:`dblock.Quorum.check`."""
        return await self._home.run(self.sync.check)

    async def rejoin(self, member: str | URL | AsyncEngine | int) -> float:
        """Let a restored database vote again; see :meth:`dblock.Quorum.rejoin`."""
        target: Any = member.sync_engine if isinstance(member, AsyncEngine) else member
        return await self._home.run(self.sync.rejoin, target)

    async def show(self, name: str) -> LockState:
        """Return the state of a name, as a majority of the databases shows it."""
        return await self._home.run(self.sync.show, name)

    async def list(self) -> builtins.list[LockState]:
        """Return the names that have a lease or waiters at some member, sorted by name."""
        return await self._home.run(self.sync.list)

    async def release(self, name: str, *, force: bool) -> bool:
        """Free a name at all databases; see :meth:`dblock.Quorum.release`."""
        return await self._home.run(partial(self.sync.release, name, force=force))

    async def close(self) -> None:
        """Close the idle connections. dblock stops renewing held leases: they expire."""
        await self._home.run(self.sync.close)
        await keeper_here().rest()
        await bridge.drain()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
