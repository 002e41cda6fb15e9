"""Checks whether there is anything to migrate, at the place of the migration.

The check runs on the lock's own connection. On the user's connection it would begin a transaction,
which Alembic then would not commit, with a snapshot from before the lock. So the lock's connection
goes to the place of the user's: to the search_path of a tenant on PostgreSQL, to its database on
MariaDB.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from alembic import context as alembic_context
from alembic.migration import MigrationContext
from alembic.util import CommandError, to_tuple
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from ..dialects import Dialect

Needed = Callable[[Connection], bool]
"""Says whether there is anything to migrate. It gets the lock's own connection."""


class MigrationPlace:
    """The place in its database where a user's connection migrates."""

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        self._dialect = dialect
        self._schema_name = connection.dialect.default_schema_name
        self._translated = connection.get_execution_options().get("schema_translate_map")
        self._found = _ask(connection, dialect.migration_place())

    def go(self, own: Connection) -> None:
        """Take the lock's own connection there, with the settings that may last beyond a check."""
        own.dialect.default_schema_name = self._schema_name
        own.execution_options(schema_translate_map=self._translated)
        self._run(own, self._dialect.go_to_place(self._found))

    @contextlib.contextmanager
    def stay(self, own: Connection) -> Iterator[None]:
        """Be there for one check. It leaves no setting behind in a pooler's connection."""
        before, after = self._dialect.look_at_place(self._found)
        self._run(own, before)
        try:
            yield
        finally:
            self._run(own, after)

    @staticmethod
    def _run(own: Connection, statements: tuple[tuple[str, dict[str, str]], ...]) -> None:
        for statement, params in statements:
            own.execute(text(statement), params)


def _ask(connection: Connection, questions: tuple[str, ...]) -> tuple[str | None, ...]:
    """Run queries on the user's connection, below SQLAlchemy, which would begin a transaction.

    None of these queries takes a snapshot.
    """
    driver = connection.connection
    info = getattr(driver.driver_connection, "info", None)
    begun = getattr(info, "transaction_status", 0) != 0  # psycopg's: a user's cursor has begun it
    found = []
    try:
        for question in questions:
            cursor = driver.cursor()
            cursor.execute(question)
            found.append(cursor.fetchone()[0])  # type: ignore[index]
            cursor.close()
    finally:
        if questions and not connection.in_transaction() and not begun:
            driver.rollback()
    return tuple(found)


def alembic_needs(connection: Connection) -> Needed | None:
    """Return a function that says whether the running Alembic command has work to do."""
    try:
        migration = alembic_context.get_context()
        destination = set(to_tuple(alembic_context.get_revision_argument(), ()))
    except KeyError:
        return lambda own: False  # `current`, `check`, `revision`: they only look
    except (NameError, CommandError):
        return None  # not run by Alembic; or a relative revision
    except Exception:  # its own kind for "not configured yet"
        return None
    if migration.connection is not connection:
        return None  # configured for another database: this one's comes later
    options = {
        name: migration.opts[name]
        for name in ("version_table", "version_table_schema")
        if migration.opts.get(name) is not None
    }

    def needed(own: Connection) -> bool:
        try:
            there = MigrationContext.configure(own, opts=options)
            return set(there.get_current_heads()) != destination
        except DBAPIError:
            return True  # not visible here, for example in a database that the user has attached

    return needed
