"""The same locks under ``await``.

>>> from dblock.aio import AsyncLocks
>>> async with AsyncLocks("postgresql+psycopg://app@db/app") as locks:       # doctest: +SKIP
...     async with locks.lease("report", ttl=30) as lease:
...         await make_report(fence=lease.fence)

The logic is not here: the errors, policies, statements and decisions are in :mod:`dblock`. This
package has the bridge to asyncio (:mod:`.bridge`), the runtime of tasks (:mod:`.runtime`) and the
drivers (:mod:`.adapters`).
"""

from __future__ import annotations

try:
    import greenlet as _greenlet  # noqa: F401
except ImportError as error:
    raise ImportError("dblock.aio needs greenlet: pip install 'dblock[asyncio]'") from error

from .counter import AsyncCounter
from .cron import AsyncCron, AsyncCronJob
from .detached import AsyncDetachedLease, AsyncDetachedSemaphore
from .election import AsyncElection, AsyncLeadership, AsyncObservation, Campaign
from .handles import (
    AsyncHandle,
    AsyncLease,
    AsyncMultiLock,
    AsyncOnce,
    AsyncRowLock,
    AsyncSemaphore,
    AsyncSharedLease,
)
from .locks import AsyncLocks
from .quorum import AsyncQuorum, AsyncQuorumLease
from .transactions import retry_on_conflict

__all__ = [
    "AsyncCounter",
    "AsyncCron",
    "AsyncCronJob",
    "AsyncDetachedLease",
    "AsyncDetachedSemaphore",
    "AsyncElection",
    "AsyncHandle",
    "AsyncLeadership",
    "AsyncLease",
    "AsyncLocks",
    "AsyncMultiLock",
    "AsyncObservation",
    "AsyncOnce",
    "AsyncQuorum",
    "AsyncQuorumLease",
    "AsyncRowLock",
    "AsyncSemaphore",
    "AsyncSharedLease",
    "Campaign",
    "retry_on_conflict",
]
