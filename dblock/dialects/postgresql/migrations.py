"""The lock of migrations on PostgreSQL: an advisory lock, which does not need a table.

Any role that may connect can take it too, because anyone can compute its number. So a migrator
passes by a holder whose role could not migrate anything. A migrator that passes by takes a lock of
its own beside it, in a class that all such locks share; it takes its own lock before it looks for
others. A migrator that got the lock itself looks for locks beside it too, and gives way to one.
"""

from __future__ import annotations

import hashlib
import secrets

from ..dialect import Dialect
from ..migrations import Bound

# Whether a session's role could migrate: the role, or one that it can become, may create a schema
# or a permanent object here, or owns a table or may change its rows.
_COULD = """EXISTS (
        SELECT FROM pg_roles AS r WHERE pg_has_role(a.usesysid, r.oid, 'MEMBER') AND (
            has_database_privilege(r.oid, current_database(), 'CREATE')
            OR EXISTS (SELECT FROM pg_namespace AS n
                WHERE n.nspname::text !~ '^pg_' AND has_schema_privilege(r.oid, n.oid, 'CREATE'))
            OR EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                WHERE n.nspname::text !~ '^pg_' AND (c.relowner = r.oid
                    OR has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')))
        )
    )"""

_HALF = 1 << 32

# For one transaction, which is idle for as long as a migration takes.
_ENDLESS = """SELECT pg_catalog.count(set_config(name, '0', true)) FROM pg_settings
    WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"""


class MigrationStatements(Dialect):
    """The statements before a migration, and the lock that it holds meanwhile."""

    def migration_settings(self) -> tuple[str, ...]:
        return (
            "SELECT set_config('lock_timeout', '2s', true) "
            "WHERE current_setting('lock_timeout') = '0'",
        )

    def migration_place(self) -> tuple[str, ...]:
        # SHOW, because a SELECT would take the transaction's snapshot before it has the lock.
        return ("SHOW search_path", "SHOW role", "SHOW session_authorization")

    def look_at_place(
        self, found: tuple[str | None, ...]
    ) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
        path, role, session = map(str, found)
        user = (session if role == "none" else role).replace('"', '""')
        path = path.replace('"$user"', f'"{user}"')
        before: tuple[Bound, ...] = (
            ("BEGIN ISOLATION LEVEL READ COMMITTED", {}),
            ("SELECT set_config('search_path', :path, true)", {"path": path}),
        )
        return before, (("ROLLBACK", {}),)

    def migration_mutex(self, name: str) -> tuple[str, ...]:
        # A transaction, because that keeps its backend behind a pooler too. It must have no
        # snapshot while it is idle, or CREATE INDEX CONCURRENTLY would wait for it. So it is not in
        # REPEATABLE READ, and sends neither parameters nor prepared statements, whose portals would
        # stay open.
        return (
            "BEGIN ISOLATION LEVEL READ COMMITTED",
            _ENDLESS,
            MigrationMutex(name).take(secrets.randbits(31)),
        )

    def migration_holder(self, name: str) -> str:
        return MigrationMutex(name).holder()


class MigrationMutex:
    """The lock of migrations with one name."""

    def __init__(self, name: str) -> None:
        key = hashlib.blake2b(f"dblock/{name}".encode(), digest_size=8).digest()
        self._number = int.from_bytes(key, "big", signed=True)
        self._kind = int.from_bytes(key[:4], "big", signed=True)
        # Every role may see the server's sessions and their roles. pg_stat_activity is read once in
        # a transaction. A session that began since then is not in it, so its role is unknown, and
        # it counts.
        self._others = f"""FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
            WHERE l.locktype = 'advisory' AND l.granted AND l.pid <> pg_backend_pid()
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND l.classid = '{self._kind % _HALF}'
                AND (l.objsubid = 2 OR l.objsubid = 1 AND l.objid = '{self._number % _HALF}')
                AND (a.pid IS NULL OR a.usename = session_user OR {_COULD})"""

    def take(self, beside: int) -> str:
        """Return the statement of one try; ``beside`` is a random number of 31 bits.

        The caller runs it in a transaction of its own, which then has the lock.
        """
        alone = f"NOT EXISTS (SELECT {self._others})"
        return f"""SELECT CASE WHEN pg_try_advisory_xact_lock({self._number}) THEN {alone}
            WHEN {alone} THEN pg_try_advisory_xact_lock({self._kind}, {beside}) AND {alone}
            ELSE false END"""

    def holder(self) -> str:
        """Return the statement that reads the holder's session and its role."""
        return f"SELECT l.pid, a.usename {self._others} LIMIT 1"
