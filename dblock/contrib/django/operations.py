"""Django's migrations run Alembic's revisions, so that the tables are defined once."""

from __future__ import annotations

from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation

from ...protocol.schema_version import Schema
from ...schema import statements
from . import conf
from .alias import alias as locks_alias


class MigrateTables(Operation):
    """Bring dblock's tables to a revision; do nothing if other migrations created them."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, revision: str, since: str = "base") -> None:
        self.revision = revision
        self.since = since

    def state_forwards(self, app_label: str, state: Any) -> None:
        pass

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        connection = schema_editor.connection
        if self._is_printed(app_label, schema_editor) or (
            self._is_ours(app_label, connection) and self._version(connection) < self._brings_to
        ):
            self._execute(schema_editor, down=False)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if self._is_printed(app_label, schema_editor) or self._is_ours(
            app_label, schema_editor.connection
        ):
            self._execute(schema_editor, down=True)

    def describe(self) -> str:
        return f"dblock's tables: {self.since} to {self.revision}"

    def _is_printed(self, app_label: str, schema_editor: Any) -> bool:
        """Whether it is for ``sqlmigrate``, which prints for a database without the tables."""
        return schema_editor.collect_sql and self._is_here(app_label, schema_editor.connection)

    def _is_here(self, app_label: str, connection: Any) -> bool:
        alias = connection.alias
        return alias == locks_alias() and bool(router.allow_migrate(alias, app_label))

    def _is_ours(self, app_label: str, connection: Any) -> bool:
        return (
            self._is_here(app_label, connection)
            # If its version table is there, `dblock upgrade` has created them.
            and not self._has(connection, "version")
        )

    @property
    def _brings_to(self) -> int:
        return int(self.revision.removeprefix("dblock_"))

    def _version(self, connection: Any) -> int:
        """Return the version of the tables that are there, 0 for none."""
        if not self._has(connection, "schema"):
            return 0
        table = connection.ops.quote_name(conf.conf().table("schema"))
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return Schema.of(cursor.fetchone()).revision

    def _has(self, connection: Any, name: str) -> bool:
        read = conf.conf()
        with connection.cursor() as cursor:
            if read.schema:
                cursor.execute(
                    "SELECT count(*) FROM information_schema.tables "
                    "WHERE table_schema = %s AND table_name = %s",
                    [read.schema, read.prefix + name],
                )
                return bool(cursor.fetchone()[0])
            return read.prefix + name in connection.introspection.table_names(cursor)

    def _execute(self, schema_editor: Any, *, down: bool) -> None:
        read = conf.conf()
        for statement in statements(
            _backend(schema_editor.connection),
            self.revision,
            since=self.since,
            schema=read.schema,
            prefix=read.prefix,
            down=down,
        ):
            schema_editor.execute(statement, params=None)


def _backend(connection: Any) -> str:
    """Return SQLAlchemy's name of the database: Django's is the same for MariaDB and MySQL."""
    if connection.vendor == "mysql" and connection.mysql_is_mariadb:
        return "mariadb"
    return str(connection.vendor)
