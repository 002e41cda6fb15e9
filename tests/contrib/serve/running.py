"""The service in a thread, on a socket of its own, and clients that listen to its events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from dblock.aio import AsyncLocks
from dblock.contrib.serve import Application, app
from dblock.contrib.serve.tokens_file import add, caller
from tests.aio.support import async_url
from tests.support import SECONDS


class Running:
    """A service that answers at ``address``. It has its own thread and event loop."""

    def __init__(
        self, url: str, tokens: Path | None = None, port: int = 0, below: str = ""
    ) -> None:
        """``below`` is the path at which another application has it."""
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._url, self._tokens, self._below = url, tokens, below
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.application: Application
        self.loop: asyncio.AbstractEventLoop

    def __enter__(self) -> Running:
        self._thread.start()
        assert self._ready.wait(SECONDS)
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        """Begin to stop, as `dblock serve` does."""

        def stop() -> None:
            self.application.stop()
            self._server.should_exit = True

        with contextlib.suppress(RuntimeError):  # it has stopped
            self.loop.call_soon_threadsafe(stop)

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with AsyncLocks(async_url(self._url)) as locks:
            self.application = app(locks, tokens=self._tokens)
            whole = Starlette(routes=[Mount(self._below, self.application)])
            config = uvicorn.Config(
                whole if self._below else self.application,
                log_config=None,
                lifespan="on",
                ws="none",
                access_log=False,
            )
            self._server = uvicorn.Server(config)
            self._ready.set()
            await self._server.serve([self._socket])

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in the service's event loop."""
        done: Any = asyncio.run_coroutine_threadsafe(_called(function), self.loop)
        return done.result(SECONDS)

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.address, headers=headers, timeout=SECONDS, trust_env=False, verify=False
        )


def token(file: Path, name: str, names: list[str], rights: list[str]) -> str:
    """A new token, which the file of tokens knows from now on."""
    return add(str(file), caller(name, names, rights))


async def _called(function: Callable[[], Any]) -> Any:
    return function()


@dataclass(frozen=True)
class Told:
    """An event as a client reads it."""

    kind: str
    data: Any


class Stream:
    """The events of one response, one at a time."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()
        self.comments = 0

    def __iter__(self) -> Iterator[Told]:
        return self

    def __next__(self) -> Told:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line == "":
                if fields:
                    return Told(fields["event"], json.loads(fields["data"]))
            elif line.startswith(":"):
                self.comments += 1
            else:
                name, _, value = line.partition(": ")
                fields[name] = value
        raise StopIteration

    def next(self) -> Told:
        """The next event. It is an error if the stream ends before."""
        for told in self:
            return told
        raise AssertionError("the stream has ended")

    def until(self, kind: str, name: str) -> Told:
        """The next event of a kind for a name; the ones before it are left out."""
        while True:
            told = self.next()
            if told.kind == kind and told.data["name"] == name:
                return told


@contextlib.contextmanager
def listening(client: httpx.Client, **asked: str | list[str]) -> Iterator[Stream]:
    """Listen to events, from the present state on."""
    params: Mapping[str, str | list[str]] = asked
    with client.stream("GET", "/v1/events", params=params) as response:
        assert response.status_code == 200, response.read()
        yield Stream(response)
