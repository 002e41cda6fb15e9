"""The ASGI application of the lock service."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter
from typing import Any

from starlette.requests import Request

from ...aio import AsyncLocks
from ...arguments import Seconds, check_ttl, seconds
from ...errors import DBLockError
from ..http import Rejected
from . import events, health, leases, metrics, openapi, page, problems
from .access_log import log
from .disconnect import Gone
from .rights import Everyone, Rights
from .routing import Router
from .service import Limits, Service
from .tokens_file import TokensFile

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

logger = logging.getLogger("dblock.serve")


def app(
    locks: AsyncLocks,
    *,
    tokens: str | os.PathLike[str] | None = None,
    ttl_max: Seconds = Limits.ttl_max,
    wait_max: Seconds = Limits.wait,
    local: bool = False,
) -> Application:
    """Return the lock service as an ASGI application, to run or to mount in yours.

    ``locks`` are AsyncLocks, which the application does not close. ``tokens`` is the path of a file
    with the callers' bearer tokens, as ``dblock token`` writes it. Without it each client that
    reaches the application may do everything, so your own application has to authenticate them.

    With ``local`` it answers only requests for this host's own names, such as localhost: so no page
    in a browser here can use it through a name of its own.

    ``ttl_max`` and ``wait_max`` are in seconds: the longest TTL and the longest wait that a client
    may ask for; ``wait_max`` is at least 1. Raises ValueError if the file of tokens cannot be used.
    """
    if not isinstance(locks, AsyncLocks):
        raise TypeError(f"the lock service needs dblock.aio.AsyncLocks, not {type(locks).__name__}")
    limits = Limits(ttl_max=check_ttl(ttl_max, "ttl_max"), wait=_wait_max(wait_max))
    rights: Rights = Everyone(local) if tokens is None else TokensFile(tokens)
    return Application(Service(locks, rights, limits))


def _wait_max(given: Seconds) -> float:
    number = seconds("wait_max", given)
    if not 1 <= number < math.inf:
        raise ValueError(f"wait_max is at least 1 second, and not infinite: {given!r}")
    return number


class Application:
    """The lock service, an ASGI application. Make it with :func:`app`."""

    def __init__(self, service: Service) -> None:
        #: Shared by the routes. Not part of the public surface.
        self.service = service
        described = (
            *leases.routes(service),
            *events.routes(service),
            *metrics.routes(service),
            *page.routes(service),
            *health.routes(service),
        )
        self._router = Router(
            (*described, *openapi.routes(described, secured=service.rights.secured))
        )

    def stop(self) -> None:
        """End all waits: each waiting client gets 503 with Retry-After.

        ``dblock serve`` does this when it stops. If you run the application yourself, call it when
        your server begins to stop, in the event loop of the application.
        """
        self.service.closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of ASGI; not part of the public surface."""
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        began = perf_counter()
        try:
            route = self._router.find(scope)
            scope["dblock.route"] = route.path
            response = await route.handler(Request(scope, receive))
        except Rejected as problem:
            response = problems.response(problem)
        except Gone:  # the client has left, so no answer is sent
            self._end(scope, 499, began)
            return
        except DBLockError as error:
            response = problems.response(problems.of(error))
        except Exception:
            logger.exception("a request failed")
            response = problems.response(problems.defect())
        try:
            await response(scope, receive, send)
        finally:
            self._end(scope, response.status_code, began)

    def _end(self, scope: Scope, status: int, began: float) -> None:
        seconds = perf_counter() - began
        self.service.requests.add(scope, status, seconds)
        log(scope, status, seconds)

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":  # a WebSocket
            await receive()
            await send({"type": "websocket.close"})
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})
