"""A file of SQLite's, where others have a server: nothing of it can be stopped or killed.

It can be kept from all who write, and an older copy can take its place.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar, NoReturn

from tests.patience import SECONDS
from tests.servers import Server


class File(Server):
    kind: ClassVar[str] = "sqlite"

    def __init__(self) -> None:
        self._directory = Path(mkdtemp(prefix="dblock-soak-file-"))
        self._writers: list[sqlite3.Connection] = []

    @property
    def url(self) -> str:
        return self.url_for("main")

    def url_for(self, database: str) -> str:
        return f"sqlite:///{self._directory / database}.db"

    def create_database(self, name: str, template: str | None = None) -> None:
        """It is there when it is first used."""

    def drop_database(self, name: str) -> None:
        (self._directory / f"{name}.db").unlink(missing_ok=True)

    def start(self) -> None:
        """There is nothing to start."""

    def stop(self) -> None:
        """Nor to stop."""

    def kill(self) -> NoReturn:
        raise NotImplementedError

    def pause(self) -> None:
        """Begin to write, and do not end: nobody else can write."""
        for path in self._directory.glob("*.db"):
            writer = sqlite3.connect(
                path, timeout=SECONDS, isolation_level=None, check_same_thread=False
            )
            self._writers.append(writer)
            writer.execute("BEGIN EXCLUSIVE")

    def resume(self) -> None:
        while self._writers:
            self._writers.pop().close()

    def copy(self) -> Path:
        """Copy all databases; return the folder of the copy."""
        copy = Path(mkdtemp(prefix="copy-", dir=self._directory))
        self._copy(self._directory, copy)
        return copy

    def restore(self, copy: Path) -> None:
        """Replace the databases, which nobody may use meanwhile, with a copy, which stays."""
        self._copy(copy, self._directory)

    def _copy(self, source: Path, target: Path) -> None:
        for path in source.glob("*.db"):
            with (
                closing(sqlite3.connect(path, timeout=SECONDS)) as old,
                closing(sqlite3.connect(target / path.name, timeout=SECONDS)) as new,
            ):
                old.backup(new)

    def close(self) -> None:
        self.resume()
        shutil.rmtree(self._directory)
