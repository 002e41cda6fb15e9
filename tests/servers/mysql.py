"""MySQL servers for the tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.servers.base import GivenServer, Server, ServerMissing, missing
from tests.servers.mysql_base import Databases, OwnFamily

VARIABLE = "DBLOCK_TEST_MYSQL"
#: The folder of its programs. The PATH is not searched: MariaDB has a program of the same name.
PROGRAMS = "DBLOCK_TEST_MYSQL_PROGRAMS"
MISSING = f"no mysqld (.ci/servers mysql FOLDER and {PROGRAMS}=FOLDER/bin, or set {VARIABLE})"
#: As of MariaDB, of the process list: whether a session waits for a row that it locks.
WAITS_FOR_A_ROW = """command = 'Query' AND id IN (
    SELECT t.processlist_id
    FROM performance_schema.data_lock_waits AS w
    JOIN performance_schema.threads AS t ON t.thread_id = w.requesting_thread_id
)"""


def find_mysql() -> Path | None:
    """The server program."""
    places = os.environ.get(PROGRAMS)
    server = shutil.which("mysqld", path=places) if places else None
    return Path(server) if server else None


def shared_mysql() -> Server:
    """The server that the environment gives, or a new one."""
    if url := os.environ.get(VARIABLE):
        return GivenMySQL(url)
    return MySQL()


class GivenMySQL(Databases, GivenServer):
    kind = "mysql"

    def __init__(self, url: str) -> None:
        super().__init__(VARIABLE, url, {"mysql": "mysql+pymysql"})


class MySQL(OwnFamily):
    kind = "mysql"
    name = "MySQL"

    def __init__(self, durable: bool = False, options: Sequence[str] = ()) -> None:
        program = find_mysql()
        if program is None:
            raise ServerMissing(self.name, missing(PROGRAMS, MISSING))
        super().__init__(program, durable, options)

    def _prepare(self) -> None:
        # As it is made, root may come by its socket alone: --skip-name-resolve leaves no localhost.
        script = self.directory / "root.sql"
        script.write_text("RENAME USER root@localhost TO root@'%';\n")
        self._run(*self._command(), "--initialize-insecure", f"--init-file={script}")

    def _settings(self) -> Sequence[str]:
        return [
            "--innodb-redo-log-capacity=32M",
            f"--sync-binlog={1 if self.durable else 0}",
            "--mysqlx=OFF",  # another protocol, on a port that all servers would share
            # The proxies of these tests read what is sent. So does no other server here by itself.
            "--tls-version=",
            "--secure-file-priv=",  # a folder that only an installed server has
        ]
