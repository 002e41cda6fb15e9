"""The peers' servers, started like the tests' databases: throw-away, on free ports of 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.servers import OwnServer, ServerMissing

PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
#: Where Debian's package puts it; the manifest of the jar names those that it needs.
ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")


class PeerServer(OwnServer):
    """What both have in common: no databases, and a greeting that shows that they are up."""

    stop_signal = signal.SIGTERM
    greeting: tuple[bytes, bytes]

    def _prepare(self) -> None:
        self._run("mkdir", self.data)

    def _probe(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            question, answer = self.greeting
            connection.sendall(question)
            if not connection.recv(64).startswith(answer):
                raise OSError("it does not answer")

    def create_database(self, name: str, template: str | None = None) -> NoReturn:
        raise NotImplementedError(f"{self.name} has no databases to create")

    def drop_database(self, name: str) -> NoReturn:
        raise NotImplementedError(f"{self.name} has no databases to drop")


class Redis(PeerServer):
    """In memory; or, durable, with each write in a file and that on the disk before the answer."""

    name, kind = "Redis", "redis"
    greeting = (b"PING\r\n", b"+PONG")

    def __init__(self, durable: bool = False) -> None:
        program = shutil.which("redis-server", path=PLACES)
        if program is None:
            raise ServerMissing(self.name, "no redis-server on this machine (apt install redis)")
        super().__init__(durable)
        self._program = program

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str | Path]:
        settings = {
            "port": str(self.port),
            "bind": self.address,
            "dir": str(self.data),
            "save": "",
            "appendonly": "yes" if self.durable else "no",
            "appendfsync": "always",
            "set-proc-title": "no",  # the reaper knows the process by its command line
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return [self._program, *options]


class ZooKeeper(PeerServer):
    """A single server; it syncs its log before each answer unless told otherwise."""

    name, kind = "ZooKeeper", "zookeeper"
    greeting = (b"ruok", b"imok")

    def __init__(self) -> None:
        java = shutil.which("java")
        if java is None or not ZOOKEEPER_JAR.exists():
            raise ServerMissing(self.name, "no ZooKeeper on this machine (apt install zookeeper)")
        super().__init__(durable=True)
        self._java = java

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _prepare(self) -> None:
        super()._prepare()
        settings = {
            "dataDir": self.data,
            "clientPort": self.port,
            "clientPortAddress": self.address,
            "tickTime": 500,  # its sessions end in steps of this
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,mntr",
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.directory / "zoo.cfg").write_text(lines)

    def _command(self) -> Sequence[str | Path]:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-cp", ZOOKEEPER_JAR)
        return [self._java, *options, main, self.directory / "zoo.cfg"]
