"""The slots of a semaphore on MySQL: the statement takes the first free slot that is not busy."""

from __future__ import annotations

from functools import cached_property

from ..mariadb.fragments import REMAINING
from ..mariadb.slots import SlotStatements as MariaDBs
from ..packets import transaction
from .lease import LeaseStatements


class SlotStatements(LeaseStatements, MariaDBs):
    """The slots are searched without locks, and then locked one after the other until one is
    free: a slot that another session has locked is skipped."""

    @property
    def replaces_limit(self) -> str:
        old = self.value_table
        return f"""AS new ON DUPLICATE KEY
            UPDATE value = IF({old}.fence = 0, new.value, {old}.value),
                written_at = IF({old}.fence = 0, new.written_at, {old}.written_at)"""

    @cached_property
    def _grant_slot(self) -> str:
        guard = f"SELECT 1 FROM {self.guard_table} AS g WHERE g.lock_name = l.lock_name"
        return transaction(
            "SET @dblock_slot = NULL",
            f"""WITH RECURSIVE numbers AS (
                    SELECT 0 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < %(limit)s
                ), slots AS (
                    SELECT CONCAT(%(name)s, '#', 1 + (%(first)s + n) MOD %(limit)s) AS slot
                    FROM numbers WHERE {self.admits} ORDER BY n LIMIT %(limit)s
                )
                SELECT l.lock_name FROM slots STRAIGHT_JOIN {self.lock_table} AS l
                    FORCE INDEX (PRIMARY) ON l.lock_name = slots.slot
                WHERE {self.anybodys} AND ({guard} FOR UPDATE SKIP LOCKED)
                LIMIT 1 FOR UPDATE OF l SKIP LOCKED INTO @dblock_slot""",
            self._grant(self.anybodys, rest="NULL", name="@dblock_slot"),
            f"""SELECT fence, {REMAINING}, lock_name FROM {self.lock_table}
                WHERE lock_name = @dblock_slot AND token = %(token)s""",
        )
