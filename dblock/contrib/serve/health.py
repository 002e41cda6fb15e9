"""Whether the service is up, and whether its database serves."""

from __future__ import annotations

import asyncio
from time import monotonic

from starlette.requests import Request
from starlette.responses import Response

from ...errors import DBLockError
from .openapi import answer, operation
from .problems import Problem, of, unavailable
from .routing import Route
from .service import Service

#: Seconds that an answer of the database counts. Probes need no token, so many probes must not
#: cause as many statements.
FRESH = 1.0


class Readiness:
    """Whether the database can be reached and has the tables."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._asking = asyncio.Lock()
        self._asked = float("-inf")
        self._problem: Problem | None = None

    async def check(self) -> None:
        """Raise Problem if the database cannot serve, or if the service stops."""
        if self._service.closing.is_set():
            raise unavailable("The service stops.")
        async with self._asking:
            if monotonic() - self._asked > FRESH:
                self._problem = await self._ask()
                self._asked = monotonic()
        if self._problem is not None:
            raise self._problem.with_traceback(None)

    async def _ask(self) -> Problem | None:
        try:
            # Any name will do: the first statement checks the tables.
            await self._service.locks.last_run("dblock")
        except DBLockError as error:
            return of(error)
        return None


def _ok() -> Response:
    return Response(b"ok\n", 200, {"Cache-Control": "no-store"}, "text/plain")


def routes(service: Service) -> list[Route]:
    """Return the routes of probes. They need no token."""
    readiness = Readiness(service)

    async def healthz(request: Request) -> Response:
        return _ok()

    async def readyz(request: Request) -> Response:
        await readiness.check()
        return _ok()

    answers = {200: answer("Yes.", {"type": "string"}, kind="text/plain")}
    up = operation("Is the process up?", answers=answers, secured=False)
    ready = operation(
        "Can the database be reached, and is it set up?",
        answers=answers,
        problems=("unavailable",),
        secured=False,
    )
    return [
        Route("GET", "/healthz", healthz, up),
        Route("GET", "/readyz", readyz, ready),
    ]
