"""The default database: one SQLite file of this user on this host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Misconfigured, SchemaMissing
from . import private

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from ..locks import Locks


@dataclass(frozen=True, slots=True)
class Default:
    """The file ``dblock/locks.db`` in the user's state directory (XDG Base Directory)."""

    file: Path

    @classmethod
    def find(cls) -> Default:
        state = Path(os.environ.get("XDG_STATE_HOME", ""))
        if not state.is_absolute():  # the specification: then it is to be ignored
            try:
                state = Path.home() / ".local" / "state"
            except RuntimeError as error:
                raise Misconfigured(
                    f"there is no home directory for the default database ({error}): set DBLOCK_URL"
                ) from error
        return cls(state / "dblock" / "locks.db")

    def url(self) -> str | URL:
        """Create the file and its directory if they are missing; return the file's URL."""
        try:
            private.make(self.file)
        except OSError as error:
            raise Misconfigured(
                f"dblock cannot create the default database ({error}): "
                "set DBLOCK_URL or XDG_STATE_HOME"
            ) from error
        if "?" not in str(self.file):
            return f"sqlite:///{self.file}"
        from sqlalchemy.engine import URL

        return URL.create("sqlite", database=str(self.file))

    @staticmethod
    def migrate(locks: Locks, *, schema: str | None, prefix: str) -> None:
        """Create the tables if they are missing. Many processes may do this at once."""
        try:
            locks.last_run("dblock")  # any name: the first statement looks at the tables' version
        except SchemaMissing as missing:
            from alembic.util import CommandError

            from ..schema import upgrade

            try:
                upgrade(locks.engine, schema=schema, prefix=prefix)
            except CommandError:  # a newer dblock made them
                raise missing from None
