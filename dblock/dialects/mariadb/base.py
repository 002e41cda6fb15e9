"""The common base of MariaDB's statements: the tables, and how a name's rows are locked."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from ..dialect import Dialect
from .fragments import WRITTEN


class Tables(Dialect):
    """InnoDB locks whole rows, so a guard locks a row of its own in ``{prefix}guard``: a grant and
    a row lock take it first, a renewal and a release never do. Both tables are locked by primary
    key alone: under REPEATABLE READ any other index would lock the gap before the row too, and with
    it unrelated names.

    Statements on dblock's own connections do not wait for rows, so they do not deadlock.

    The nodes of a Galera cluster do not see each other's row locks. If two transactions have
    *written* the same row at the same time, one of them fails at its commit. So on a cluster each
    statement that locks a guard's row writes it as well: a grant, a row lock, and a guard.
    """

    patience = 0.0  # seconds: the innodb_lock_wait_timeout of dblock's own sessions

    found: ClassVar[dict[str, str]] = {
        "schema": "DATABASE()",
        "host": "@@hostname",
        "port": "@@port",
    }
    # Under REPEATABLE READ a plain read would take the transaction's snapshot before it waits for
    # the lock, and the user's later reads would be that old.
    locking = " LOCK IN SHARE MODE"

    def _name_tables(self) -> None:
        super()._name_tables()
        self.guard_table = self._named("guard")
        #: For a statement that only reads.
        self.here_now = self._is_here(f"{self.locking} NOWAIT")
        #: Whether the server is known to be a node of a Galera cluster.
        self.is_node = self.place is not None and self.place.clustered
        #: Whether it is one, or may be: that is not known before the first connection.
        self.clustered = self.place is None or self.is_node
        # The statement for a cluster cannot check the row first: an UPDATE reads with locks. So on
        # a cluster another statement checks it first. But not for the first row locks of a process,
        # which would wait for each other until the connections for that are made.
        self.traits = replace(self.traits, looks_itself=not self.is_node)

    @property
    def longest_patience(self) -> float:
        return max(1.0, math.floor(self.timeouts.query))

    @property
    def complete(self) -> str:
        # A name without its guard's row cannot be locked. It counts as deleted, unless it is held.
        its = f"{self.guard_table}.lock_name = {self.lock_table}.lock_name"
        return f" AND (token IS NOT NULL OR EXISTS (SELECT 1 FROM {self.guard_table} WHERE {its}))"

    @property
    def made(self) -> str:
        """Insert the rows of a name, in a compound statement that declares ``floor`` to be 0."""
        # Under READ COMMITTED each statement sees the newest rows. So it reads the floor after the
        # INSERT: if that found no row, the floor covers the fence of a row that was deleted. A
        # plain SELECT, because that locks nothing.
        return f"""INSERT IGNORE INTO {self.guard_table} (lock_name) VALUES (%(name)s);
                INSERT IGNORE INTO {self.lock_table} (lock_name, fence) VALUES (%(name)s, 0);
                IF ROW_COUNT() = 1 THEN
                    SELECT fence INTO floor FROM {self.lock_table} WHERE lock_name = '';
                    UPDATE {self.lock_table} SET fence = floor WHERE lock_name = %(name)s;
                END IF;"""

    @property
    def in_order(self) -> str:
        # Without that a guard on this node would not see that another holder has taken the name
        # over.
        if not self.is_node:
            return ""
        return "SET STATEMENT wsrep_sync_wait = 1 FOR "

    def take_row(self, name: str, changes: str, condition: str) -> str:
        """Return the statement that makes ``changes`` in a name's row if the ``condition`` is met,
        with its guard's row locked."""
        if self.clustered:
            return f"""UPDATE {self.guard_table} AS g STRAIGHT_JOIN {self.lock_table} AS l
                ON l.lock_name = g.lock_name
            SET {WRITTEN}, {changes}
            WHERE g.lock_name = {name} AND {condition}"""
        # The subquery finds one row by its primary key, so the server evaluates it, and locks that
        # row, before it changes anything: the statement fails while another transaction guards the
        # name.
        return f"""UPDATE {self.lock_table} SET {changes}
            WHERE lock_name = {name} AND {condition}
                AND (SELECT 1 FROM {self.guard_table} WHERE lock_name = {name} FOR UPDATE)"""

    def patiently(self, seconds: int) -> str:
        """Begin a statement of dblock's own session that may wait for a row."""
        return f"SET STATEMENT innodb_lock_wait_timeout = {seconds} FOR"

    def quote(self, identifier: str) -> str:
        return f"`{identifier}`"

    def key(self, name: str) -> object:
        return name.encode()  # VARBINARY: no collation equates 'a' with 'A', 'á' or 'a '
