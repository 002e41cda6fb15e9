"""A leader's value on PostgreSQL: a write notifies the processes that observe the name."""

from __future__ import annotations

import hashlib
from typing import Any

from ...protocol.commands import CallObservers, WriteValue
from ..elections import ElectionStatements as Elections
from ..elections import is_written
from ..statement import statement
from ..tickets import NUMBER
from .fragments import DURABLE, LAZY
from .queue import PREFIX
from .witness import WitnessStatements

#: One channel for all names. A process that observes none does not listen there.
OBSERVED = f"{PREFIX}observed"
_CALL = f"pg_notify('{OBSERVED}', %(topic)s)"


def _topic(dialect: Any, command: WriteValue | CallObservers) -> dict[str, object]:
    return {"topic": dialect.topic(command.name)}


class ElectionStatements(WitnessStatements, Elections):
    """An observer that is notified reads the row; it trusts nothing in the notification."""

    def topic(self, name: str) -> str:
        # Tickets are hexadecimal. The colon shows that this is not a ticket.
        place = "\0".join((self.schema or "", self.prefix, name))
        return f"e:{hashlib.sha256(place.encode()).hexdigest()}"[:NUMBER]

    @statement(WriteValue, reads=is_written, parameters=_topic)
    def write_value(self) -> str:
        return f"{super().write_value}, {_CALL}, {DURABLE}"

    @property
    def leads(self) -> str:
        # A hold before the present epoch proves nothing: a failover may have lost a later one.
        return f"{super().leads} AND l.fence > ({self.epoch()})"

    @statement(CallObservers, parameters=_topic)
    def call_observers(self) -> str:
        return f"SELECT {_CALL}, {LAZY}"
