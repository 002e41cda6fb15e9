"""Waiting in the server: for a user lock, which stands for a name and decides nothing."""

from __future__ import annotations

import hashlib

from ...protocol import commands
from ...protocol.steps import Query, Reply
from .base import Tables
from .fragments import microseconds

# User locks are the whole server's.
GATE = "SHA1(CONCAT_WS('/', %(gate)s, DATABASE()))"


class ServerWaitStatements(Tables):
    """Whoever has the user lock comes first for a moment when the name is given back."""

    can_wait_in_server = True

    def gate(self, name: str) -> str:
        """Return the name of the user lock that is a name's gate, but for the database."""
        return hashlib.blake2b(f"{self.lock_table}/{name}".encode(), digest_size=16).hexdigest()

    @property
    def gated(self) -> str:
        """One if another is at the gate of a name given back just now, who comes first then."""
        grace = f"INTERVAL {microseconds(self.grace)} MICROSECOND"
        return f"""(expires_at <= UTC_TIMESTAMP(6) AND expires_at + {grace} > UTC_TIMESTAMP(6)
            AND COALESCE(IS_USED_LOCK({GATE}) <> CONNECTION_ID(), FALSE))"""

    def wait_in_server(self, name: str, patience: float) -> Query[bool]:
        # No more than that: the server finds out only after a second that who waits has died, and
        # the name would be taken for nobody.
        return Query(
            f"""BEGIN NOT ATOMIC
                DECLARE held INT DEFAULT NOT IS_FREE_LOCK({GATE});
                IF NOT GET_LOCK({GATE}, %(patience)s) <=> 1 THEN
                    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'the gate';
                END IF;
                SELECT held;
            END""",
            {"gate": self.gate(name), "patience": patience},
            commands.WaitInServer(name),
            patience,
            read=_was_held,
        )

    def unlock_all(self) -> Query[int]:
        return Query("DO RELEASE_ALL_LOCKS()", {}, commands.UnlockAll())


def _was_held(reply: Reply) -> bool:
    return bool(reply.rows[0][0])
