"""The lock of migrations, where a role that may only connect has taken what it can compute."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest
from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.engine import Connection

from dblock import Locks, NotAcquired, Timeouts
from dblock.dialects.postgresql import PostgreSQL
from dblock.schema import migration_lock, upgrade
from tests.conftest import Database, NewDatabase, new_name
from tests.contrib.project import Project
from tests.contrib.test_migration_lock import IMPORT, LOCKED, PODS
from tests.servers import execute
from tests.support import SECONDS, Threads

PASSWORD = "no-secret"
REFUSED = "another migration is under way"
OURS = ("dblock", "migrations")  # the names of the two locks that dblock takes


def number(name: str) -> int:
    key = hashlib.blake2b(f"dblock/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(key, "big", signed=True)


@pytest.fixture
def database(new_database: NewDatabase) -> Database:
    made = new_database("postgresql")
    execute(made.url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as since PostgreSQL 15
    return made


class Role:
    """One that may connect; what else is granted to it."""

    def __init__(self, database: Database) -> None:
        self.name = new_name()[:30]
        self._database = database

    def __enter__(self) -> Role:
        execute(self._database.url, f"CREATE ROLE {self.name} LOGIN PASSWORD '{PASSWORD}'")
        return self

    def __exit__(self, *_: object) -> None:
        execute(self._database.url, f"DROP OWNED BY {self.name}", f"DROP ROLE {self.name}")

    @contextlib.contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        there = make_url(self._database.url)
        with psycopg.connect(
            host=there.host,
            port=there.port,
            dbname=there.database,
            user=self.name,
            password=PASSWORD,
            autocommit=True,
        ) as session:
            yield session


@pytest.fixture
def role(database: Database) -> Iterator[Role]:
    with Role(database) as made:
        yield made


@pytest.fixture
def stranger(role: Role) -> Iterator[psycopg.Connection]:
    """It has both locks, and some of those beside them."""
    with role.session() as session:
        for name in OURS:
            session.execute(f"SELECT pg_advisory_lock({number(name)})")
            session.execute(f"SELECT pg_advisory_lock({number(name) >> 32}, 7)")
        yield session


@contextlib.contextmanager
def lock(url: str, **connect_args: object) -> Iterator[Connection]:
    engine = create_engine(url, poolclass=NullPool, connect_args=connect_args)
    with engine.connect() as connection, migration_lock(connection, wait=0):
        yield connection


@contextlib.contextmanager
def refused(url: str, match: str = REFUSED) -> Iterator[None]:
    with pytest.raises(NotAcquired, match=match), lock(url):
        raise AssertionError("not reached")
    yield


@pytest.mark.usefixtures("stranger")
def test_the_tables_are_made_all_the_same(database: Database) -> None:
    upgrade(database.url)
    with Locks(database.url) as locks, locks.lease("report", wait=0):
        pass


@pytest.mark.usefixtures("stranger")
def test_migrators_exclude_each_other_all_the_same(database: Database) -> None:
    for _ in range(2):
        with lock(database.url) as connection, refused(database.url):
            # And CREATE INDEX CONCURRENTLY waits for nobody.
            assert execute(
                database.url,
                "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL "
                "AND datname = current_database() AND pid <> pg_backend_pid()",
            ) == [(0,)]
            connection.rollback()


def test_a_stranger_comes_and_goes(
    database: Database, stranger: psycopg.Connection, role: Role
) -> None:
    """Who has the lock itself sees who passed it by; and the other way round."""
    with lock(database.url):
        stranger.execute("SELECT pg_advisory_unlock_all()")
        with refused(database.url), refused(database.url):
            pass
    with lock(database.url), role.session() as again:
        for key in f"{number('migrations')}", f"{number('migrations') >> 32}, 8":
            again.execute(f"SELECT pg_try_advisory_lock({key})")
        with refused(database.url):
            pass


@pytest.mark.usefixtures("stranger")
def test_six_at_once_all_the_same(database: Database, tmp_path: Path) -> None:
    made = Project(tmp_path, database.url)
    try:
        made.env(LOCKED, imports=IMPORT)
        made.revision("one", None, 'op.create_table("things", Column("id", Integer))')
        pods = made.several(PODS)
        output, _ = pods.communicate(timeout=SECONDS)
        assert pods.returncode == 0, output
        assert made.revisions_run() == ["one"]
    finally:
        made.end()


@pytest.mark.usefixtures("stranger")
def test_behind_a_pooler_all_the_same(database: Database, new_database: NewDatabase) -> None:
    pooler, there = make_url(new_database("pgbouncer").url), make_url(database.url)
    url = pooler.set(database=there.database).render_as_string(hide_password=False)
    with lock(url, prepare_threshold=None), refused(database.url):
        pass
    with lock(database.url), pytest.raises(NotAcquired), lock(url, prepare_threshold=None):
        raise AssertionError("not reached")


def test_one_at_a_time_however_the_stranger_comes_and_goes(
    database: Database, stranger: psycopg.Connection, threads: Threads
) -> None:
    rounds, had = 150, threading.Lock()
    got = collections.Counter[int]()
    dialect = PostgreSQL(None, "dblock_", Timeouts())

    def migrate(mine: int) -> None:
        with psycopg.connect(database.url.replace("+psycopg", ""), autocommit=True) as own:
            for _ in range(rounds):
                *before, last = dialect.migration_mutex("migrations")
                for statement in before:
                    own.execute(statement)
                if own.execute(last).fetchone() == (True,):
                    assert had.acquire(blocking=False), "two at once"
                    got[mine] += 1
                    time.sleep(0.001)
                    had.release()
                own.execute("ROLLBACK")

    migrators = [threads.start(migrate, mine) for mine in range(4)]
    while not all(migrator.done() for migrator in migrators):
        stranger.execute("SELECT pg_advisory_unlock_all()")
        stranger.execute(f"SELECT pg_try_advisory_lock({number('migrations')})")
    threads.join()
    assert sum(got.values()) > 0


MAY = {
    "is a superuser": "ALTER ROLE {role} SUPERUSER",
    "may create schemas": 'GRANT CREATE ON DATABASE "{database}" TO {role}',
    "may create tables": "GRANT CREATE ON SCHEMA public TO {role}",
    "owns a table": "CREATE TABLE things (); ALTER TABLE things OWNER TO {role}",
    "may change a table": "CREATE TABLE things (); GRANT UPDATE ON things TO {role}",
    "can become an owner": "ALTER ROLE {role} NOINHERIT; GRANT {owner} TO {role}; "
    "CREATE TABLE things (); ALTER TABLE things OWNER TO {owner}",
}


@pytest.mark.parametrize("may", MAY)
def test_whoever_could_migrate_is_waited_for(database: Database, role: Role, may: str) -> None:
    """Also one who does it with an older version of this library, which takes the lock so."""
    name = make_url(database.url).database
    with Role(database) as owner:
        for statement in (
            MAY[may].format(role=role.name, database=name, owner=owner.name).split(";")
        ):
            execute(database.url, statement)
        with role.session() as session:
            session.execute("BEGIN")
            session.execute(f"SELECT pg_try_advisory_xact_lock({number('migrations')})")
            pid = session.info.backend_pid
            with refused(database.url, f"session {pid} has the lock, of '{role.name}'"):
                pass
            session.execute("ROLLBACK")
            with lock(database.url):
                got = f"SELECT pg_try_advisory_xact_lock({number('migrations')})"
                assert session.execute(got).fetchone() == (False,)


@pytest.mark.parametrize("passing", [False, True])
def test_a_migrator_without_a_right_is_waited_for_by_its_like(
    request: pytest.FixtureRequest, database: Database, passing: bool
) -> None:
    """One that only reads, who knows why; it sees all that it has to."""
    if passing:
        request.getfixturevalue("stranger")
    with Role(database) as role:
        url = make_url(database.url).set(username=role.name, password=PASSWORD)
        mine = url.render_as_string(hide_password=False)
        with lock(mine), refused(mine):
            pass
        with lock(database.url), refused(mine):
            pass


@pytest.mark.usefixtures("stranger")
def test_a_temporary_table_does_not_make_a_migrator(
    database: Database, stranger: psycopg.Connection
) -> None:
    stranger.execute("CREATE TEMPORARY TABLE things ()")
    with lock(database.url):
        pass


@pytest.mark.parametrize(
    ("kind", "made"), [("mariadb", "SHA1('{}')"), ("mysql", "SHA2('{}', 256)")]
)
def test_who_has_it_is_named(new_database: NewDatabase, kind: str, made: str) -> None:
    """On MariaDB and MySQL a session cannot tell what others' accounts may do, so all are waited
    for."""
    database = new_database(kind)
    there = make_url(database.url)
    name = new_name()[:30]
    key = hashlib.blake2b(b"dblock/migrations", digest_size=8).hexdigest()
    execute(database.url, f"CREATE USER {name} IDENTIFIED BY '{PASSWORD}'")
    session = pymysql.connect(
        host=there.host, port=there.port or 3306, user=name, password=PASSWORD
    )
    try:
        with session.cursor() as cursor:
            cursor.execute(f"SELECT GET_LOCK({made.format(f'{key}/{there.database}')}, 0)")
            assert cursor.fetchone() == (1,)
        number = session.thread_id()
        with refused(database.url, f"session {number} has the lock, of '{name}'"):
            pass
    finally:
        session.close()
        execute(database.url, f"DROP USER {name}")
