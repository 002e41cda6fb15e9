"""The steps of dblock's revisions. Each step can be run again.

If a database does not undo the first steps of a revision that was cut off, the revision is run
again from its beginning. So a step does nothing if its object exists already, or is gone already.
The revision itself defines the columns of a table.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from .tables import INNODB


class Looks(Enum):
    """How a step learns whether a column is there."""

    #: The statement: ADD COLUMN IF NOT EXISTS, DROP COLUMN IF EXISTS.
    STATEMENT = "statement"
    #: A statement that is prepared from what the server's catalogue says. MySQL has no other way,
    #: and MariaDB has it too.
    PREPARED = "prepared"
    #: The migration, before it sends a statement.
    MIGRATION = "migration"


class DatabaseKind(NamedTuple):
    """The abilities of a kind of database."""

    #: How it is told to add or drop a column only if that is needed.
    looks: Looks
    #: Printed statements run as one transaction, so no object can be left from an earlier run.
    whole: bool
    add_key: str | None


_KINDS = {
    # PostgreSQL replaces an existing key: it has no IF NOT EXISTS for keys.
    "postgresql": DatabaseKind(
        looks=Looks.STATEMENT,
        whole=True,
        add_key="ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {key}, "
        "ADD CONSTRAINT {key} PRIMARY KEY (version)",
    ),
    "mariadb": DatabaseKind(
        looks=Looks.STATEMENT,
        whole=False,
        add_key="ALTER TABLE {table} ADD PRIMARY KEY IF NOT EXISTS (version)",
    ),
    "mysql": DatabaseKind(
        looks=Looks.PREPARED,
        whole=False,
        add_key="ALTER TABLE {table} ADD PRIMARY KEY (version)",
    ),
    "sqlite": DatabaseKind(looks=Looks.MIGRATION, whole=False, add_key=None),
}
_NAMES = {"mariadb": "mysql"}


class Steps:
    """The steps of a revision, on a database or printed; ``op`` is Alembic's.

    Tables are named without their prefix.
    """

    def __init__(self, op: Any) -> None:
        self._op = op
        context = op.get_context()
        self._dialect = context.dialect
        self._printed: bool = context.as_sql
        #: Without a place there are the defaults: this runs in the user's own history.
        self.schema: str | None = context.opts.get("dblock_schema")
        self.prefix: str = context.opts.get("dblock_prefix", "dblock_")
        #: "postgresql", "mysql" or "sqlite".
        self.kind: str = _NAMES.get(self._dialect.name, self._dialect.name)
        # Statements that are printed for a mysql:// URL have to work on MySQL and on MariaDB.
        known = getattr(self._dialect, "is_mariadb", False)
        self._can = _KINDS["mariadb" if known else self.kind]

    def name(self, table: str) -> str:
        """Return a table's name for a statement of text."""
        found = sa.table(self.prefix + table, schema=self.schema)
        return str(self._dialect.identifier_preparer.format_table(found))

    def execute(self, statement: str) -> None:
        """Run a statement that is harmless when it has been run before."""
        self._op.execute(statement)

    def create_table(self, table: str, *parts: Any, comment: str, **more: Any) -> None:
        again = not (self._printed and self._can.whole)
        self._op.create_table(
            self.prefix + table,
            *parts,
            comment=comment,
            schema=self.schema,
            **INNODB,
            if_not_exists=again or None,
            **more,
        )
        if again:  # a table that was there already has to be dblock's: this fails if it is not
            columns = [part.name for part in parts if isinstance(part, sa.Column)]
            listed = ", ".join(map(self._dialect.identifier_preparer.quote, columns))
            self.execute(f"SELECT {listed} FROM {self.name(table)} WHERE 1 = 0")

    def drop_table(self, table: str) -> None:
        self._op.drop_table(self.prefix + table, schema=self.schema, if_exists=True)

    def add_column(self, table: str, column: sa.Column[Any]) -> None:
        if self._can.looks is Looks.PREPARED:
            sa.Table("any", sa.MetaData(), column)  # SQLAlchemy asks it for its table
            defined = CreateColumn(column).compile(dialect=self._dialect)
            change = f"ALTER TABLE {self.name(table)} ADD COLUMN {defined}"
            self._prepared(change, f"NOT {self._has_column(table, column.name)}")
            return
        if self._can.looks is Looks.MIGRATION and column.name in self._columns(table):
            return
        self._op.add_column(
            self.prefix + table,
            column,
            schema=self.schema,
            if_not_exists=self._can.looks is Looks.STATEMENT or None,
        )

    def comment(self, table: str, column: sa.Column[Any]) -> None:
        """Replace a column's comment, if the database has comments."""
        if self._dialect.supports_comments:
            self._op.alter_column(
                self.prefix + table,
                column.name,
                comment=column.comment,
                existing_type=column.type,
                existing_nullable=column.nullable,
                schema=self.schema,
            )

    def drop_column(self, table: str, column: str) -> None:
        quoted = self._dialect.identifier_preparer.quote(column)
        if self._can.looks is Looks.STATEMENT:
            self.execute(f"ALTER TABLE IF EXISTS {self.name(table)} DROP COLUMN IF EXISTS {quoted}")
        elif self._can.looks is Looks.PREPARED:
            change = f"ALTER TABLE {self.name(table)} DROP COLUMN {quoted}"
            self._prepared(change, self._has_column(table, column))
        elif self._printed or column in self._columns(table):
            self._op.drop_column(self.prefix + table, column, schema=self.schema)

    def add_key(self) -> None:
        """Give ``dblock_schema`` a primary key, if an older dblock created it without one."""
        if self._can.add_key is None or self._has_key():
            return
        key = self._dialect.identifier_preparer.quote(f"{self.prefix}schema_pkey")
        change = self._can.add_key.format(table=self.name("schema"), key=key)
        if self._can.looks is Looks.PREPARED:
            constraints = f"information_schema.table_constraints WHERE {self._is_table('schema')}"
            primary = "constraint_type = 'PRIMARY KEY'"
            self._prepared(change, f"NOT EXISTS (SELECT 1 FROM {constraints} AND {primary})")
        else:
            self.execute(change)

    def done(self, number: int, mark: str = "revision") -> None:
        """Record that this revision was applied: an upgrade's last step."""
        if not self._printed:
            self.add_key()  # without a key a server that replicates the table may refuse the change
        table = self.name("schema")
        lower = f"{mark} < {number}" if mark == "version" else f"COALESCE({mark}, 0) < {number}"
        self.execute(f"UPDATE {table} SET {mark} = {number} WHERE {lower}")

    def undo(self, number: int, mark: str = "revision") -> None:
        """Record that this revision goes: a downgrade's first step.

        If the downgrade is cut off, no process takes the tables for the newer revision's.
        """
        if self._printed or mark in self._columns("schema"):
            table, before = self.name("schema"), number - 1
            self.execute(f"UPDATE {table} SET {mark} = {before} WHERE {mark} > {before}")

    def _prepared(self, change: str, needed: str) -> None:
        """Run a change of a table if the condition is met when it is run, also if it is printed."""
        self.execute(f"SET @dblock_step = IF({needed}, {_literal(change)}, 'DO 0')")
        self.execute("PREPARE dblock_step FROM @dblock_step")
        self.execute("EXECUTE dblock_step")
        self.execute("DEALLOCATE PREPARE dblock_step")

    def _has_column(self, table: str, column: str) -> str:
        columns = f"information_schema.columns WHERE {self._is_table(table)}"
        return f"EXISTS (SELECT 1 FROM {columns} AND column_name = {_literal(column)})"

    def _is_table(self, table: str) -> str:
        database = "DATABASE()" if self.schema is None else _literal(self.schema)
        return f"table_schema = {database} AND table_name = {_literal(self.prefix + table)}"

    def _columns(self, table: str) -> set[str]:
        """Return the names of a table's columns; none if there is no such table."""
        look = sa.inspect(self._op.get_bind()) if not self._printed else None
        if look is None or not look.has_table(self.prefix + table, schema=self.schema):
            return set()
        found = look.get_columns(self.prefix + table, schema=self.schema)
        return {column["name"] for column in found}

    def _has_key(self) -> bool:
        if self._printed:
            return False
        found = sa.inspect(self._op.get_bind()).get_pk_constraint(
            self.prefix + "schema", schema=self.schema
        )
        return bool(found["constrained_columns"])


def _literal(text: str) -> str:
    """Return a text for a statement of MySQL's, in any sql_mode."""
    return "'" + text.replace("'", "''") + "'"
