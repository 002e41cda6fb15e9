"""How many requests the service has answered, and how long that took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...formats.exposition import Metric

#: Replaces the path of a request without a route, because clients choose such paths.
NO_ROUTE = "none"


class RequestCounts:
    """Counts of one process, by the route's method and path and the answer's status."""

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
