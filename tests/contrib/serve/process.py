"""`dblock serve` as a process of its own, and clients of it."""

from __future__ import annotations

import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.patience import SECONDS
from tests.servers import reaper
from tests.servers.own import make_directory
from tests.servers.watch import forget


def new_token() -> str:
    """A token, as a client makes it."""
    return secrets.token_hex(16)


def path_of(name: str) -> str:
    """The path of a lease. Libraries leave out a segment that is "..", even as %2E%2E."""
    return f"/v1/leases/{quote(name, safe='')}"


class Client:
    """A client of the service, in the words of the table in docs/service.md."""

    def __init__(self, address: str, bearer: str | None = None) -> None:
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        # Without TLS: to read the machine's certificates would take longer than the test.
        self.http = httpx.Client(
            base_url=address, headers=headers, timeout=SECONDS, trust_env=False, verify=False
        )

    def send(self, method: str, target: str, **options: Any) -> httpx.Response:
        """Send a request for a target as it is: httpx would take dots in a name for directions."""
        request = self.http.build_request(
            method, "/", extensions={"target": target.encode()}, **options
        )
        return self.http.send(request)

    def put(
        self, name: str, token: str, *, wait: int | None = None, ttl: float = 30, **more: Any
    ) -> httpx.Response:
        headers = {} if wait is None else {"Prefer": f"wait={wait}"}
        body = {"token": token, "ttl": ttl, **more}
        return self.send("PUT", path_of(name), json=body, headers=headers)

    def patch(self, name: str, token: str, ttl: float = 30) -> httpx.Response:
        return self.send("PATCH", path_of(name), json={"token": token, "ttl": ttl})

    def delete(self, name: str, token: str) -> httpx.Response:
        return self.send("DELETE", path_of(name), headers={"Lock-Token": token})

    def force(self, name: str, fence: object = None) -> httpx.Response:
        seen = "" if fence is None else f"&fence={fence}"
        return self.send("DELETE", f"{path_of(name)}?force=true{seen}")

    def show(self, name: str) -> httpx.Response:
        return self.send("GET", path_of(name))

    def list(self, **params: str) -> httpx.Response:
        return self.http.get("/v1/leases", params=params)

    def close(self) -> None:
        self.http.close()


def kind_of(answer: httpx.Response) -> str:
    """The kind of a problem."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    found: str = problem["type"].removeprefix("urn:dblock:problem:")
    return found


class Service:
    """A running `dblock serve`. Its options are those of the command line."""

    def __init__(self, url: str, *options: str, bind: str = "127.0.0.1:0") -> None:
        # Named in its command line, so that it ends even when the tests are killed.
        self.directory: Path = make_directory()
        file = self.directory / "url"
        file.write_text(url)
        file.chmod(0o600)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dblock", "serve", "--bind", bind),
                *("--url-file", str(file)),
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.logged: list[str] = []
        self.address = ""
        self._listening = threading.Event()
        self._clients: list[Client] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.logged)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.said)),
        ]
        for reader in self._readers:
            reader.start()
        assert self._listening.wait(SECONDS)
        if not self.address:
            self.close()
            raise AssertionError(f"the service did not start: {self.said}")

    def _read(self, lines: Iterable[str], into: list[str]) -> None:
        for line in lines:
            into.append(line)
            if found := re.search(r"listening on (\S+), ", line):
                self.address = found[1]
                self._listening.set()
        self._listening.set()

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def client(self, bearer: str | None = None) -> Client:
        made = Client(f"http://{self.address}", bearer)
        self._clients.append(made)
        return made

    def connect(self) -> socket.socket:
        """A bare connection, for what no client's library sends."""
        return socket.create_connection(self.place, timeout=SECONDS)

    def raw(self, request: bytes) -> bytes:
        """All that the service answers on a connection of its own, until it closes that."""
        with self.connect() as connection:
            connection.sendall(request)
            answer = b""
            while part := connection.recv(65536):
                answer += part
            return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)

    def stop(self) -> int:
        """Stop it as systemd does, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)

    def ended(self) -> list[str]:
        """All that it has said on standard error, when it has ended."""
        for reader in self._readers:
            reader.join(SECONDS)
        return self.said

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        reaper.discard(self.directory)
        forget(self.directory)
