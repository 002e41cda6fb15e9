"""Detached leases under ``await``."""

from __future__ import annotations

from ..arguments import Seconds
from ..detached import DetachedHold, DetachedLease
from .handles import AsyncSurface


class AsyncDetachedLease(AsyncSurface[DetachedLease]):
    """A lease by its token alone, made by :meth:`AsyncLocks.detached`.

    See :class:`dblock.DetachedLease`.
    """

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
        """Take the lease, or renew it if the token has it; see :meth:`DetachedLease.take`.

        A caller that is cancelled while it waits leaves the queue. One that is cancelled after that
        may leave a hold, which expires.
        """
        return await self._home.run(self.sync.take, ttl, wait)

    async def renew(self, ttl: Seconds = 30.0) -> DetachedHold:
        """Let the lease expire ``ttl`` seconds from now; see :meth:`DetachedLease.renew`."""
        return await self._home.run(self.sync.renew, ttl)

    async def release(self) -> None:
        """Release the lease; see :meth:`DetachedLease.release`."""
        await self._home.run(self.sync.release)
