"""TLS of a user's engine: dblock's own connections are encrypted, and verify the server too."""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dblock import Locks, Unavailable
from dblock.aio import AsyncLocks
from tests.conftest import find_or_skip, upgrade
from tests.servers import FAMILY, MySQL, Server, execute
from tests.servers.mariadb import MariaDB
from tests.servers.own import make_directory, server_user
from tests.servers.postgresql import PostgreSQL
from tests.support import LONG
from tests.worlds.portal import WORLDS, Asyncio


@pytest.fixture(scope="module")
def certificates() -> Path:
    """A directory with ca.crt, other.crt of another authority, and a server's own."""
    made = make_directory()
    for name in ("ca", "other"):
        _make(made, name, "-addext", "keyUsage=critical,keyCertSign")
    by = ("-CA", made / "ca.crt", "-CAkey", made / "ca.key")
    _make(made, "server", *by, "-addext", "subjectAltName=IP:127.0.0.1")
    if os.geteuid() == 0:
        user = server_user()
        os.chown(made / "server.key", user.pw_uid, user.pw_gid)
    return made


def _make(directory: Path, name: str, *options: str | Path) -> None:
    files = ("-keyout", directory / f"{name}.key", "-out", directory / f"{name}.crt")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    command = ("openssl", "req", "-x509", *key, "-subj", f"/CN={name}", *files, *options)
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def servers(certificates: Path) -> Iterator[dict[str, Server]]:
    """They take no connection without TLS from the user ``app``."""
    key, certificate = certificates / "server.key", certificates / "server.crt"
    tls = [f"--ssl-{name}={file}" for name, file in (("key", key), ("cert", certificate))]
    with (
        find_or_skip(PostgreSQL) as postgresql,
        find_or_skip(lambda: MariaDB(options=tls)) as mariadb,
        find_or_skip(lambda: MySQL(options=[*tls, "--tls-version=TLSv1.2,TLSv1.3"])) as mysql,
    ):
        for server in (postgresql, mariadb, mysql):
            upgrade(server.url)
        (hba,) = execute(postgresql.url, "SHOW hba_file")[0]
        ours = "hostssl all app all trust\nhost all app all reject\n"
        Path(hba).write_text(ours + Path(hba).read_text())
        execute(
            postgresql.url,
            "CREATE ROLE app LOGIN SUPERUSER",
            f"ALTER SYSTEM SET ssl_key_file = '{key}'",
            f"ALTER SYSTEM SET ssl_cert_file = '{certificate}'",
            "ALTER SYSTEM SET ssl = on",
            "SELECT pg_reload_conf()",
        )
        grant = "GRANT ALL ON *.* TO app WITH GRANT OPTION"
        for server in (mariadb, mysql):
            execute(server.url, "CREATE USER app REQUIRE SSL", grant)
        yield {"postgresql": postgresql, "mariadb": mariadb, "mysql": mysql}


Settings = Callable[[Path], dict[str, Any]]
#: What verifies the server with each driver, by the certificate of an authority.
VERIFYING: dict[tuple[str, str], Settings] = {
    ("threads", "postgresql+psycopg2"): lambda ca: {"sslmode": "verify-full", "sslrootcert": ca},
    ("asyncio", "postgresql+asyncpg"): lambda ca: {"ssl": "verify-full"},  # and PGSSLROOTCERT
    ("threads", "mysql+mysqldb"): lambda ca: {"ssl_mode": "VERIFY_IDENTITY", "ssl": {"ca": ca}},
    ("threads", "mysql+mysqlconnector"): lambda ca: {
        "ssl_ca": ca,
        "ssl_verify_cert": True,
        "ssl_verify_identity": True,
    },
    ("asyncio", "mysql+aiomysql"): lambda ca: {"ssl": ssl.create_default_context(cafile=ca)},
}
WITHOUT: dict[str, dict[str, Any]] = {
    "postgresql+psycopg2": {"sslmode": "disable"},
    "postgresql+asyncpg": {"ssl": False},
    "mysql+mysqldb": {"ssl_mode": "DISABLED"},
    "mysql+mysqlconnector": {"ssl_disabled": True},
    "mysql+aiomysql": {},
}


CASES = [
    (world, driver, kind)
    for world, driver in VERIFYING
    for kind in (("postgresql",) if driver.startswith("postgresql") else FAMILY)
    if (driver, kind) != ("mysql+mysqlconnector", "mariadb")
]


@pytest.mark.parametrize(("world", "driver", "kind"), CASES)
def test_own_connections(
    servers: dict[str, Server],
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    world: str,
    driver: str,
    kind: str,
) -> None:
    server = servers[kind]
    host = server.url.rpartition("@")[2]
    with WORLDS[world]() as here:

        def locks(**connect_args: Any) -> Locks:
            engine: Any = here.engine(f"{driver}://app@{host}", connect_args=connect_args)
            if isinstance(here, Asyncio):
                return here.surface(AsyncLocks(engine.target))  # type: ignore[no-any-return]
            return Locks(engine)

        def verified(by: str) -> Locks:
            authority = str(certificates / by)
            monkeypatch.setenv("PGSSLROOTCERT", authority)
            return locks(**VERIFYING[world, driver](authority))  # type: ignore[arg-type]

        with verified("ca.crt") as good, good.lease("report", ttl=LONG, wait=0):
            pass
        with verified("other.crt") as wrong, pytest.raises(Unavailable, match="certificate"):
            wrong.list()
        with locks(**WITHOUT[driver]) as bare, pytest.raises(Unavailable):
            bare.list()
