"""A leader's value on PostgreSQL: a write notifies the processes that observe the name."""

from __future__ import annotations

import hashlib
from typing import Any

from ...protocol import commands
from ...protocol.steps import Query
from ..elections import ElectionStatements as Elections
from ..tickets import NUMBER
from .fragments import DURABLE, LAZY
from .queue import PREFIX
from .witness import WitnessStatements

#: One channel for all names. A process that observes none does not listen there.
OBSERVED = f"{PREFIX}observed"
_CALL = f"pg_notify('{OBSERVED}', %(topic)s)"


class ElectionStatements(WitnessStatements, Elections):
    """An observer that is notified reads the row; it trusts nothing in the notification."""

    written = f", {_CALL}, {DURABLE}"

    def topic(self, name: str) -> str:
        # Tickets are hexadecimal. The colon shows that this is not a ticket.
        place = "\0".join((self.schema or "", self.prefix, name))
        return f"e:{hashlib.sha256(place.encode()).hexdigest()}"[:NUMBER]

    def parameters(self, name: str, token: str, value: str) -> dict[str, Any]:
        return super().parameters(name, token, value) | {"topic": self.topic(name)}

    @property
    def vouched(self) -> str:
        # A hold before the present epoch proves nothing: a failover may have lost a later one.
        return f" AND l.fence > ({self.epoch()})"

    def call_observers(self, name: str) -> Query[int]:
        return Query(
            f"SELECT {_CALL}, {LAZY}",
            {"topic": self.topic(name)},
            commands.CallObservers(name),
            durable=False,
        )
