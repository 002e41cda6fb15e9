"""Leases over HTTP: take, renew, release, look."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .routing import Route
from .service import Service


def routes(service: Service) -> list[Route]:
    """Return the routes of leases."""

    async def show(request: Request) -> Response:
        name: str = request.path_params["name"]
        service.rights.check(request, "read", name)
        state = await service.locks.show(name)
        return JSONResponse({"name": state.name, "status": state.status, "fence": state.fence})

    return [Route("GET", "/v1/leases/{name}", show)]
