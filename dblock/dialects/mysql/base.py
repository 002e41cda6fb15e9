"""The common base of MySQL's statements: how a name's rows are locked, and made."""

from __future__ import annotations

from typing import ClassVar

from ..mariadb.base import Tables as MariaDBs
from ..mariadb.fragments import WRITTEN

# Seconds. One statement in a user's transaction waits for less than the server's least limit: over
# that limit a server may be set to undo the whole transaction.
_LONGEST_WAIT = 0.9


class MySQLTables(MariaDBs):
    """MySQL has neither a session's setting for one statement nor a limit of waits below a second.
    So a statement that must not wait locks its rows NOWAIT.

    A name's own row comes first, and the guard's row only if the name's row allows the change.
    Otherwise a mere try would make a guard fail. Every statement finds the rows that it
    locks by primary key, whatever the optimizer thinks of the tables.
    """

    patience = 1.0  # seconds: the innodb_lock_wait_timeout of dblock's own sessions, and the least

    locking = " FOR SHARE"
    newest: ClassVar[str] = ""
    in_order: ClassVar[str] = ""

    @property
    def derives(self) -> bool:
        return True

    @property
    def longest_patience(self) -> float:
        return min(_LONGEST_WAIT, self.timeouts.query)

    def _name_tables(self) -> None:
        super()._name_tables()
        self.clustered = self.is_node
        if self.is_node:
            self.hide_row_locks()  # it shows its own transactions alone

    def patiently(self, seconds: int) -> str:
        return ""  # each of them may wait for a second

    def take_row(self, name: str, changes: str, condition: str) -> str:
        # The server evaluates the innermost query first: it has no row to read until the name's own
        # row is locked and meets the condition.
        guard = f"SELECT 1 FROM {self.guard_table} AS g WHERE g.lock_name = l.lock_name"
        locked = f"""(SELECT /*+ NO_MERGE(mine) */ lock_name FROM (
                SELECT l.lock_name FROM {self.lock_table} AS l
                WHERE l.lock_name = {name} AND {condition} AND ({guard} FOR UPDATE NOWAIT)
                FOR UPDATE OF l NOWAIT
            ) AS mine)"""
        if self.clustered:
            return f"""UPDATE {self.guard_table} AS g STRAIGHT_JOIN {self.lock_table} AS l
                ON l.lock_name = g.lock_name
            SET {WRITTEN}, {changes}
            WHERE g.lock_name = {locked}"""
        return f"""UPDATE {self.lock_table} SET {changes}
            WHERE lock_name = {locked}"""

    def passing(self, taken: str) -> str:
        """Return a statement as it is within a transaction: it passes over a row that is in use,
        and the reply says so.

        If it failed, the rest of the packet would not run. The rows that are locked by then would
        stay locked until the client's ROLLBACK, and a client can stop before it sends that.
        """
        return taken.replace("NOWAIT", "SKIP LOCKED")

    @property
    def rows_made(self) -> tuple[str, ...]:
        """The statements that insert the rows of a name, within a transaction."""
        # A plain read shows a row that is there: an INSERT would wait for its lock.
        # Under READ COMMITTED each statement sees the newest rows. So the floor is read after the
        # INSERT: if that found no row, the floor covers the fence of a row that was deleted. A SET
        # with a subquery would lock what that reads.
        guard, lock = (
            f"FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE lock_name = %(name)s)"
            for table in (self.guard_table, self.lock_table)
        )
        return (
            f"INSERT IGNORE INTO {self.guard_table} (lock_name) SELECT %(name)s {guard}",
            f"INSERT IGNORE INTO {self.lock_table} (lock_name, fence) SELECT %(name)s, 0 {lock}",
            f"SELECT ROW_COUNT(), {self.floor} INTO @dblock_made, @dblock_floor",
            f"""UPDATE {self.lock_table} SET fence = @dblock_floor
                WHERE lock_name = IF(@dblock_made = 1, %(name)s, NULL)""",
        )
