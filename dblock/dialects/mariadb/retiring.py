"""Retiring names on MariaDB: the guard's row of a name goes with the name."""

from __future__ import annotations

from ...protocol.commands import RaiseFloor, Retire
from ..query import Result
from ..retiring import RetiringStatements as Retiring
from ..retiring import idle
from ..statement import statement
from .base import Tables


def read_count(result: Result) -> int:
    return int(result.rows[0][0])


class RetiringStatements(Tables, Retiring):
    """It tries each name by itself to skip a locked one: SKIP LOCKED by a unique key is an error on
    10.11."""

    @statement(RaiseFloor)
    def raise_floor(self) -> str:
        return f"""INSERT INTO {self.lock_table} (lock_name, fence) VALUES ('', %(fence)s)
            ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))"""

    @statement(Retire, read=read_count, parameters=idle)
    def retire(self) -> str:
        # A grant locks the guard's row first, so a name that is unused while that is locked stays
        # unused. The guard's row is deleted last: a name that is in use, or whose row another
        # session has locked, keeps it. If a row is busy nothing of that name was changed; the
        # handler commits the names before it, because a server may be set to roll the whole
        # transaction back with the statement.
        return f"""BEGIN NOT ATOMIC
                DECLARE one VARBINARY(1020);
                DECLARE found, retired INT DEFAULT 0;
                DECLARE ended, busy BOOL DEFAULT FALSE;
                DECLARE idle CURSOR FOR SELECT lock_name FROM {self.lock_table}
                    WHERE {self.retirable};
                DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
                DECLARE CONTINUE HANDLER FOR 1205 BEGIN
                    COMMIT;
                    START TRANSACTION;
                    SET busy = TRUE;
                END;
                DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
                START TRANSACTION;
                OPEN idle;
                every: LOOP
                    FETCH idle INTO one;
                    IF ended THEN LEAVE every; END IF;
                    SET busy = FALSE;
                    SELECT COUNT(*) INTO found FROM {self.guard_table} WHERE lock_name = one
                        FOR UPDATE;
                    IF NOT busy THEN
                        DELETE FROM {self.lock_table} WHERE lock_name = one AND {self.retirable};
                        IF NOT busy AND ROW_COUNT() = 1 THEN
                            SET retired = retired + 1;
                            DELETE FROM {self.guard_table} WHERE lock_name = one;
                        END IF;
                    END IF;
                END LOOP;
                CLOSE idle;
                COMMIT;
                SELECT retired;
            END"""
