"""The database of one test: an SQLite file with dblock's tables."""

from __future__ import annotations

import sqlite3
import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy import MetaData, create_engine

from ..io.borrowed import Root
from ..protocol.schema_version import SCHEMA_VERSION
from ..schema.tables import tables
from .clock import Clock


class Store:
    """An SQLite file with dblock's tables. Its clock is the test's."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="dblock-")
        self._file = Path(self._directory.name, "locks.db")
        self._file.write_bytes(_empty())
        self.clock = Clock()
        self.url = f"sqlite:///{self._file}"
        self.engine = create_engine(self.url)
        #: The drivers' open connections.
        self.connections: list[sqlite3.Connection] = []
        #: By locked name: the user's transaction that has locked it.
        self.rows: dict[str, Root] = {}

    @property
    def written(self) -> bool:
        """Whether a row lock has a transaction open. That is the file's one writer."""
        return any(connection.in_transaction for connection in list(self.connections))

    def row_of(self, name: str) -> Root | None:
        """Return the user's transaction that has locked a name."""
        root = self.rows.get(name)
        return root if root is not None and root.is_active else None

    def held(self) -> list[str]:
        """Return the names with an unexpired lease."""
        found = self._execute(
            "SELECT lock_name FROM dblock_lock WHERE token IS NOT NULL AND expires_at > :now "
            "ORDER BY lock_name",
            {"now": self.clock.stamp()},
        )
        return [name for (name,) in found]

    def expire(self, name: str) -> str | None:
        """End the lease on a name now; return its token, or None if there is none."""
        found = self._execute(
            "UPDATE dblock_lock SET expires_at = :now "
            "WHERE lock_name = :name AND token IS NOT NULL AND expires_at > :now RETURNING token",
            {"name": name, "now": self.clock.stamp()},
        )
        return found[0][0] if found else None

    def _execute(self, sql: str, params: dict[str, str]) -> list[tuple[str, ...]]:
        connection = sqlite3.connect(self._file, isolation_level=None, timeout=0)
        try:
            return connection.execute(sql, params).fetchall()
        except sqlite3.OperationalError as error:
            raise RuntimeError(
                "a row lock of this test keeps all other statements out, because on SQLite it is "
                f"the one writer ({error}): end its transaction first"
            ) from error
        finally:
            connection.close()

    def close(self) -> None:
        for connection in self.connections:  # row locks that the test did not release
            connection.close()
        self.engine.dispose()
        self._directory.cleanup()


@cache
def _empty() -> bytes:
    """Return the content of a file without locks. It is made once for all tests."""
    with tempfile.TemporaryDirectory(prefix="dblock-") as directory:
        file = Path(directory, "empty.db")
        engine = create_engine(f"sqlite:///{file}")
        metadata = MetaData()
        made = tables(metadata)
        metadata.create_all(engine)
        with engine.begin() as connection:
            version = {"version": SCHEMA_VERSION, "revision": SCHEMA_VERSION}
            connection.execute(made["schema"].insert().values(version))
        engine.dispose()
        driver = sqlite3.connect(file)
        driver.execute("PRAGMA journal_mode = WAL")
        driver.close()
        return file.read_bytes()
