"""What a migration of the tables asks a dialect for, and the answers of most databases."""

from __future__ import annotations

from typing import ClassVar

from ..errors import Unsupported

#: A statement for SQLAlchemy's text(), and its parameters.
Bound = tuple[str, dict[str, str]]


class Migrations:
    """The statements that :mod:`dblock.schema` needs beside the tables' definitions."""

    name: ClassVar[str]

    #: Whether rolling back a transaction undoes its changes of tables.
    undoes_ddl: ClassVar[bool] = True

    def set_durability(self, durability: str) -> tuple[str, ...]:
        """Return the statements that make the lock table ``"durable"`` or ``"volatile"``."""
        if durability == "durable":
            return ()
        raise Unsupported(
            f"{self.name} has no tables that a crash empties and nothing else does, so its lock "
            "table is durable; a volatile one works on postgresql"
        )

    def create_functions(self) -> tuple[str, ...]:
        """Return the statements that create the lock functions, or bring them up to date."""
        raise Unsupported(
            f"{self.name} has no lock functions; they work on postgresql. On {self.name} use "
            "dblock, or its command line"
        )

    def drop_functions(self) -> tuple[str, ...]:
        """Return the statements that drop the lock functions, if the database has any."""
        return ()

    def drop_gate(self) -> tuple[str, ...]:
        """Return the statements that drop the functions' table of fences, if they created it."""
        return ()

    def find_functions(self) -> str | None:
        """Return the query for the lock functions, and whether each is as this code creates it.

        None if the database has no lock functions.
        """
        return None

    def migration_settings(self) -> tuple[str, ...]:
        """Return statements after which a migration does not wait long for users of a table.

        All other statements on the table wait behind the migration. A limit that is set stays.
        """
        return ()

    def migration_place(self) -> tuple[str, ...]:
        """Return queries, of one value each, that show where unqualified tables are.

        They run on a user's connection. None of them takes a snapshot.
        """
        return ()

    def go_to_place(self, found: tuple[str | None, ...]) -> tuple[Bound, ...]:
        """Return the statements that take a connection to the place that the queries ``found``."""
        return ()

    def look_at_place(
        self, found: tuple[str | None, ...]
    ) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
        """Return the statements before and after a read at the place that the queries ``found``,
        for a connection that must not stay there."""
        return (), ()

    def migration_mutex(self, name: str) -> tuple[str, ...]:
        """Return the statements of one try for the lock of migrations, which needs no table.

        The last one's only value tells whether the session has it now. It ends with the connection.
        """
        raise NotImplementedError(f"{self.name} has none: a file is locked")

    def migration_holder(self, name: str) -> str:
        """Return the statement that reads the session that has that lock, and its user.

        Either may be unknown.
        """
        raise NotImplementedError(f"{self.name} has none: a file is locked")
