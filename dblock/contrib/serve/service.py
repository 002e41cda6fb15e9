"""The objects that all routes of the service share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...arguments import TTL_LONG, TTL_MIN
from ...formats.exposition import Metric
from .reading import ReaderThread
from .rights import Rights

if TYPE_CHECKING:
    from ...aio import AsyncLocks


#: Replaces the path of a request without a route, because clients choose such paths.
NO_ROUTE = "none"


@dataclass(frozen=True)
class Limits:
    """The limits for clients' requests. Times are in seconds, sizes in bytes."""

    body: int = 8 * 1024
    wait: float = 60.0
    ttl_min: float = TTL_MIN
    ttl_max: float = TTL_LONG


class RequestCounts:
    """How many requests this process has answered, and how long that took.

    It counts by the route's method and path and the answer's status.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], list[float]] = {}

    def add(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        path = scope.get("dblock.route")
        key = (NO_ROUTE, NO_ROUTE, status) if path is None else (scope["method"], path, status)
        found = self._found.setdefault(key, [0, 0.0])
        found[0] += 1
        found[1] += seconds

    def metrics(self) -> Iterator[Metric]:
        """Yield the counts for Prometheus."""
        for index, name, told in (
            (0, "dblock_http_requests_total", "Requests that this process has answered."),
            (1, "dblock_http_request_seconds_total", "Seconds that they took, waits too."),
        ):
            values = [
                ({"method": method, "path": path, "status": str(status)}, found[index])
                for (method, path, status), found in sorted(self._found.items())
            ]
            yield Metric(name, told, values, "counter")


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
    #: Reads all names, beside the event loop.
    reader: ReaderThread = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reader", ReaderThread(self.locks))
