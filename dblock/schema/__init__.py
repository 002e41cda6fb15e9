"""dblock's tables: the migrations that create them, and their SQLAlchemy metadata.

The migrations define the tables in a database. :func:`tables` describes their newest state, for
applications that keep all their tables in one MetaData. A test compares the two.

:func:`migration_lock` is for migrations of any tables: it lets one process migrate at a time.
"""

from __future__ import annotations

from .migrate import Downgraded, Upgraded, downgrade, sql, upgrade
from .migration_lock import migration_lock
from .revisions import create, drop, migrations, statements
from .tables import leave_ours, tables

__all__ = [
    "Downgraded",
    "Upgraded",
    "create",
    "downgrade",
    "drop",
    "leave_ours",
    "migration_lock",
    "migrations",
    "sql",
    "statements",
    "tables",
    "upgrade",
]
