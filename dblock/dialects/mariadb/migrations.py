"""The statements before a migration on MariaDB, and the lock that it holds meanwhile."""

from __future__ import annotations

import hashlib
from typing import ClassVar

from ..dialect import Dialect
from ..migrations import Bound


class MigrationStatements(Dialect):
    """User locks are global to the server, so their names contain the database."""

    undoes_ddl = False
    #: The table of the server's sessions.
    sessions: ClassVar[str] = "information_schema.processlist"

    def migration_settings(self) -> tuple[str, ...]:
        # 86400 seconds is the default: then it is set to 2, as MySQL's, which is longer. An
        # operator's shorter limit stays.
        usual = "CAST(IF(@@lock_wait_timeout < 86400, @@lock_wait_timeout, 2) AS UNSIGNED)"
        return (f"SET SESSION lock_wait_timeout = {usual}",)

    def migration_place(self) -> tuple[str, ...]:
        return ("SELECT DATABASE()",)

    def go_to_place(self, found: tuple[str | None, ...]) -> tuple[Bound, ...]:
        (database,) = found
        if database is None:
            return ()
        quoted = "`" + database.replace("`", "``").replace(":", "\\:") + "`"
        return ((f"USE {quoted}", {}),)

    def migration_mutex(self, name: str) -> tuple[str, ...]:
        return (f"SELECT GET_LOCK({self.named(_key(name))}, 0)",)

    def migration_holder(self, name: str) -> str:
        # An account without the privilege PROCESS does not see other accounts' sessions: for it the
        # user is NULL.
        return f"""SELECT held.session, (
                SELECT user FROM {self.sessions} WHERE id = held.session
            ) FROM (SELECT IS_USED_LOCK({self.named(_key(name))}) AS session) AS held"""

    def named(self, key: str) -> str:
        """Return the name of a user lock of migrations, which contains the database."""
        return f"SHA1(CONCAT_WS('/', '{key}', DATABASE()))"


def _key(name: str) -> str:
    return hashlib.blake2b(f"dblock/{name}".encode(), digest_size=8).hexdigest()
