"""The queue in a name's row. SQLite cannot notify a waiter."""

from __future__ import annotations

from ...protocol import commands
from ...protocol.steps import Query
from ..dialect import Dialect
from ..tickets import TICKET
from .fragments import NOW

# All tickets have the same length, with commas between them. LAST is the number of tickets in the
# queue, REST the tickets behind this one.
LAST = f"ifnull((length(waiters) + 1) / {TICKET + 1}, 0)"
REST = f"""iif(instr(waiters, :ticket),
    nullif(substr(waiters, instr(waiters, :ticket) + {TICKET + 1}), ''), NULL)"""

# The queue without the ticket.
WITHOUT_TICKET = """nullif(
                trim(replace(',' || waiters || ',', ',' || :ticket || ',', ','), ','), '')"""


class QueueStatements(Dialect):
    """A waiter that joins may take the name at once, so `LeaseStatements` has that statement."""

    def leave(self, name: str, token: str, ticket: str) -> Query[int]:
        return Query(
            f"""UPDATE {self.lock_table} SET waiters = {WITHOUT_TICKET}
            WHERE lock_name = :name AND {self.enqueued}""",
            {"name": name, "ticket": ticket},
            commands.Leave(name, token, ticket),
            self.patience,
        )

    @property
    def ahead(self) -> str:
        place = f"(instr(waiters, :ticket) - 1) / {TICKET + 1}"
        return f"iif({self.enqueued}, {place}, {LAST})"

    @property
    def enqueued(self) -> str:
        return "(ifnull(instr(waiters, :ticket), 0) > 0)"

    def is_available(self, ahead: str) -> str:
        ago = f"printf('-%.3f seconds', {ahead} * {self.grace})"
        return (
            f"(expires_at IS NULL OR token IS NULL AND expires_at > {NOW} "
            f"OR expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', {ago}))"
        )
