"""What MariaDB and MySQL have in common as servers of the tests."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from tests.servers.base import Server, execute
from tests.servers.own import OwnServer


class Databases(Server):
    def create_database(self, name: str, template: str | None = None) -> None:
        statements = [f"CREATE DATABASE `{name}`"]
        if template is not None:
            for (table,) in execute(self.url, f"SHOW TABLES FROM `{template}`"):
                copy, original = f"`{name}`.`{table}`", f"`{template}`.`{table}`"
                statements.append(f"CREATE TABLE {copy} LIKE {original}")
                statements.append(f"INSERT INTO {copy} SELECT * FROM {original}")
        execute(self.url, *statements)

    def drop_database(self, name: str) -> None:
        # A transaction left open in it would block the DROP for a day.
        for connection, _, _, used, *_ in execute(self.url, "SHOW PROCESSLIST"):
            if used == name:
                with contextlib.suppress(SQLAlchemyError):  # it has just gone by itself
                    execute(self.url, f"KILL {connection}")
        execute(self.url, f"DROP DATABASE IF EXISTS `{name}`")


class OwnFamily(Databases, OwnServer):
    """A server process of either."""

    stop_signal = signal.SIGTERM

    def __init__(self, program: Path, durable: bool, options: Sequence[str]) -> None:
        super().__init__(durable)
        self._program = program
        #: For its next start.
        self.options = options

    @property
    def url(self) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/mysql"

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
            "--innodb-use-native-aio=0",  # containers often limit it
            # 2: what is committed survives a crash of the server, if not one of the machine.
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
            *self._settings(),
            *self.options,  # the last: of one that is given twice the server takes the later
        ]

    def _settings(self) -> Sequence[str]:
        """The options that all servers of this kind have."""
        return ()

    def _probe(self) -> None:
        execute(self.url, "SELECT 1", connect_timeout=5, read_timeout=5)

    def status(self, name: str, **options: float) -> str:
        """What the server counts under a name; the driver's options say how long it may take."""
        ((_, value),) = execute(self.url, f"SHOW GLOBAL STATUS LIKE '{name}'", **options)
        return str(value)
