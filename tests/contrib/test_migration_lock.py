"""One migrator at a time: real processes on real servers."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.engine import Connection

from dblock import LockLost, Locks, NotAcquired, Timeouts
from dblock.dialects.postgresql import PostgreSQL
from dblock.schema import migration_lock
from tests.conftest import SERVERS, Database, NewDatabase
from tests.contrib.project import HEAD, Project
from tests.servers import FAMILY, execute
from tests.support import LONG, MOMENT, SECONDS, Threads, eventually

LOCKED = "with migration_lock(connection), context.begin_transaction(): context.run_migrations()"
INSIDE = "with context.begin_transaction(), migration_lock(connection): context.run_migrations()"
IMPORT = "from dblock.schema import migration_lock"
PODS = 6

FIRST = """op.create_table("things", Column("id", Integer, primary_key=True))
    op.create_table("others", Column("id", Integer, primary_key=True))"""
# A migrator that is killed on PostgreSQL leaves the index, but not the version. MySQL cannot ask.
INDEX = """with op.get_context().autocommit_block():
        op.create_index("by_id", "things", ["id"], postgresql_concurrently=True,
            if_not_exists=op.get_bind().dialect.name == "postgresql")"""
TABLES = f'dblock.schema.create(op, "{HEAD}")'
# The first to come stays in the middle of its migration.
STAYS = """import signal
    if os.path.exists("stay"):
        os.rename("stay", "staying")
        signal.pause()"""


NewProject = Callable[..., Project]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[NewProject]:
    with contextlib.ExitStack() as stack:

        def make(url: str, run: str = LOCKED) -> Project:
            made = Project(tmp_path, url)
            stack.callback(made.end)
            made.env(run, imports=IMPORT)
            made.revision("one", None, FIRST)
            made.revision("two", "one", INDEX)
            made.revision("three", "two", TABLES, imports="import dblock.schema")
            return made

        yield make


def all_upgrade(made: Project) -> None:
    pods = made.several(PODS)
    output, _ = pods.communicate(timeout=SECONDS)
    assert pods.returncode == 0, output
    assert made.revisions_run() == ["one", "two", "three"]
    with Locks(made.url) as locks, locks.lease("a", wait=0):
        pass


def test_six_at_once(database: Database, project: NewProject) -> None:
    """Of the tables that dblock needs there is none before."""
    all_upgrade(project(database.url))


@pytest.mark.parametrize("kind", SERVERS)
def test_six_at_once_inside_a_transaction(
    new_database: NewDatabase, project: NewProject, kind: str
) -> None:
    """Where the line is easily put; and what was migrated is only there after the transaction."""
    all_upgrade(project(new_database(kind).url, INSIDE))


def test_six_at_once_behind_a_pooler(new_database: NewDatabase, project: NewProject) -> None:
    database = new_database("pgbouncer")
    made = project(database.url)
    env = made.directory / "migrations" / "env.py"
    prepares = 'connect_args={"prepare_threshold": None}, poolclass'
    env.write_text(env.read_text().replace("poolclass", prepares))
    all_upgrade(made)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_migrator_is_killed(new_database: NewDatabase, project: NewProject, kind: str) -> None:
    database = new_database(kind)
    made = project(database.url)
    made.revision("stays", "three", STAYS)
    (made.directory / "stay").touch()
    first = made.start("-m", "alembic", "upgrade", "head")
    eventually((made.directory / "staying").exists)
    others = made.several(2)
    with pytest.raises(NotAcquired), lock(database.url, wait=MOMENT):
        raise AssertionError("not reached")
    assert others.poll() is None
    first.send_signal(signal.SIGKILL)
    first.communicate()
    output, _ = others.communicate(timeout=SECONDS)
    assert others.returncode == 0, output
    assert made.revisions_run().count("stays") == 2  # the killed one's and that of one other


def test_nothing_is_locked_at_the_head(database: Database, project: NewProject) -> None:
    made = project(database.url, LOCKED.replace("(connection)", f"(connection, wait={LONG})"))
    made.alembic("upgrade", "head")
    with lock(database.url):
        made.alembic("upgrade", "head")
        assert "three" in made.alembic("current")
        made.revision("four", "three", "pass")
        waiting = made.start("-m", "alembic", "upgrade", "head")
        time.sleep(MOMENT)
        assert waiting.poll() is None
        assert "four" not in made.revisions_run()
    output, _ = waiting.communicate(timeout=SECONDS)
    assert waiting.returncode == 0, output
    assert made.revisions_run()[-1] == "four"


@contextlib.contextmanager
def lock(url: str, **options: float) -> Iterator[Connection]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection, migration_lock(connection, **options):  # type: ignore[arg-type]
        yield connection


def test_it_excludes_and_ends(database: Database) -> None:
    for _ in range(2):
        with (
            lock(database.url),
            pytest.raises(NotAcquired, match="another migration is under way"),
            lock(database.url, wait=0),
        ):
            raise AssertionError("not reached")
    with pytest.raises(KeyError), lock(database.url):
        raise KeyError("of the migration")
    with lock(database.url, wait=0):
        pass


@pytest.mark.parametrize("kind", SERVERS)
def test_other_names_and_databases_are_other_locks(new_database: NewDatabase, kind: str) -> None:
    database, another = new_database(kind), new_database(kind)
    engine = create_engine(database.url, poolclass=NullPool)
    with (
        lock(database.url),
        lock(another.url, wait=0),
        engine.connect() as connection,
        migration_lock(connection, name="billing", wait=0),
    ):
        pass


def test_left_in_a_transaction_it_lasts_until_that_is_over(
    database: Database, threads: Threads
) -> None:
    engine = create_engine(database.url)

    def is_free() -> bool:
        try:
            with lock(database.url, wait=0):
                return True
        except NotAcquired:
            return False

    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))  # begins it
        with migration_lock(connection):
            pass
        assert not threads.run(is_free)
        connection.commit()
    assert threads.run(is_free)
    engine.dispose()


@pytest.mark.parametrize("kind", SERVERS)
def test_needed_is_asked_again(new_database: NewDatabase, threads: Threads, kind: str) -> None:
    """Who waits passes as soon as there is nothing left to do."""
    database = new_database(kind)
    done = threading.Event()
    waiting = threading.Event()

    def needed(connection: Connection) -> bool:
        waiting.set()
        return not done.is_set()

    def pass_by() -> None:
        engine = create_engine(database.url, poolclass=NullPool)
        with engine.connect() as connection, migration_lock(connection, needed=needed):
            assert done.is_set()

    with lock(database.url):
        passing = threads.start(pass_by)
        assert waiting.wait(LONG)
        done.set()
        passing.result(LONG)  # though the lock is not free


@pytest.mark.parametrize("kind", SERVERS)
def test_a_lock_that_was_lost_is_told(new_database: NewDatabase, kind: str) -> None:
    database = new_database(kind)
    with pytest.raises(LockLost, match="may have migrated at the same time"), lock(database.url):
        end_its_session(database)


def end_its_session(database: Database) -> None:
    name = database.url.rpartition("/")[2]
    if database.kind == "postgresql":
        end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
        execute(
            database.url,
            f"{end} AND database = (SELECT oid FROM pg_database WHERE datname = '{name}')",
        )
        return
    find = "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND DB = "
    for (session,) in execute(database.url, f"{find}'{name.partition('?')[0]}'"):
        execute(database.url, f"KILL {session}")


def test_it_outlives_the_servers_patience_with_the_idle(new_database: NewDatabase) -> None:
    database = new_database("postgresql")
    name = database.url.rpartition("/")[2]
    idle = 2  # seconds: longer than a stall while it connects, where the limit holds too
    execute(
        database.url,
        f"ALTER DATABASE \"{name}\" SET idle_in_transaction_session_timeout = '{idle}s'",
        f'ALTER DATABASE "{name}" SET default_transaction_isolation = "serializable"',
    )
    with lock(database.url) as connection:
        time.sleep(idle + MOMENT)
        snapshots = "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL "
        assert execute(
            database.url, f"{snapshots} AND datname = '{name}' AND pid <> pg_backend_pid()"
        ) == [(0,)]
        connection.rollback()


def test_its_transaction_may_be_idle_for_as_long_as_it_takes(new_database: NewDatabase) -> None:
    """Behind a pooler too, where the session's settings are whoever's."""
    with psycopg.connect(new_database("pgbouncer").url.replace("+psycopg", "")) as own:
        dialect = PostgreSQL(None, "dblock_", Timeouts())
        dialect.adapter.prepare_migrator(own)
        own.execute("SET idle_in_transaction_session_timeout = '1min'")
        own.execute("SET default_transaction_isolation = 'serializable'")
        for statement in dialect.migration_mutex("migrations"):
            own.execute(statement)
        assert own.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("0",)
        assert own.execute("SHOW transaction_isolation").fetchone() == ("read committed",)


# --- tenants -----------------------------------------------------------------------------------

# How an env.py chooses a tenant's schema, as Alembic's cookbook has it, or another way.
CHOOSE = {
    "search_path": """connection.execute(text('SET search_path TO tenant'))
    connection.commit()
    connection.dialect.default_schema_name = "tenant"
    """,
    "role": """connection.execute(text('SET ROLE tenant; SET search_path TO "$user"'))
    connection.commit()
    """,
    "in the transaction": """connection.execute(text('SET LOCAL search_path TO tenant'))
    """,
    "version_table_schema": """connection = connection.execution_options(
        schema_translate_map={None: "tenant"})
    """,
    "use": """connection.execute(text('USE tenant_of_' + connection.engine.url.database))
    connection.commit()
    connection.dialect.default_schema_name = 'tenant_of_' + connection.engine.url.database
    """,
}
ROW = """op.execute("INSERT INTO counted (n) VALUES (1)")"""
COUNTED = """op.create_table("counted", Column("n", Integer))"""


def of_a_tenant(made: Project, choose: str) -> None:
    """Let env.py migrate the tenant."""
    options = ', version_table_schema="tenant"' if choose == "version_table_schema" else ""
    run = LOCKED
    if choose == "in the transaction":
        run = INSIDE + "; connection.commit()"
    made.env(run, imports=f"from sqlalchemy import text; {IMPORT}", options=options)
    env = made.directory / "migrations" / "env.py"
    env.write_text(
        env.read_text().replace("context.configure(", f"{CHOOSE[choose]}context.configure(", 1)
    )


@pytest.mark.parametrize(
    ("kind", "choose"),
    [
        (kind, choose)
        for choose in CHOOSE
        for kind in (FAMILY if choose == "use" else ("postgresql",))
    ],
)
def test_one_migrates_a_tenant_where_the_default_is_at_the_head(
    new_database: NewDatabase, tmp_path: Path, kind: str, choose: str
) -> None:
    """The look is where the migration is. A data migration is run once."""
    database = new_database(kind)
    made = Project(tmp_path, database.url)
    made.revision("counted", None, COUNTED)
    made.revision("row", "counted", f"{STAYS}\n    {ROW}")
    url = make_url(database.url)
    tenant = f"tenant_of_{url.database}" if choose == "use" else "tenant"
    try:
        if choose == "use":
            execute(database.url, f"CREATE DATABASE {tenant}")
        elif choose == "role":
            execute(database.url, "DROP ROLE IF EXISTS tenant", "CREATE ROLE tenant SUPERUSER")
            execute(database.url, "CREATE SCHEMA tenant")
        else:
            execute(database.url, "CREATE SCHEMA tenant")
        made.env(LOCKED, imports=IMPORT)
        made.alembic("upgrade", "head")
        of_a_tenant(made, choose)
        (made.directory / "stay").touch()
        first = made.start("-m", "alembic", "upgrade", "head")
        eventually((made.directory / "staying").exists)
        second = made.start("-m", "alembic", "upgrade", "head")
        with pytest.raises(NotAcquired), lock_of(made, tenant if choose == "use" else None):
            raise AssertionError("not reached")
        time.sleep(MOMENT)
        assert second.poll() is None, second.communicate()
        assert made.revisions_run().count("row") == 2  # the default's, and that of the first
        first.send_signal(signal.SIGKILL)
        first.communicate()
        output, _ = second.communicate(timeout=60)
        assert second.returncode == 0, output
        assert made.revisions_run().count("row") == 3
        third = made.start("-m", "alembic", "upgrade", "head")
        assert third.wait(60) == 0
        # One for the default, and one for the tenant, wherever text without a schema goes.
        both = f"SELECT n FROM {tenant}.counted UNION ALL SELECT n FROM counted"
        assert execute(database.url, both) == [(1,), (1,)]
    finally:
        made.end()
        if choose == "use":
            execute(database.url, f"DROP DATABASE IF EXISTS {tenant}")
        elif choose == "role":
            execute(database.url, "DROP SCHEMA tenant CASCADE", "DROP ROLE tenant")


def lock_of(made: Project, database: str | None) -> contextlib.AbstractContextManager[Connection]:
    url = make_url(made.url)
    url = url.set(database=database) if database else url
    return lock(url.render_as_string(hide_password=False), wait=MOMENT)
