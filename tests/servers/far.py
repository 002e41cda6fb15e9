"""Servers at one end of a network that can be cut; the tests reach them by their Unix sockets.

A Unix socket is a file: it joins processes whatever network namespaces they are in. So this side
of the cut is the test itself, by ``url``; the other is a process at the client's end, by ``far``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from sqlalchemy import make_url

from tests.servers.base import execute
from tests.servers.mariadb import MariaDB
from tests.servers.mysql import MySQL
from tests.servers.mysql_base import OwnFamily
from tests.servers.network import Network
from tests.servers.own import OwnServer, server_user
from tests.servers.postgresql import PostgreSQL


class Far(OwnServer):
    """What both have in common."""

    address = "10.213.7.1"

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network

    def far(self, database: str) -> str:
        """SQLAlchemy URL of a database, as the client's end reaches it."""
        url = make_url(self.url_for(database))
        host = url.set(host=self._network.server.address, port=self.port, query={})
        return host.render_as_string(hide_password=False)

    def _through(self) -> Sequence[str]:
        if os.geteuid() != 0:
            return self._network.server.run()
        user = server_user()
        return self._network.server.run(user=user.pw_uid, group=user.pw_gid)

    def _options(self) -> dict[str, Any]:
        # Entering a namespace is root's; then the user is changed.
        ours = ("user", "group", "extra_groups")
        return {key: value for key, value in super()._options().items() if key not in ours}


class FarPostgreSQL(Far, PostgreSQL):
    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@/postgres?host={self.directory}&port={self.port}"

    def _prepare(self) -> None:
        super()._prepare()
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {self._network.client.address}/32 trust\n")


class FarFamily(Far, OwnFamily):
    """A server of the family of MariaDB."""

    @property
    def url(self) -> str:
        return f"mysql+pymysql://root@localhost/mysql?unix_socket={self.directory}/socket"

    def _probe(self) -> None:
        with socket.socket(socket.AF_UNIX) as probe:  # PyMySQL forgets to close its own
            probe.connect(f"{self.directory}/socket")
        super()._probe()

    def start(self) -> None:
        super().start()
        user = f"root@'{self._network.client.address}'"
        execute(
            self.url,
            f"CREATE USER IF NOT EXISTS {user}",
            f"GRANT ALL PRIVILEGES ON *.* TO {user}",
        )


class FarMariaDB(FarFamily, MariaDB): ...


class FarMySQL(FarFamily, MySQL): ...
