"""Whether the service is up, and whether its database serves."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from .routing import Route
from .service import Service

_OK = {"Cache-Control": "no-store"}


def routes(service: Service) -> list[Route]:
    """Return the routes of probes. They need no token."""

    async def healthz(request: Request) -> Response:
        return Response(b"ok\n", media_type="text/plain", headers=_OK)

    async def readyz(request: Request) -> Response:
        await service.locks.last_run("dblock")  # any name: the first statement checks the tables
        return Response(b"ok\n", media_type="text/plain", headers=_OK)

    return [Route("GET", "/healthz", healthz), Route("GET", "/readyz", readyz)]
