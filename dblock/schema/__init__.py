"""dblock's tables: as SQLAlchemy metadata, and through the migrations that make them.

The migrations are the truth about a database; :func:`tables` describes their newest state, for
applications that keep all their tables in one MetaData. A test holds the two together.
"""

from __future__ import annotations

from .migrate import downgrade, migrations, sql, upgrade
from .tables import tables

__all__ = ["downgrade", "migrations", "sql", "tables", "upgrade"]
