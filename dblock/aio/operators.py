"""The requests of operators under ``await``."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..arguments import Seconds
from ..handles.operators import Operators
from ..lock_state import LockState, RunState
from ..protocol.state import Pruned

P = ParamSpec("P")
T = TypeVar("T")


class AsyncOperators(ABC):
    """The methods of :class:`.AsyncLocks` that acquire nothing."""

    sync: Operators

    @abstractmethod
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call sync code in the calling task; not part of the public surface."""

    async def list(self) -> list[LockState]:
        """Return the names with a lease or waiters; see :meth:`dblock.Locks.list`."""
        return await self.run(self.sync.list)

    async def show(self, name: str) -> LockState:
        """Return the state of a name; see :meth:`dblock.Locks.show`."""
        return await self.run(self.sync.show, name)

    async def release(self, name: str, *, force: bool, fence: int | None = None) -> bool:
        """Free a name without asking its holder; see :meth:`dblock.Locks.release`."""
        return await self.run(self.sync.release, name, force=force, fence=fence)

    async def last_run(self, name: str) -> RunState | None:
        """Return the run of a job that began last; see :meth:`dblock.Locks.last_run`."""
        return await self.run(self.sync.last_run, name)

    async def runs(self, name: str, limit: int = 100) -> builtins.list[RunState]:
        """Return the recorded runs of a job; see :meth:`dblock.Locks.runs`."""
        return await self.run(self.sync.runs, name, limit)

    async def last_runs(self, limit: int = 1000) -> builtins.list[RunState]:
        """Return the last run of each job; see :meth:`dblock.Locks.last_runs`."""
        return await self.run(self.sync.last_runs, limit)

    async def reopen(self, name: str, slot: str) -> bool:
        """Let a job run again in a slot; see :meth:`dblock.Locks.reopen`."""
        return await self.run(self.sync.reopen, name, slot)

    async def prune(self, older_than: Seconds) -> Pruned:
        """Delete old idempotency keys and records of runs; see :meth:`dblock.Locks.prune`."""
        return await self.run(self.sync.prune, older_than)

    async def prune_names(self, idle: Seconds) -> int:
        """Delete the rows of unused names; see :meth:`dblock.Locks.prune_names`."""
        return await self.run(self.sync.prune_names, idle)

    async def pause(self, longest_ttl: Seconds | None = None) -> float:
        """Grant nothing until all earlier leases have expired; see :meth:`dblock.Locks.pause`."""
        return await self.run(self.sync.pause, longest_ttl)
