"""Databases with dblock's tables that are lent to one test after the other, emptied in between.

To make one and to drop it takes several times as long.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from tests.servers import FAMILY, Server

# What ends the sessions of others, in a statement for each or by itself.
USERS = {
    "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    **dict.fromkeys(
        FAMILY,
        "SELECT concat('KILL ', id) FROM information_schema.processlist "
        "WHERE db = database() AND id <> connection_id()",
    ),
}
TABLES = {
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    **dict.fromkeys(
        FAMILY, "SELECT table_name FROM information_schema.tables WHERE table_schema = database()"
    ),
}
IMPATIENCE = {
    "postgresql": "SET lock_timeout = '2s'",
    **dict.fromkeys(FAMILY, "SET lock_wait_timeout = 2"),
}
KEPT = {"dblock_schema", "dblock_epoch", "dblock_witness"}
FILLED = {
    f"dblock_{name}" for name in ("lock", "guard", "applied", "once", "value", "waiter", "run")
}


@dataclass(frozen=True)
class Database:
    """One test's own database."""

    kind: str  # the database's: that of PgBouncer is "postgresql"
    url: str
    server: Server | None  # None for SQLite
    # What dblock's own connections are made with, where that differs: a role with settings that no
    # user's transactions in these tests could bear.
    own: str = ""
    # What the user's transactions are made with, where that is not the driver of dblock's own.
    driver: str = ""

    @property
    def locks_url(self) -> str:
        return self.own or self.url

    @property
    def users_url(self) -> str:
        if not self.driver:
            return self.url
        url = make_url(self.url)
        name = f"{url.get_backend_name()}+{self.driver}"
        if self.driver == "asyncpg":
            url = url.set(query={})  # it is libpq's
        if self.driver == "mysqlconnector":  # over its C library nothing could limit its waits
            url = url.update_query_dict({"use_pure": "true"})
        return url.set(drivername=name).render_as_string(hide_password=False)


class Lender:
    def __init__(self, make: Callable[..., Database]) -> None:
        self._make = make
        self._free: defaultdict[str, list[tuple[Database, Engine]]] = defaultdict(list)

    @contextlib.contextmanager
    def lend(self, kind: str) -> Iterator[Database]:
        """Have a database for a test which leaves dblock's tables and all settings as they are.

        A kind may have a driver of the user's: "postgresql+psycopg2".
        """
        kind, _, driver = kind.partition("+")
        free = self._free[kind]
        if free:
            database, engine = free.pop()
        else:
            database = self._make(kind, migrated=True)
            engine = create_engine(database.url, poolclass=NullPool)
        yield replace(database, driver=driver)
        # A file is copied as quickly.
        if kind != "sqlite" and empty(database.kind, engine):
            free.append((database, engine))


def empty(kind: str, engine: Engine) -> bool:
    """Make a database as it was before the test; False if that is not to be done."""
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with contextlib.suppress(DBAPIError), autocommit.connect() as connection:
        run = connection.exec_driver_sql
        run(IMPATIENCE[kind])
        for (user,) in run(USERS[kind]).all():
            with contextlib.suppress(DBAPIError):  # it has just gone by itself
                if kind in FAMILY:
                    run(user)
        tables = {name for (name,) in run(TABLES[kind])}
        for table in tables - FILLED - KEPT:
            run(f"DROP TABLE {table}")
        for table in FILLED:
            if run(f"SELECT 1 FROM {table} LIMIT 1").first():
                run(f"TRUNCATE TABLE {table}")
        return True
    return False
