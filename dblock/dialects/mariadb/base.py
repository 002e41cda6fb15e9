"""What all of MariaDB's statements have."""

from __future__ import annotations

import math
from typing import ClassVar

from ..dialect import Dialect


class Tables(Dialect):
    """InnoDB locks whole rows, so what a guard holds is a row of its own in ``{prefix}guard``: a
    grant and a row lock take it first, a renewal and a release never do. Both tables are locked by
    primary key alone: under REPEATABLE READ any other index would lock the gap before the row
    too, and with it names that have nothing to do with this one.

    Statements of dblock's own connections do not wait for rows, so they do not deadlock.
    """

    patience = 0.0  # of the sessions of dblock's own

    found: ClassVar[dict[str, str]] = {
        "schema": "DATABASE()",
        "host": "@@hostname",
        "port": "@@port",
    }
    # Under REPEATABLE READ a plain look would show the transaction what there was before its wait
    # for the lock.
    locking = " LOCK IN SHARE MODE"

    def _name_tables(self) -> None:
        super()._name_tables()
        self.guard_table = self._named("guard")
        #: In what only reads.
        self.here_now = self._is_here(f"{self.locking} NOWAIT")

    @property
    def longest_patience(self) -> float:
        return max(1.0, math.floor(self.timeouts.query))

    @property
    def complete(self) -> str:
        # Who has deleted what is to be locked has deleted the name, unless that is held.
        its = f"{self.guard_table}.lock_name = {self.lock_table}.lock_name"
        return f" AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM {self.guard_table} WHERE {its}))"

    @property
    def made(self) -> str:
        """Insert the rows of a name, in a compound statement that declares ``floor`` to be 0."""
        # Each statement sees what is newest. So the floor is read after the INSERT, which finds no
        # row only when it was deleted, and by a plain SELECT, which locks nothing.
        return f"""INSERT IGNORE INTO {self.guard_table} (lock_name) VALUES (%(name)s);
                INSERT IGNORE INTO {self.lock_table} (lock_name, fence) VALUES (%(name)s, 0);
                IF ROW_COUNT() = 1 THEN
                    SELECT fence INTO floor FROM {self.lock_table} WHERE lock_name = '';
                    UPDATE {self.lock_table} SET fence = floor WHERE lock_name = %(name)s;
                END IF;"""

    def quote(self, identifier: str) -> str:
        return f"`{identifier}`"

    def key(self, name: str) -> object:
        return name.encode()  # VARBINARY: no collation equates 'a' with 'A', 'á' or 'a '
