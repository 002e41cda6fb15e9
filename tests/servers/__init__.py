"""Real database servers for the tests, each in a throw-away directory of its own."""

from tests.servers.base import NotOwned, Server, ServerFailed, ServerMissing, execute
from tests.servers.mariadb import MariaDB, find_mariadb, shared_mariadb
from tests.servers.mysql import MySQL, find_mysql, shared_mysql
from tests.servers.own import OwnServer
from tests.servers.pgbouncer import PgBouncer, Pooled, find_pgbouncer
from tests.servers.postgresql import PostgreSQL, find_postgresql, shared_postgresql

__all__ = [
    "MariaDB",
    "MySQL",
    "NotOwned",
    "OwnServer",
    "PgBouncer",
    "Pooled",
    "PostgreSQL",
    "Server",
    "ServerFailed",
    "ServerMissing",
    "execute",
    "find_mariadb",
    "find_mysql",
    "find_pgbouncer",
    "find_postgresql",
    "shared_mariadb",
    "shared_mysql",
    "shared_postgresql",
]
