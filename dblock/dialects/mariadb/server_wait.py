"""Waiting in the server: for a user lock, which stands for a name and decides nothing."""

from __future__ import annotations

import hashlib

from ...protocol import commands
from ...protocol.steps import Query, Reply
from .base import Tables
from .fragments import microseconds

# User locks are the whole server's.
USER_LOCK = "SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))"

# Leave in a name's row that readers want it now and then: a list of no hold, until there is one.
NOTED = "readers = COALESCE(readers, '')"


class ServerWaitStatements(Tables):
    """Whoever has the user lock comes first for a moment when the name is given back.

    Nobody waits there for a name that readers want now and then: they judge by the queue alone who
    came before them.
    """

    can_wait_in_server = True

    def user_lock(self, name: str) -> str:
        """Return what a name's user lock is called, but for the database."""
        # By what was asked for: the real place is not known before the first statement.
        schema = f"{self.quote(self.schema)}." if self.schema else ""
        named = f"{schema}{self.quote(self.prefix + 'lock')}/{name}"
        return hashlib.blake2b(named.encode(), digest_size=16).hexdigest()

    @property
    def taken_elsewhere(self) -> str:
        """One if another has the user lock of a name given back just now: that one comes first."""
        grace = f"INTERVAL {microseconds(self.grace)} MICROSECOND"
        return f"""(expires_at <= UTC_TIMESTAMP(6) AND expires_at + {grace} > UTC_TIMESTAMP(6)
            AND {self.waited_for})"""

    @property
    def waited_for(self) -> str:
        """Whether another session has the user lock: a holder's, or a waiter's."""
        return f"COALESCE(IS_USED_LOCK({USER_LOCK}) <> CONNECTION_ID(), FALSE)"

    def wait_in_server(self, name: str, patience: float) -> Query[bool]:
        # No more than that: the server finds out only after a second that who waits has died, and
        # the name would be taken for nobody. A SELECT in a condition would lock the row meanwhile.
        return Query(
            f"""BEGIN NOT ATOMIC
                DECLARE held INT DEFAULT NOT IS_FREE_LOCK({USER_LOCK});
                DECLARE shared INT DEFAULT 0;
                SELECT readers IS NOT NULL INTO shared FROM {self.lock_table}
                    WHERE lock_name = %(name)s;
                IF shared OR NOT GET_LOCK({USER_LOCK}, %(patience)s) <=> 1 THEN
                    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'the user lock';
                END IF;
                SELECT held;
            END""",
            {"name": self.key(name), "user_lock": self.user_lock(name), "patience": patience},
            commands.WaitInServer(name),
            patience,
            read=_was_held,
        )

    def unlock_all(self) -> Query[int]:
        return Query("DO RELEASE_ALL_LOCKS()", {}, commands.UnlockAll())


def _was_held(reply: Reply) -> bool:
    return bool(reply.rows[0][0])
