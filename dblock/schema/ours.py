"""The state of dblock's tables before a migration: which exist, their origin and revision."""

from __future__ import annotations

from alembic.migration import MigrationContext
from sqlalchemy import MetaData, inspect, select, text
from sqlalchemy.engine import Connection

from ..protocol.schema_version import Schema
from .tables import tables


class Ours:
    """The tables in one place, on the connection that migrates them."""

    def __init__(self, connection: Connection, schema: str | None, prefix: str) -> None:
        self._connection = connection
        self._schema = schema
        self._prefix = prefix
        self._tables = tables(MetaData(), schema=schema, prefix=prefix)

    def names(self) -> list[str]:
        """Return the names of the tables that exist."""
        wanted = [table.name for table in self._tables.values()]
        return [name for name in wanted if self._is_there(name)]

    def revision(self) -> str | None:
        """Return the revision of the tables; None if there are none, or not all of the first."""
        if not self._is_there(self._tables["schema"].name):
            return None
        every = select(text("*")).select_from(self._tables["schema"])
        found = Schema.of(self._connection.execute(every).first()).revision
        return f"dblock_{found:04d}" if found else None

    def are_anothers(self) -> bool:
        """Whether other migrations created the tables. Alembic's begin with a version table."""
        return not self._is_there(f"{self._prefix}version") and bool(self.names())

    def half_downgraded(self) -> bool:
        """Whether a downgrade was cut off: the tables' own record is older than Alembic's."""
        opts = {"version_table": f"{self._prefix}version", "version_table_schema": self._schema}
        context = MigrationContext.configure(self._connection, opts=opts)
        return (self.revision() or "") < (context.get_current_revision() or "")

    def drop(self) -> None:
        """Drop the tables that exist."""
        names = self.names()
        for table in self._tables.values():
            if table.name in names:
                table.drop(self._connection)

    def _is_there(self, name: str) -> bool:
        # Without a schema also elsewhere on PostgreSQL's search_path, as in all statements.
        return inspect(self._connection).has_table(name, self._schema)
