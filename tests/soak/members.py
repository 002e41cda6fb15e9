"""The databases of a quorum, and beside them a file for the users' data."""

from __future__ import annotations

from typing import ClassVar

from dblock.schema import upgrade
from tests.faults.proxy import Proxy
from tests.servers import OwnServer

from .file import File

KEPT = 100  # requests that a proxy remembers


class Member:
    """One of the databases. To a server the workers have a network, to a file they have not."""

    def __init__(self, server: OwnServer | File) -> None:
        self.server = server
        self.proxy: Proxy | None = None
        self._database = ""

    @property
    def direct(self) -> str:
        """The URL by which the network does not matter."""
        return self.server.url_for(self._database)

    @property
    def url(self) -> str:
        """The URL for the workers."""
        return self.direct if self.proxy is None else self.proxy.url

    def create_database(self, name: str) -> None:
        self._database = name
        self.server.create_database(name)
        upgrade(self.direct)
        if isinstance(self.server, OwnServer):
            self.proxy = Proxy(self.direct)

    def tidy(self) -> None:
        """Forget old requests, which the proxy would remember for ever."""
        if self.proxy is not None:
            del self.proxy.requests[:-KEPT]

    def close(self) -> None:
        if self.proxy is not None:
            self.proxy.__exit__()
        self.server.close()


class Members(File):
    """Its own URL is that of the users' data, to which nothing happens."""

    kind: ClassVar[str] = "quorum"

    def __init__(self, *servers: OwnServer | File) -> None:
        super().__init__()
        self.members = [Member(server) for server in servers]

    @property
    def member_urls(self) -> tuple[str, ...]:
        """The members' URLs, for the workers."""
        return tuple(member.url for member in self.members)

    def create_database(self, name: str, template: str | None = None) -> None:
        for member in self.members:
            member.create_database(name)

    def start(self) -> None:
        for member in self.members:
            member.server.start()

    def close(self) -> None:
        for member in self.members:
            member.close()
        super().close()
