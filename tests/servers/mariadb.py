"""MariaDB servers for the tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.servers.base import GivenServer, Server, ServerMissing, missing
from tests.servers.mysql_base import Databases, OwnFamily

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


class GivenMariaDB(Databases, GivenServer):
    kind = "mariadb"

    def __init__(self, url: str) -> None:
        drivers = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
        super().__init__(VARIABLE, url, drivers)


class MariaDB(OwnFamily):
    kind = "mariadb"
    name = "MariaDB"

    def __init__(self, durable: bool = False, options: Sequence[str] = ()) -> None:
        programs = find_mariadb()
        if programs is None:
            raise ServerMissing(self.name, missing(PROGRAMS, MISSING))
        program, self._install = programs
        super().__init__(program, durable, options)

    def _prepare(self) -> None:
        root = "--auth-root-authentication-method=normal"
        places = (f"--datadir={self.data}", f"--tmpdir={self.directory}")
        self._run(self._install, "--no-defaults", *places, root, "--skip-test-db")

    def _settings(self) -> Sequence[str]:
        return ["--innodb-log-file-size=16M"]


class LoneNode(MariaDB):
    """A node of a Galera cluster without any others, and without the library to reach them.

    dblock sends it the statements of a cluster.
    """

    def __init__(self) -> None:
        super().__init__(options=AS_A_NODE)
