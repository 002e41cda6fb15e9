"""Where the contenders meet: each server started when it is first asked for, all ended together."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from sqlalchemy import make_url

from dblock.schema import upgrade
from tests.servers import MariaDB, MySQL, OwnServer, PostgreSQL, ServerMissing

from .raw import create_tables
from .servers import Redis, ZooKeeper

_SERVERS: dict[str, Callable[[], OwnServer]] = {
    "postgresql": lambda: PostgreSQL(durable=True),
    "mariadb": lambda: MariaDB(durable=True),
    "mysql": lambda: MySQL(durable=True),
    "redis": Redis,
    "redis-aof": lambda: Redis(durable=True),
    "zookeeper": ZooKeeper,
}
#: The same server as "postgresql", and dblock's tables in it without WAL.
VOLATILE = "volatile"


class Site:
    """The servers of one run. What is missing is noted, not an error.

    ``peers`` tells whether other libraries take part, or only dblock and the bare drivers.
    """

    def __init__(self, *, peers: bool = True) -> None:
        self.peers = peers
        self.missing: list[str] = []
        self._stack = ExitStack()
        self._servers: dict[str, OwnServer | ServerMissing] = {}
        self._urls: dict[str, str | ServerMissing] = {}
        self._made = 0
        self._template: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def clear(self) -> None:
        """From now on give new databases: what one group leaves must not slow the next."""
        self._urls = {}

    def url(self, kind: str) -> str:
        """Return where a kind of database, or a peer's server, is. Raises ServerMissing."""
        if kind not in self._urls:
            try:
                self._urls[kind] = self.database(kind)
            except ServerMissing as missing:
                self._urls[kind] = missing
        found = self._urls[kind]
        if isinstance(found, ServerMissing):
            raise found
        return found

    def urls(self, kinds: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield each of these kinds that is there, with its URL; note what is missing."""
        for kind in kinds:
            try:
                url = self.url(kind)
            except ServerMissing as missing:
                self.miss(missing)
            else:
                yield kind, url

    def database(self, kind: str) -> str:
        """Make a new database with all the tables; a server without databases is itself one."""
        if kind == "sqlite":
            directory = self._stack.enter_context(TemporaryDirectory())
            return _with_tables(kind, f"sqlite:///{directory}/benchmark.db")
        server = self.server("postgresql" if kind == VOLATILE else kind)
        if isinstance(server, Redis | ZooKeeper):
            return server.url
        if kind != "postgresql":
            return _with_tables(kind, self._create(server))
        if self._template is None:  # copied from then on: the migrations take their time
            url = _with_tables(kind, self._create(server))
            self._template = make_url(url).database
        return self._create(server, self._template)

    def _create(self, server: OwnServer, template: str | None = None) -> str:
        self._made += 1
        server.create_database(f"benchmark{self._made}", template)
        return server.url_for(f"benchmark{self._made}")

    def server(self, kind: str) -> OwnServer:
        if kind not in self._servers:
            try:
                self._servers[kind] = self._stack.enter_context(_SERVERS[kind]())
            except ServerMissing as missing:
                self._servers[kind] = missing
        found = self._servers[kind]
        if isinstance(found, ServerMissing):
            raise found
        return found

    def miss(self, what: object) -> None:
        """Note what could not be measured, once."""
        line = str(what).replace("tests skipped", "not measured")
        if line not in self.missing:
            self.missing.append(line)


def _with_tables(kind: str, url: str) -> str:
    if kind == VOLATILE:
        _upgrade_volatile(url)
    else:
        upgrade(url)
    create_tables(url)
    return url


def _upgrade_volatile(url: str) -> None:
    command = (sys.executable, "-m", "dblock", "upgrade", "--url", url, "--durability", "volatile")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()
        raise ServerMissing("volatile tables", why[-1] if why else "dblock upgrade failed")
