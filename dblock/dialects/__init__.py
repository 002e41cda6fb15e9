"""One folder a database: its statements, and its usual driver's adapter.

The files have the same names in each. What all have is in :mod:`.dialect`, :mod:`.waiters` and
:mod:`.runs`.
"""

from __future__ import annotations

from .adapter import Adapter
from .dialect import Dialect
from .mariadb import MariaDB
from .postgresql import PostgreSQL
from .sqlite import SQLite

DIALECTS: dict[str, type[Dialect]] = {d.name: d for d in (PostgreSQL, MariaDB, SQLite)}
#: How each is usually spoken to.
ADAPTERS: dict[str, type[Adapter]] = {name: d.driver for name, d in DIALECTS.items()}

__all__ = ["ADAPTERS", "DIALECTS", "Adapter", "Dialect", "MariaDB", "PostgreSQL", "SQLite"]
