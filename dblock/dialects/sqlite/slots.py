"""The slots of a semaphore on SQLite: one writer at a time, so one statement decides alone."""

from __future__ import annotations

from functools import cached_property

from ...protocol import commands
from ..slots import SlotStatements as Slots
from .fragments import LATER, NOW, REMAINING, modifier
from .queue import LAST, QueueStatements


class SlotStatements(QueueStatements, Slots):
    """A grant drops the slot's queue, whose tickets have expired, as a grant of a name does."""

    @property
    def anybodys(self) -> str:
        return self.is_available(LAST)

    def slot_parameters(self, command: commands.GrantSlot) -> dict[str, object]:
        return super().slot_parameters(command) | {"ttl": modifier(command.ttl)}

    @cached_property
    def _grant_known_slot(self) -> str:
        return self._taken(f"lock_name = :slot AND {self.anybodys}")

    @cached_property
    def _grant_slot(self) -> str:
        # SQLite keeps the order of a CROSS JOIN: it tries the numbers in order, from ``first`` on.
        taken = self._taken(f"""lock_name = (
                SELECT slot.lock_name FROM numbers CROSS JOIN {self.lock_table} AS slot
                WHERE slot.lock_name = :name || '#' || (1 + (:first + n) % :limit)
                    AND {self.anybodys}
                LIMIT 1
            )""")
        return f"""WITH RECURSIVE numbers (n) AS (
                SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :limit
            )
            {taken}"""

    def _taken(self, which: str) -> str:
        """Return the statement that takes a free slot; ``which`` is the condition that finds it."""
        return f"""UPDATE {self.lock_table} SET fence = fence + 1, token = :token, owner = :owner,
                acquired_at = {NOW}, expires_at = {LATER}, waiters = NULL
            WHERE {which} AND {self.admits}
            RETURNING fence, {REMAINING}, lock_name"""
