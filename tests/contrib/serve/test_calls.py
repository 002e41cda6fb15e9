"""How many Python functions the service itself calls for a request: a budget, which may shrink.

The locks and their driver are not in it: tests/connections/test_calls.py counts those.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dblock.aio import AsyncLocks
from dblock.contrib import serve
from dblock.contrib.serve import Application, app
from dblock.contrib.serve.access_log import Writer
from tests.aio.support import async_url
from tests.conftest import NewDatabase
from tests.connections.test_calls import counting
from tests.contrib.serve.running import token

# For one PUT and one DELETE with a bearer token: the service, and the access log in `logging`.
CALLS, CALLS_LOGGING = 54, 25
SERVICE, LOGGING = str(Path(serve.__file__).parent), str(Path(logging.__file__).parent)
WARM, ROUNDS = 20, 50
TOKEN = b"0" * 32
BODY = b'{"token":"%b","ttl":30,"owner":"web1"}' % TOKEN


class Client:
    """The other end of the application, without a server between."""

    def __init__(self, application: Application, bearer: str) -> None:
        self._application = application
        self._bearer = b"authorization", b"Bearer " + bearer.encode()
        self.answered: list[int] = []

    async def pair(self) -> None:
        await self._send("PUT", BODY, (b"content-length", b"%d" % len(BODY)))
        await self._send("DELETE", b"", (b"lock-token", TOKEN))

    async def _send(self, method: str, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.answered.append(message["status"])

        path = "/v1/leases/report"
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [self._bearer, *headers],
            "client": ("127.0.0.1", 4711),
        }
        await self._application(scope, receive, send)


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """The access log as `dblock serve` writes it. No fixture: pytest would add handlers to it."""
    logger, written = logging.getLogger("dblock.serve.access"), io.StringIO()
    before = logger.level, logger.propagate
    writer = Writer(written)
    logger.addHandler(writer)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield written
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        logger.removeHandler(writer)


def test_a_put_and_a_delete(new_database: NewDatabase, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    bearer = token(tokens, "billing", [""], ["hold"])

    async def main() -> Counter[str]:
        url = async_url(new_database("sqlite", migrated=True).url)
        async with AsyncLocks(url) as locks:
            client = Client(app(locks, tokens=tokens), bearer)
            for _ in range(WARM):
                await client.pair()
            rounds = []
            for _ in range(ROUNDS):
                with counting() as calls:
                    await client.pair()
                rounds.append(calls)
            assert client.answered == [201, 204] * (WARM + ROUNDS)
            return min(rounds, key=Counter.total)

    with logged() as log:
        calls = asyncio.run(main())
    assert log.getvalue().count("\n") == 2 * (WARM + ROUNDS)
    assert of(calls, SERVICE) <= CALLS
    assert of(calls, LOGGING) <= CALLS_LOGGING


def of(calls: Counter[str], folder: str) -> int:
    return sum(often for file, often in calls.items() if file.startswith(folder))
