"""A wait that ends early: its client has gone away, or the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from .problems import unavailable

T = TypeVar("T")


class Gone(Exception):
    """The client has closed its connection, so no answer can reach it."""


async def while_waiting(
    request: Request, closing: asyncio.Event, work: Coroutine[Any, Any, T]
) -> T:
    """Return the result of ``work``, and cancel it when its client goes away or the service stops.

    The body of the request has to be read before. Raises Gone, or Problem when the service stops.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    stopped = asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait({working, gone, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, gone, stopped):
            task.cancel()
        ended, _ = await asyncio.wait({working, gone, stopped})
    if gone in ended and not gone.cancelled():
        if not working.cancelled():
            working.exception()
        raise Gone
    if working.cancelled():
        raise unavailable(
            "The service stops. Ask again with the same token: another process will answer."
        )
    return working.result()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
