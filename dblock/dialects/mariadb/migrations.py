"""The statements before a migration on MariaDB, and the lock that it holds meanwhile."""

from __future__ import annotations

import hashlib

from ..dialect import Dialect
from ..migrations import Bound


class MigrationStatements(Dialect):
    """User locks are global to the server, so their names contain the database."""

    undoes_ddl = False

    def migration_settings(self) -> tuple[str, ...]:
        # 86400 seconds is the default: then it is set to 2. An operator's shorter limit stays.
        usual = "IF(@@lock_wait_timeout < 86400, @@lock_wait_timeout, 2)"
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
        return (f"SELECT GET_LOCK({_migrations(name)}, 0)",)

    def migration_holder(self, name: str) -> str:
        # An account without the privilege PROCESS does not see other accounts' sessions: for it the
        # user is NULL.
        return f"""SELECT held.session, (
                SELECT user FROM information_schema.processlist WHERE id = held.session
            ) FROM (SELECT IS_USED_LOCK({_migrations(name)}) AS session) AS held"""


def _migrations(name: str) -> str:
    """Return the name of the user lock of migrations, which contains the database."""
    key = hashlib.blake2b(f"dblock/{name}".encode(), digest_size=8).hexdigest()
    return f"SHA1(CONCAT_WS('/', '{key}', DATABASE()))"
