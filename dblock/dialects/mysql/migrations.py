"""The lock that a migration holds on MySQL."""

from __future__ import annotations

from ..mariadb.migrations import MigrationStatements as MariaDBs


class MigrationStatements(MariaDBs):
    """MySQL 9.6 has no SHA1 any more, and a name of a user lock has at most 64 characters."""

    sessions = "performance_schema.processlist"

    def named(self, key: str) -> str:
        return f"SHA2(CONCAT_WS('/', '{key}', DATABASE()), 256)"
