"""A file of SQLite's, where others have a server: nothing of it can be stopped or killed."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar, NoReturn

from tests.servers import Server


class File(Server):
    kind: ClassVar[str] = "sqlite"

    def __init__(self) -> None:
        self._directory = Path(mkdtemp(prefix="dblock-soak-file-"))

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

    pause = resume = kill

    def close(self) -> None:
        shutil.rmtree(self._directory)
