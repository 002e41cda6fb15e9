"""A name's gate on PostgreSQL: an advisory lock of the session that has the name, or is next.

Who waits for that waits in the server, with a snapshot, so nobody does for long: :mod:`.calling`
is for those.
"""

from __future__ import annotations

import hashlib

from ..protocol import commands
from ..protocol.steps import Query, Reply
from .witness import Witnessing

#: Whether the gate had to be waited for, once it is had.
ENTER = """CASE WHEN pg_try_advisory_lock(%(gate)s) THEN false
    ELSE pg_advisory_lock(%(gate)s) IS NOT NULL END"""


class Gating(Witnessing):
    """The statements about gates that take no name."""

    has_gates = True

    def gate(self, name: str) -> int:
        """Return the number of the advisory lock that is a name's gate."""
        key = hashlib.blake2b(f"{self.lock_table}/{name}".encode(), digest_size=8).digest()
        return int.from_bytes(key, "big", signed=True)

    @property
    def gated(self) -> str:
        """One if somebody is at the gate of a name given back just now, who comes first then."""
        return f"""CASE WHEN clock_timestamp() BETWEEN expires_at
                AND expires_at + interval '{self.grace} s'
            AND NOT pg_try_advisory_xact_lock_shared(%(gate)s) THEN 1 ELSE 0 END"""

    def gate_was_held(self, reply: Reply) -> bool:
        return bool(reply.rows and reply.rows[0][-1])

    def ungate(self) -> Query:
        return Query("SELECT pg_advisory_unlock_all()", {}, commands.Ungate())
