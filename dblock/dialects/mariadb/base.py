"""What all of MariaDB's statements have."""

from __future__ import annotations

import math
from typing import ClassVar, TypeVar

from ...protocol.state import LockRow, Queued
from ...protocol.steps import Query
from ..dialect import Dialect
from .fragments import WRITTEN

T = TypeVar("T")


class Tables(Dialect):
    """InnoDB locks whole rows, so what a guard holds is a row of its own in ``{prefix}guard``: a
    grant and a row lock take it first, a renewal and a release never do. Both tables are locked by
    primary key alone: under REPEATABLE READ any other index would lock the gap before the row
    too, and with it names that have nothing to do with this one.

    Statements of dblock's own connections do not wait for rows, so they do not deadlock.

    The nodes of a Galera cluster do not see each other's row locks. There, of two transactions that
    have *written* the same row at the same time, one fails at its commit. So all who lock a guard's
    row there write it as well: a grant, a row lock, and a guard.
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
        #: Whether the server is known to be a node of a Galera cluster.
        self.is_node = self.place is not None and self.place.clustered
        #: Whether it is one, or may be.
        self.clustered = self.place is None or self.is_node
        # The statement for a cluster has no look in it, since what it changes it reads with locks.
        # So there a look comes first; but not for the first row locks of a process, which would
        # wait for each other until the connections that look are made.
        self.looks_itself = not self.is_node

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

    def look(self, *names: str) -> Query[list[LockRow]]:
        return self._in_order(super().look(*names))

    def look_queued(self, name: str, token: str, ticket: str) -> Query[Queued | None]:
        return self._in_order(super().look_queued(name, token, ticket))

    def _in_order(self, query: Query[T]) -> Query[T]:
        """Let a node first catch up with what the others have committed, or a guard there would
        not see who has taken the name over."""
        if not self.is_node:
            return query
        return query._replace(sql=f"SET STATEMENT wsrep_sync_wait = 1 FOR {query.sql}")

    def take_row(self, name: str, changes: str, condition: str) -> str:
        """Return the statement that makes ``changes`` in the row of a ``name``, with the row of its
        guard locked, if the ``condition`` is met."""
        if self.clustered:
            return f"""UPDATE {self.guard_table} AS g STRAIGHT_JOIN {self.lock_table} AS l
                ON l.lock_name = g.lock_name
            SET {WRITTEN}, {changes}
            WHERE g.lock_name = {name} AND {condition}"""
        # The subquery has one row, by its primary key, so it is run, and locks that row, before
        # anything else: nothing is taken from whose guard is open.
        return f"""UPDATE {self.lock_table} SET {changes}
            WHERE lock_name = {name} AND {condition}
                AND (SELECT 1 FROM {self.guard_table} WHERE lock_name = {name} FOR UPDATE)"""

    def quote(self, identifier: str) -> str:
        return f"`{identifier}`"

    def key(self, name: str) -> object:
        return name.encode()  # VARBINARY: no collation equates 'a' with 'A', 'á' or 'a '
