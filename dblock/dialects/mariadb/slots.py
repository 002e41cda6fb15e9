"""The slots of a semaphore on MariaDB: the statement tries each slot that seems free in turn."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ...protocol.commands import GrantSlot
from ...protocol.state import Granted
from ..query import Result
from ..slots import SlotStatements as Slots
from ..slots import read_known_slot, read_slot, slot_parameters
from ..statement import statement
from .fragments import REMAINING
from .lease import LeaseStatements, read_known
from .queue import LAST


def _slot_parameters(dialect: Any, command: GrantSlot) -> dict[str, object]:
    return slot_parameters(dialect, command) | {"user_lock": dialect.user_lock(command.name)}


def _read_slot(dialect: Any, command: GrantSlot, result: Result) -> Granted | None:
    if command.known:
        granted = read_known(result, command.ttl)
        if granted is None and result.matched > 0:  # without the fence: it has to be read
            granted = Granted(0, remaining=0.0)
        return read_known_slot(command, granted)
    return read_slot(dialect, command, result)


class SlotStatements(LeaseStatements, Slots):
    """SKIP LOCKED by a unique key is an error on 10.11, so the statement has a handler for the
    error of a busy slot. A waiter that waits in the server for one slot by its name does not come
    first here: it is not overtaken for long, since it then joins that name's queue."""

    keeps_limit = "ON DUPLICATE KEY UPDATE lock_name = lock_name"

    @property
    def replaces_limit(self) -> str:
        return """ON DUPLICATE KEY
            UPDATE value = IF(fence = 0, VALUES(value), value),
                written_at = IF(fence = 0, VALUES(written_at), written_at)"""

    @property
    def anybodys(self) -> str:
        return self.is_available(LAST)

    @property
    def barrier(self) -> str:
        # An UPDATE that reads its own table locks the rows that it reads, and takes three times as
        # long. A derived table with a LIMIT avoids that.
        return f"SELECT 1 FROM ({super().barrier} LIMIT 1) AS turnstile"

    @property
    def keeps_out(self) -> str:
        # A session that has the turnstile's user lock is about to take the turnstile.
        return f"({super().keeps_out} OR {self.taken_elsewhere})"

    @statement(GrantSlot, reads=_read_slot, parameters=_slot_parameters)
    def grant_slot(self, command: GrantSlot) -> str:
        return self._grant_known_slot if command.known else self._grant_slot

    @cached_property
    def _grant_known_slot(self) -> str:
        free = f"{self.anybodys} AND {self.admits}"
        return self._grant(free, rest="NULL", name="%(slot)s")

    @cached_property
    def _grant_slot(self) -> str:
        grant = self._grant(self.anybodys, rest="NULL", name="slot")
        return f"""BEGIN NOT ATOMIC
                DECLARE slot VARBINARY(1020);
                DECLARE ended, taken BOOL DEFAULT FALSE;
                DECLARE slots CURSOR FOR
                    WITH RECURSIVE numbers AS (
                        SELECT 0 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < %(limit)s
                    )
                    SELECT l.lock_name FROM numbers STRAIGHT_JOIN {self.lock_table} AS l
                    ON l.lock_name = CONCAT(%(name)s, '#', 1 + (%(first)s + n) MOD %(limit)s)
                    WHERE {self.anybodys} AND {self.admits}
                    ORDER BY n;
                DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
                DECLARE CONTINUE HANDLER FOR 1205 SET taken = FALSE;
                OPEN slots;
                every: LOOP
                    FETCH slots INTO slot;
                    IF ended THEN LEAVE every; END IF;
                    SET taken = TRUE;
                    {grant};
                    IF taken AND ROW_COUNT() > 0 THEN LEAVE every; END IF;
                END LOOP;
                CLOSE slots;
                SELECT fence, {REMAINING}, lock_name FROM {self.lock_table}
                    WHERE lock_name = slot AND token = %(token)s AND NOT ended;
            END"""
