"""Real database servers for the tests, each in a throw-away directory of its own."""

from collections.abc import Callable, Mapping

from tests.servers.base import NotOwned, Server, ServerFailed, ServerMissing, execute
from tests.servers.mariadb import MariaDB, find_mariadb, shared_mariadb
from tests.servers.mysql import MySQL, find_mysql, shared_mysql
from tests.servers.own import OwnServer
from tests.servers.pgbouncer import PgBouncer, Pooled, find_pgbouncer
from tests.servers.postgresql import PostgreSQL, find_postgresql, shared_postgresql

#: The kinds of one family, which nearly all statements of these tests serve alike.
FAMILY = ("mariadb", "mysql")
#: What makes a server of a kind.
OWN: Mapping[str, Callable[[], OwnServer]] = {
    "postgresql": PostgreSQL,
    "mariadb": MariaDB,
    "mysql": MySQL,
}

__all__ = [
    "FAMILY",
    "OWN",
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
