"""Detached leases under ``await``."""

from __future__ import annotations

from typing import Any, TypeVar

from ..arguments import Seconds
from ..handles.detached import ByToken, DetachedHold, DetachedLease, DetachedSemaphore
from .handles import AsyncSurface

S = TypeVar("S", bound=ByToken)


class AsyncByToken(AsyncSurface[S]):
    """A lease or a semaphore for which the token alone proves ownership."""

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def token(self) -> str:
        """The secret that is the hold."""
        return self.sync.token

    @property
    def owner(self) -> str:
        """The text that tells people who the holder is."""
        return self.sync.owner

    async def take(self, ttl: Seconds = 30.0, wait: Seconds | None = 0.0) -> DetachedHold:
        """Take it, or renew it if the token has it; see :meth:`dblock.DetachedLease.take`.

        A caller that is cancelled while it waits leaves the queue. A caller that is cancelled later
        may leave a hold, which expires.
        """
        return await self._home.run(self.sync.take, ttl, wait)


class AsyncDetachedLease(AsyncByToken[DetachedLease]):
    """A lease by its token alone, made by :meth:`AsyncLocks.detached`.

    See :class:`dblock.DetachedLease`.
    """

    async def renew(self, ttl: Seconds = 30.0) -> DetachedHold:
        """Let the lease expire ``ttl`` seconds from now; see :meth:`dblock.DetachedLease.renew`."""
        return await self._home.run(self.sync.renew, ttl)

    async def release(self) -> None:
        """Release the lease; see :meth:`dblock.DetachedLease.release`."""
        await self._home.shielded(self.sync.release)

    async def proclaim(self, value: Any) -> None:
        """Publish ``value`` with the lease; see :meth:`dblock.DetachedLease.proclaim`."""
        await self._home.run(self.sync.proclaim, value)


class AsyncDetachedSemaphore(AsyncByToken[DetachedSemaphore]):
    """A semaphore whose slots are taken by token, made by :meth:`AsyncLocks.detached_semaphore`.

    See :class:`dblock.DetachedSemaphore`.
    """

    @property
    def limit(self) -> int:
        return self.sync.limit
