"""The objects that all routes of the service share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...arguments import TTL_LONG, TTL_MIN
from .request_counts import RequestCounts
from .rights import Rights

if TYPE_CHECKING:
    from ...aio import AsyncLocks


@dataclass(frozen=True)
class Limits:
    """The limits for clients' requests. Times are in seconds, sizes in bytes."""

    body: int = 8 * 1024
    wait: float = 60.0
    ttl_min: float = TTL_MIN
    ttl_max: float = TTL_LONG


@dataclass(frozen=True, slots=True)
class Service:
    """The locks, the rights and the limits. It has no holds: a client's token is its hold.

    ``closing`` is set when the service stops. Then every waiting request ends at once.
    """

    locks: AsyncLocks
    rights: Rights
    limits: Limits = field(default_factory=Limits)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    requests: RequestCounts = field(default_factory=RequestCounts)
