"""What a leader tells on PostgreSQL: who observes it is called when there is something to see."""

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
    """Who is called looks, and believes nothing that a call says."""

    written = f", {_CALL}, {DURABLE}"

    def topic(self, name: str) -> str:
        # Hexadecimal are the tickets, of which this is none.
        place = "\0".join((self.schema or "", self.prefix, name))
        return f"e:{hashlib.sha256(place.encode()).hexdigest()}"[:NUMBER]

    def parameters(self, name: str, token: str, value: str) -> dict[str, Any]:
        return super().parameters(name, token, value) | {"topic": self.topic(name)}

    @property
    def vouched(self) -> str:
        # A failover may have forgotten who has led since.
        return f" AND l.fence > ({self.epoch()})"

    def call_observers(self, name: str) -> Query[int]:
        return Query(
            f"SELECT {_CALL}, {LAZY}",
            {"topic": self.topic(name)},
            commands.CallObservers(name),
            durable=False,
        )
