"""Servers whose settings, for all and for one role, are as unlike the usual ones as can be.

Nothing that a server, a database or a role can preset may change what dblock's statements mean. The
settings for all hold in the tests' own transactions too, so a user's sees locks taken under them.
Those of the role :data:`ROLE` are for dblock's own connections alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import make_url

from tests.servers.base import execute
from tests.servers.mariadb import MariaDB
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL

ROLE = "hostile"

_POSTGRESQL = {
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "array_nulls": "off",
    "backslash_quote": "on",
    "bytea_output": "escape",
    "client_min_messages": "debug1",
    "cursor_tuple_fraction": "0",
    "default_transaction_deferrable": "on",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_indexonlyscan": "off",
    "enable_indexscan": "off",
    "enable_tidscan": "off",
    "escape_string_warning": "off",
    "extra_float_digits": "-15",
    "from_collapse_limit": "1",
    "jit": "off",  # with so little enabled every plan would be worth it
    "join_collapse_limit": "1",
    "lock_timeout": "5s",
    "plan_cache_mode": "force_generic_plan",
    "quote_all_identifiers": "on",
    "row_security": "off",
    "standard_conforming_strings": "off",
    "synchronous_commit": "off",
    "transform_null_equals": "on",
    "xmloption": "document",
}
# psycopg reads no moments in such a DateStyle, and not every text has such an encoding.
_POSTGRESQL_ROLE = {
    "DateStyle": "German, DMY",
    "client_encoding": "LATIN1",
    "default_transaction_isolation": "serializable",
}

# ORACLE has PIPES_AS_CONCAT, ANSI_QUOTES, IGNORE_SPACE and SIMULTANEOUS_ASSIGNMENT in it.
_SQL_MODE = (
    "ORACLE,HIGH_NOT_PRECEDENCE,NO_BACKSLASH_ESCAPES,EMPTY_STRING_IS_NULL,"
    "PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION,TIME_ROUND_FRACTIONAL,ONLY_FULL_GROUP_BY,"
    "STRICT_ALL_TABLES"
)
_MARIADB = {
    "character-set-server": "latin1",
    "collation-server": "latin1_swedish_ci",
    "default-time-zone": "-11:30",
    "div-precision-increment": "0",
    "group-concat-max-len": "4",
    "innodb-default-row-format": "compact",
    "innodb-lock-wait-timeout": "5",
    "max-error-count": "0",
    "old-mode": "",
    "optimizer-switch": "derived_merge=off,materialization=off,mrr=on,semijoin=off",
    "sql-mode": _SQL_MODE,
    "sysdate-is-now": "1",
}
# Only who has the right to everything is spared this.
_MARIADB_ROLE = (
    "SET SESSION autocommit = 0, completion_type = CHAIN, tx_isolation = SERIALIZABLE, "
    "sql_safe_updates = 1, sql_select_limit = 1, sql_big_selects = 0, "
    "max_join_size = 1, sql_auto_is_null = 1, idle_transaction_timeout = 1, "
    "idle_readonly_transaction_timeout = 1, idle_write_transaction_timeout = 1, "
    "foreign_key_checks = 0, unique_checks = 0"
)

# ANSI has PIPES_AS_CONCAT, ANSI_QUOTES, IGNORE_SPACE and ONLY_FULL_GROUP_BY in it.
_SQL_MODE_OF_MYSQL = (
    "ANSI,HIGH_NOT_PRECEDENCE,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,"
    "NO_UNSIGNED_SUBTRACTION,TIME_TRUNCATE_FRACTIONAL,STRICT_ALL_TABLES"
)
_MYSQL = {
    "character-set-server": "latin1",
    "collation-server": "latin1_swedish_ci",
    "default-time-zone": "-11:30",
    "div-precision-increment": "0",
    "group-concat-max-len": "4",
    # A wait that ends with this limit undoes the whole transaction, not the statement alone.
    "innodb-lock-wait-timeout": "1",
    "innodb-default-row-format": "compact",
    "innodb-rollback-on-timeout": "1",
    "lower-case-table-names": "1",
    "max-error-count": "0",
    "optimizer-switch": "derived_merge=off,materialization=off,mrr=on,semijoin=off,"
    "prefer_ordering_index=off,subquery_to_derived=on",
    "sql-generate-invisible-primary-key": "1",
    "sql-mode": _SQL_MODE_OF_MYSQL,
    "sql-require-primary-key": "1",
    "sysdate-is-now": "1",
}
_MYSQL_ROLE = (
    "SET SESSION autocommit = 0, completion_type = CHAIN, transaction_isolation = SERIALIZABLE, "
    "sql_safe_updates = 1, sql_select_limit = 1, sql_big_selects = 0, max_join_size = 1, "
    "sql_auto_is_null = 1, max_execution_time = 1000, foreign_key_checks = 0, unique_checks = 0"
)


class HostilePostgreSQL(PostgreSQL):
    def _command(self) -> Sequence[str | Path]:
        settings = [f"--{name}={value}" for name, value in _POSTGRESQL.items()]
        return [*super()._command(), *settings]

    def start(self) -> None:
        super().start()
        settings = [
            f"ALTER ROLE {ROLE} SET {name} = {value if ',' in value else repr(value)}"
            for name, value in _POSTGRESQL_ROLE.items()
        ]
        execute(self.url, f"CREATE ROLE {ROLE} SUPERUSER LOGIN", *settings)


class HostileMariaDB(MariaDB):
    def __init__(self) -> None:
        settings = [f"--{name}={value}" for name, value in _MARIADB.items()]
        super().__init__(options=["--skip-character-set-client-handshake", *settings])

    def start(self) -> None:
        super().start()
        grant = "GRANT SELECT, INSERT, UPDATE, DELETE, PROCESS, CREATE, DROP ON *.*"
        execute(
            self.url,
            f"CREATE USER {ROLE}@'%%'",
            f"{grant} TO {ROLE}@'%%'",
            f"SET GLOBAL init_connect = '{_MARIADB_ROLE}'",
        )


class HostileMySQL(MySQL):
    def __init__(self) -> None:
        super().__init__(options=[f"--{name}={value}" for name, value in _MYSQL.items()])

    def start(self) -> None:
        super().start()
        grant = "GRANT SELECT, INSERT, UPDATE, DELETE, PROCESS, CREATE, DROP ON *.*"
        execute(
            self.url,
            f"CREATE USER {ROLE}@'%%'",
            f"{grant} TO {ROLE}@'%%'",
            f"SET GLOBAL init_connect = '{_MYSQL_ROLE}'",
        )


def as_role(url: str) -> str:
    """The same database for the role that has settings of its own."""
    return make_url(url).set(username=ROLE).render_as_string(hide_password=False)
