"""The queue in a name's row. MariaDB cannot notify a waiter."""

from __future__ import annotations

from ...protocol.commands import Leave
from ..statement import statement
from ..tickets import TICKET
from .base import Tables
from .fragments import microseconds

# All tickets have the same length, with commas between them. LAST is the number of tickets in the
# queue, REST the tickets behind this one.
LAST = f"COALESCE((CHAR_LENGTH(waiters) + 1) DIV {TICKET + 1}, 0)"
REST = f"""IF(LOCATE(%(ticket)s, waiters), NULLIF(
    SUBSTRING(waiters, LOCATE(%(ticket)s, waiters) + {TICKET + 1}), ''), NULL)"""

# The queue without the ticket.
WITHOUT_TICKET = """NULLIF(TRIM(BOTH ',' FROM REPLACE(
                CONCAT(',', waiters, ','), CONCAT(',', %(ticket)s, ','), ',')), '')"""

# Whole seconds to wait for the row. Leaving the queue must succeed, so it may wait.
_LEAVING = 1


class QueueStatements(Tables):
    """A waiter that joins may take the name at once, so `LeaseStatements` has that statement."""

    @statement(Leave, lock_timeout=_LEAVING)
    def leave(self) -> str:
        return f"""{self.patiently(_LEAVING)}
            UPDATE {self.lock_table} SET waiters = {WITHOUT_TICKET}
            WHERE lock_name = %(name)s AND {self.enqueued}"""

    @property
    def ahead(self) -> str:
        place = f"(LOCATE(%(ticket)s, waiters) - 1) DIV {TICKET + 1}"
        return f"IF({self.enqueued}, {place}, {LAST})"

    @property
    def enqueued(self) -> str:
        return "(LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0)"

    def is_available(self, ahead: str) -> str:
        grace = f"INTERVAL {ahead} * {microseconds(self.grace)} MICROSECOND"
        return (
            "(expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) "
            f"OR expires_at + {grace} <= UTC_TIMESTAMP(6))"
        )
