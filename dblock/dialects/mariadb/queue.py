"""The queue in a name's row, which on MariaDB nobody is called from."""

from __future__ import annotations

from ...protocol import commands
from ...protocol.steps import Query
from ..tickets import TICKET
from .base import Tables
from .fragments import microseconds

# Tickets are all as long, with commas between. How many there are; those behind the ticket.
LAST = f"COALESCE((CHAR_LENGTH(waiters) + 1) DIV {TICKET + 1}, 0)"
REST = f"""IF(LOCATE(%(ticket)s, waiters), NULLIF(
    SUBSTRING(waiters, LOCATE(%(ticket)s, waiters) + {TICKET + 1}), ''), NULL)"""

# The queue without the ticket.
WITHOUT_TICKET = """NULLIF(TRIM(BOTH ',' FROM REPLACE(
                CONCAT(',', waiters, ','), CONCAT(',', %(ticket)s, ','), ',')), '')"""

# Whole seconds for who leaves the queue, and has to be gone.
_LEAVING = 1


class QueueStatements(Tables):
    """Who joins may take the name, so the statement that joins is the lease's."""

    def leave(self, name: str, token: str, ticket: str) -> Query[int]:
        return Query(
            f"""SET STATEMENT innodb_lock_wait_timeout = {_LEAVING} FOR
            UPDATE {self.lock_table} SET waiters = {WITHOUT_TICKET}
            WHERE lock_name = %(name)s AND {self.enqueued}""",
            {"name": self.key(name), "ticket": ticket},
            commands.Leave(name, token, ticket),
            _LEAVING,
        )

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
