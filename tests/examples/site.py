"""An example that has been started by its README's command, and those who visit it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

from tests.servers import reaper
from tests.servers.own import make_directory
from tests.servers.watch import forget
from tests.support import SECONDS
from tests.test_docs import ROOT, blocks

EXAMPLES = ROOT / "examples"


def command(example: str, start: str) -> str:
    """The command of an example's README that starts in this way."""
    lines = "".join(blocks(EXAMPLES / example / "README.md", "console")).splitlines()
    (found,) = [line for line in lines if line.startswith(f"$ {start}")]
    return found.removeprefix("$ ")


def environment(home: Path, **more: str) -> dict[str, str]:
    """That of a user in the tests' own virtual environment."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DBLOCK_", "DJANGO_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "HOME": str(home), **more}


@dataclass(frozen=True)
class Page:
    status: int
    text: str


class Visitor:
    """A browser's share of what a user does: cookies, forms and the token in them."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._cookies = CookieJar()
        self._opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(self._cookies))

    def get(self, path: str) -> Page:
        return self._open(path, None)

    def post(self, path: str, **fields: object) -> Page:
        for cookie in self._cookies:
            if cookie.name == "csrftoken":
                fields["csrfmiddlewaretoken"] = cookie.value
        return self._open(path, urlencode(fields).encode())

    def _open(self, path: str, data: bytes | None) -> Page:
        try:
            with self._opener.open(self._address + path, data, timeout=SECONDS) as answer:
                return Page(answer.status, answer.read().decode())
        except HTTPError as error:
            with error:
                return Page(error.code, error.read().decode())


class Site:
    """An example's server processes. They are on a port of their own."""

    def __init__(self, example: str, start: str, env: dict[str, str]) -> None:
        # Named in their command lines, so that it takes them along even when the tests are killed.
        self._directory = make_directory()
        self._process = subprocess.Popen(
            f"{command(example, start)} --bind 127.0.0.1:0 --pid {self._directory / 'pid'}",
            shell=True,
            cwd=EXAMPLES / example,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._said: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.address = ""

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            if found := re.search(r"Listening at: (http://\S+)", line):
                self.address = found[1]
                self._ready.set()
        self._ready.set()

    @property
    def said(self) -> str:
        """What its processes have written."""
        return "".join(self._said)

    def visitor(self) -> Visitor:
        """A new visitor, once it can be visited."""
        assert self._ready.wait(SECONDS), self.said
        assert self.address, self.said
        return Visitor(self.address)

    def close(self) -> None:
        reaper.discard(self._directory)
        forget(self._directory)
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextlib.contextmanager
def started(example: str, start: str, env: dict[str, str], times: int = 1) -> Iterator[list[Site]]:
    """Start an example, or several of it at once."""
    with contextlib.ExitStack() as stack:
        sites = []
        for _ in range(times):
            site = Site(example, start, env)
            stack.callback(site.close)
            sites.append(site)
        yield sites
