"""PgBouncer in front of a PostgreSQL server, in transaction pooling."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import make_url

from tests.servers.base import Server, ServerMissing
from tests.servers.own import OwnServer
from tests.servers.postgresql import PostgreSQL

PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
MISSING = "no pgbouncer on this machine (apt install pgbouncer)"


def find_pgbouncer() -> Path | None:
    found = shutil.which("pgbouncer", path=PLACES)
    return Path(found) if found else None


class PgBouncer(OwnServer):
    kind = "pgbouncer"
    name = "PgBouncer"
    stop_signal = signal.SIGQUIT  # at once, in all versions; the newest wait on SIGTERM

    def __init__(self, upstream: Server, pool_size: int = 5) -> None:
        program = find_pgbouncer()
        if program is None:
            raise ServerMissing(self.name, MISSING)
        super().__init__()
        self._program = program
        self.upstream = upstream
        self.pool_size = pool_size

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    def create_database(self, name: str, template: str | None = None) -> None:
        self.upstream.create_database(name, template)

    def drop_database(self, name: str) -> None:
        self.upstream.drop_database(name)

    def _prepare(self) -> None:
        self.data.mkdir()

    def _command(self) -> Sequence[str | Path]:
        url = make_url(self.upstream.url)
        target = f"host={url.host or '127.0.0.1'} port={url.port or 5432}"
        target += f" user={url.username or 'postgres'}"
        if url.password:
            target += " password='{}'".format(str(url.password).replace("'", "''"))
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": self.directory,
            "auth_type": "any",  # whoever the client says it is, upstream it is the user above
            "pool_mode": "transaction",
            "default_pool_size": self.pool_size,
            "max_client_conn": 200,
            "server_login_retry": 1,
        }
        lines = ["[databases]", f"* = {target}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        ini = self.directory / "pgbouncer.ini"
        ini.write_text("\n".join([*lines, ""]))
        ini.chmod(0o600)  # a given server's password may be in it
        owner = self.directory.stat()
        os.chown(ini, owner.st_uid, owner.st_gid)
        return [self._program, ini]

    def _probe(self) -> None:
        # Not a query: PgBouncer is up even while the server behind it is not.
        socket.create_connection(("127.0.0.1", self.port), timeout=5).close()


class Pooled(PgBouncer):
    """A pooler with a server of its own behind it."""

    def __init__(self) -> None:
        super().__init__(PostgreSQL())

    def start(self) -> None:
        self.upstream.start()
        super().start()

    def close(self) -> None:
        super().close()
        self.upstream.close()
