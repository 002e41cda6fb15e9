"""MariaDB servers for the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from tests.servers.base import GivenServer, Server, ServerMissing, execute, missing
from tests.servers.own import OwnServer

VARIABLE = "DBLOCK_TEST_MARIADB"
INSTALL = "mariadb-install-db"
PROGRAMS = "DBLOCK_TEST_MARIADB_PROGRAMS"  # the folder of another version's
MISSING = f"no mariadbd on this machine (apt install mariadb-server, or set {VARIABLE})"
AS_A_NODE = ("--wsrep-on=ON", "--wsrep-provider=none", "--binlog-format=ROW")
#: Of the process list: whether a session waits for a row that it locks. Not by innodb_trx, which
#: shows nothing new to a query that reads it all the time. The query itself has the text too.
WAITS_FOR_A_ROW = "command = 'Query' AND INSTR(info, 'FOR UPDATE WAIT ') AND id <> CONNECTION_ID()"
# A user's PATH often lacks the directories of the system's servers.
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


def find_mariadb() -> tuple[Path, Path] | None:
    """The server program, and the one that sets up its data directory."""
    places = os.environ.get(PROGRAMS) or PLACES
    server, install = (shutil.which(name, path=places) for name in ("mariadbd", INSTALL))
    return (Path(server), Path(install)) if server and install else None


def shared_mariadb() -> Server:
    """The server that the environment gives, or a new one."""
    if url := os.environ.get(VARIABLE):
        return GivenMariaDB(url)
    return MariaDB()


class _Databases(Server):
    kind = "mariadb"

    def create_database(self, name: str, template: str | None = None) -> None:
        if template is not None:
            raise ValueError("MariaDB cannot create a database from a template")
        execute(self.url, f"CREATE DATABASE `{name}`")

    def drop_database(self, name: str) -> None:
        # A transaction left open in it would block the DROP for a day.
        users = f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"
        for (connection,) in execute(self.url, users):
            with contextlib.suppress(SQLAlchemyError):  # it has just gone by itself
                execute(self.url, f"KILL {connection}")
        execute(self.url, f"DROP DATABASE IF EXISTS `{name}`")


class GivenMariaDB(_Databases, GivenServer):
    def __init__(self, url: str) -> None:
        drivers = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
        super().__init__(VARIABLE, url, drivers)


class MariaDB(_Databases, OwnServer):
    name = "MariaDB"
    stop_signal = signal.SIGTERM

    def __init__(self, durable: bool = False, options: Sequence[str] = ()) -> None:
        programs = find_mariadb()
        if programs is None:
            raise ServerMissing(self.name, missing(PROGRAMS, MISSING))
        super().__init__(durable)
        self._program, self._install = programs
        #: For its next start.
        self.options = options

    @property
    def url(self) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/mysql"

    def _prepare(self) -> None:
        root = "--auth-root-authentication-method=normal"
        places = (f"--datadir={self.data}", f"--tmpdir={self.directory}")
        self._run(self._install, "--no-defaults", *places, root, "--skip-test-db")

    def _command(self) -> Sequence[str | Path]:
        return [
            self._program,
            "--no-defaults",
            f"--datadir={self.data}",
            # Not /tmp: a server that starts deletes all the temporary tables it finds there.
            f"--tmpdir={self.directory}",
            f"--socket={self.directory}/socket",
            f"--pid-file={self.directory}/pid",
            f"--port={self.port}",
            f"--bind-address={self.address}",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--max-connections=300",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            "--innodb-use-native-aio=0",  # containers often limit it
            # 2: what is committed survives a crash of the server, if not one of the machine.
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
            *self.options,
        ]

    def _probe(self) -> None:
        execute(self.url, "SELECT 1", connect_timeout=5, read_timeout=5)

    def status(self, name: str, **options: float) -> str:
        """What the server counts under a name; the driver's options say how long it may take."""
        ((_, value),) = execute(self.url, f"SHOW GLOBAL STATUS LIKE '{name}'", **options)
        return str(value)


class LoneNode(MariaDB):
    """A node of a Galera cluster without any others, and without the library to reach them.

    dblock sends it the statements of a cluster.
    """

    def __init__(self) -> None:
        super().__init__(options=AS_A_NODE)
