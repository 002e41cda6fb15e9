"""``GET /metrics``: the metrics of ``dblock metrics``, and counts of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from ...formats.exposition import exposition, written
from .openapi import answer, operation
from .routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

    from ...aio import AsyncLocks
    from .service import Service

#: The locks and the jobs that have metrics with their name, at most: each is a time series.
NAMES_MAX = 1000
HEADERS = {"Cache-Control": "no-store"}
KIND = "text/plain; version=0.0.4; charset=utf-8"


async def _text(locks: AsyncLocks) -> str:
    states, runs = await locks.list(), await locks.last_runs(NAMES_MAX + 1)
    return exposition(states, runs, NAMES_MAX)


def routes(service: Service) -> list[Route]:
    """Return the route of metrics. They name all locks, so they need the right to read all."""

    async def get(request: Request) -> Response:
        service.rights.check(request, "read", "")
        text = await service.reader.read(_text) + written(service.requests.metrics())
        return Response(text, media_type=KIND, headers=HEADERS)

    described = operation(
        "Metrics of locks, waiters, jobs and requests, in the text format 0.0.4 of Prometheus.",
        answers={200: answer("The metrics.", {"type": "string"}, kind="text/plain")},
        problems=("unauthorized", "forbidden", "unavailable", "internal"),
    )
    return [Route("GET", "/metrics", get, described)]
