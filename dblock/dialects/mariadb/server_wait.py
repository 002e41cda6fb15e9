"""Waiting in the server, for a name's user lock. That wakes a waiter; the row decides."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

from ...protocol.commands import UnlockAll, WaitInServer
from ..query import Result
from ..statement import statement
from .base import Tables
from .fragments import microseconds

# Marks a name's row: readers want this name now and then. The mark is a list of readers that
# belongs to no hold, unless there is a list already.
NOTED = "readers = COALESCE(readers, '')"


def _was_held(result: Result) -> bool:
    return bool(result.rows[0][0])


class ServerWaitStatements(Tables):
    """After a release the session that has the user lock comes first, for a moment.

    No waiter waits in the server for a name that readers want now and then: readers see in the
    queue alone which waiters came before them.
    """

    #: The name of a user lock. Such names are global to the server, so it contains the database.
    lock_of_users: ClassVar[str] = "SHA1(CONCAT_WS('/', %(user_lock)s, DATABASE()))"

    def user_lock(self, name: str) -> str:
        """Return the name of a lock name's user lock, without the database."""
        # With the schema that the caller gave: before the first statement dblock does not know the
        # tables' real place.
        schema = f"{self.quote(self.schema)}." if self.schema else ""
        named = f"{schema}{self.quote(self.prefix + 'lock')}/{name}"
        return hashlib.blake2b(named.encode(), digest_size=16).hexdigest()

    @property
    def taken_elsewhere(self) -> str:
        """1 if the name was released just now and another session has its user lock: that session
        comes first."""
        grace = f"INTERVAL {microseconds(self.grace)} MICROSECOND"
        return f"""(expires_at <= UTC_TIMESTAMP(6) AND expires_at + {grace} > UTC_TIMESTAMP(6)
            AND {self.waited_for})"""

    @property
    def waited_for(self) -> str:
        """Whether another session, a holder's or a waiter's, has the user lock."""
        return f"COALESCE(IS_USED_LOCK({self.lock_of_users}) <> CONNECTION_ID(), FALSE)"

    def with_user_lock(self, command: Any) -> dict[str, object]:
        """Return the parameter of :attr:`lock_of_users`."""
        return {"user_lock": self.user_lock(command.name)}

    @statement(
        WaitInServer,
        read=_was_held,
        lock_timeout=lambda _, command: command.patience,
        parameters=with_user_lock,
    )
    def wait_in_server(self, _: WaitInServer) -> str:
        # It does not take the name as well: the server notices only after a second that a waiter's
        # client has died, and would grant the name to it. The row is read by a statement of its
        # own: a SELECT in a condition would keep the row locked during the wait.
        return f"""BEGIN NOT ATOMIC
                DECLARE held INT DEFAULT NOT IS_FREE_LOCK({self.lock_of_users});
                DECLARE shared INT DEFAULT 0;
                SELECT readers IS NOT NULL INTO shared FROM {self.lock_table}
                    WHERE lock_name = %(name)s;
                IF shared OR NOT GET_LOCK({self.lock_of_users}, %(patience)s) <=> 1 THEN
                    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'the user lock';
                END IF;
                SELECT held;
            END"""

    @statement(UnlockAll, lock_timeout=None)
    def unlock_all(self) -> str:
        return "DO RELEASE_ALL_LOCKS()"
