"""What a cluster needs beside its databases: HAProxy in front, and for Patroni etcd."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import urllib.request
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.patience import SECONDS
from tests.servers.base import ServerMissing
from tests.servers.own import OwnServer, free_port

PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
PACKAGES = {"etcd": "etcd-server", "haproxy": "haproxy", "setpriv": "util-linux"}
COM_QUIT, COM_QUERY = b"\1", b"\3"
BRIEFLY = 5.0  # seconds for an answer: a frozen process gives none, and is to be asked again


def find_tool(name: str) -> Path:
    if found := shutil.which(name, path=PLACES):
        return Path(found)
    raise ServerMissing("cluster", f"no {name} on this machine (apt install {PACKAGES[name]})")


def ask(url: str, request: dict[str, str] | None = None) -> Any:
    """The answer, which is JSON or text; OSError unless it is a good one."""
    body = None if request is None else json.dumps(request).encode()
    with urllib.request.urlopen(url, body, timeout=BRIEFLY if body is None else SECONDS) as reply:
        answer = reply.read().decode()
    try:
        return json.loads(answer)
    except ValueError:
        return answer


class Helper(OwnServer):
    """A server that has no databases of its own."""

    kind = "none"
    stop_signal = signal.SIGTERM

    @property
    @abstractmethod
    def url(self) -> str: ...

    def _prepare(self) -> None:
        self.data.mkdir(mode=0o700)
        owner = self.directory.stat()
        os.chown(self.data, owner.st_uid, owner.st_gid)

    def create_database(self, name: str, template: str | None = None) -> NoReturn:
        raise TypeError(f"{self.name} has no databases")

    def drop_database(self, name: str) -> NoReturn:
        raise TypeError(f"{self.name} has no databases")


class Etcd(Helper):
    """Remembers which node is the primary, and until when."""

    name = "etcd"

    def __init__(self) -> None:
        self._program = find_tool("etcd")
        super().__init__()
        self._peers = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str | Path]:
        peers = f"http://127.0.0.1:{self._peers}"
        return [
            self._program,
            "--name=one",
            f"--data-dir={self.data}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=one={peers}",
        ]

    def _probe(self) -> None:
        ask(f"{self.url}/health")


class HAProxy(Helper):
    """Leads to a node that its check lets pass, and ends the sessions with one that fails it."""

    name = "HAProxy"

    def __init__(
        self, url: str, check: Sequence[str], servers: Callable[[], Mapping[int, str]], many: int
    ) -> None:
        """``url`` lacks the port. ``servers`` has what is to be said of the server at each port.

        ``many`` of them pass the ``check`` when all is well.
        """
        self._program = find_tool("haproxy")
        super().__init__()
        self._url, self._check, self._servers, self._many = url, check, servers, many
        self._state = free_port()

    @property
    def url(self) -> str:
        return self._url.format(port=self.port)

    def _command(self) -> Sequence[str | Path]:
        lines = [
            "defaults",
            "  mode tcp",
            "  timeout connect 2s",
            "  timeout check 2s",
            "  timeout client 1h",
            "  timeout server 1h",
            "listen primary",
            f"  bind 127.0.0.1:{self.port}",
            *(f"  {line}" for line in self._check),
            "  default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions",
        ]
        for port, how in self._servers().items():
            lines.append(f"  server n{port} 127.0.0.1:{port} check {how}".rstrip())
        lines += [
            "frontend state",
            f"  bind 127.0.0.1:{self._state}",
            "  mode http",
            "  monitor-uri /",
            f"  monitor fail if ! {{ nbsrv(primary) eq {self._many} }}",
        ]
        file = self.directory / "haproxy.cfg"
        file.write_text("\n".join([*lines, ""]))
        return [self._program, "-db", "-f", file]

    @property
    def decided(self) -> bool:
        """Whether as many servers pass the check as are to. Before the first check all pass."""
        with contextlib.suppress(OSError):
            ask(f"http://127.0.0.1:{self._state}/")
            return True
        return False

    def _probe(self) -> None:
        # Not a query: HAProxy is up even while it has no node to lead to.
        socket.create_connection(("127.0.0.1", self.port), timeout=BRIEFLY).close()


def mariadb_check(question: str, answer: bytes) -> Sequence[str]:
    """What lets a MariaDB server pass: root logs in, asks, and the reply has the answer in it.

    HAProxy does not speak MariaDB's protocol, so it is told what to send, byte by byte.
    """
    # The capabilities are the 4.1 protocol, with its passwords; and root has none.
    login = bytes.fromhex("01820000 00000001 21") + bytes(23) + b"root\0\0"
    return (
        "option tcp-check",
        "tcp-check connect",
        f"tcp-check send-binary {_packet(1, login)}",
        "tcp-check expect binary 00000002000000",  # which lets it in
        f"tcp-check send-binary {_packet(0, COM_QUERY + question.encode())}",
        f"tcp-check expect binary {answer.hex()}",
        f"tcp-check send-binary {_packet(0, COM_QUIT)}",
    )


def _packet(number: int, payload: bytes) -> str:
    return (len(payload).to_bytes(3, "little") + bytes([number]) + payload).hex()
