"""One file a database: its statements, its error codes, its flags. See :mod:`.base`."""

from __future__ import annotations

from .base import Dialect
from .mariadb import MariaDB
from .postgresql import PostgreSQL
from .sqlite import SQLite

DIALECTS: dict[str, type[Dialect]] = {d.name: d for d in (PostgreSQL, MariaDB, SQLite)}

__all__ = ["DIALECTS", "Dialect", "MariaDB", "PostgreSQL", "SQLite"]
