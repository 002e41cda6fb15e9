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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.patience import SECONDS
from tests.servers.base import ServerMissing
from tests.servers.own import OwnServer

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
        self._peers = self._claim_port()

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


#: A URL without its port.
POSTGRESQL = "postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"


class Forwarder(Helper):
    """A process of HAProxy. It is up even while the servers behind it are not."""

    name = "HAProxy"

    def __init__(self, url: str) -> None:
        """``url`` lacks the port."""
        self._program = find_tool("haproxy")
        super().__init__()
        self._url = url

    @property
    def url(self) -> str:
        return self._url.format(port=self.port)

    @abstractmethod
    def _listeners(self) -> list[str]:
        """The lines of its configuration that say from where to where it leads."""

    def _command(self) -> Sequence[str | Path]:
        lines = [
            "global",
            "  noreuseport",  # else two processes may share a port, and each gets a part
            "defaults",
            "  mode tcp",
            "  timeout connect 2s",
            "  timeout check 2s",
            "  timeout client 1h",
            "  timeout server 1h",
            *self._listeners(),
        ]
        file = self.directory / "haproxy.cfg"
        file.write_text("\n".join([*lines, ""]))
        return [self._program, "-db", "-f", file]

    def _probe(self) -> None:
        socket.create_connection(("127.0.0.1", self.port), timeout=BRIEFLY).close()


class HAProxy(Forwarder):
    """Leads to a node that its check lets pass, and ends the sessions with one that fails it."""

    def __init__(
        self, url: str, check: Sequence[str], servers: Callable[[], Mapping[int, str]], many: int
    ) -> None:
        """``servers`` has what is to be said of the server at each port.

        ``many`` of them pass the ``check`` when all is well.
        """
        super().__init__(url)
        self._check, self._servers, self._many = check, servers, many
        self._state = self._claim_port()

    def _listeners(self) -> list[str]:
        servers = self._servers().items()
        return [
            "listen primary",
            f"  bind 127.0.0.1:{self.port}",
            *(f"  {line}" for line in self._check),
            "  default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions",
            *(f"  server n{port} 127.0.0.1:{port} check {how}".rstrip() for port, how in servers),
            "frontend state",
            f"  bind 127.0.0.1:{self._state}",
            "  mode http",
            "  monitor-uri /",
            f"  monitor fail if ! {{ nbsrv(primary) eq {self._many} }}",
        ]

    @property
    def decided(self) -> bool:
        """Whether as many servers pass the check as are to. Before the first check all pass."""
        with contextlib.suppress(OSError):
            ask(f"http://127.0.0.1:{self._state}/")
            return True
        return False


@dataclass(frozen=True)
class Ports:
    """Where others find a node's PostgreSQL and its Patroni, and where the node finds etcd."""

    database: int
    rest: int
    etcd: int


class Cable(Forwarder):
    """What connects a node to the other machines. While it is paused, the cable is cut.

    Then nothing passes, in either direction, and no end of a connection does; what has been sent
    arrives when the cable is whole again, as with a network that loses packets for a while. A
    network namespace for each node would do the same, but only for root, and not in a container.
    """

    def __init__(self, inner: Callable[[], Ports]) -> None:
        super().__init__(POSTGRESQL)
        self._inner = inner
        self._rest, self._etcd = self._claim_port(), self._claim_port()

    @property
    def outer(self) -> Ports:
        return Ports(self.port, self._rest, self._etcd)

    def _listeners(self) -> list[str]:
        lines = []
        for name, port in asdict(self._inner()).items():
            lines += [
                f"listen {name}",
                f"  bind 127.0.0.1:{getattr(self.outer, name)}",
                f"  server node 127.0.0.1:{port}",
                "  retries 0",  # as with a cable: a port that nothing listens on refuses at once
                f"  timeout connect {SECONDS:.0f}s",
            ]
        return lines


def family_check(question: str, answer: bytes, method: str = "") -> Sequence[str]:
    """What lets a server of MariaDB or MySQL pass: root logs in, asks, and the reply has the answer
    in it.

    HAProxy does not speak their protocol, so it is told what to send, byte by byte. MySQL has to be
    told the ``method`` of the login.
    """
    # The capabilities are the 4.1 protocol, with its passwords, and methods; and root has none.
    capabilities = 0x8201 | (0x80000 if method else 0)
    login = capabilities.to_bytes(4, "little") + bytes.fromhex("00000001 21") + bytes(23)
    login += b"root\0\0" + (method.encode() + b"\0" if method else b"")
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
