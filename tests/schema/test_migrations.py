"""The migrations: from a checkout, from an installed wheel, up, down, placed, and in a race."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import venv
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, create_engine, inspect, text

from dblock import Locks, SchemaMissing, Unavailable, Unsupported
from dblock.protocol.schema_version import SCHEMA_VERSION
from dblock.schema import downgrade, sql, statements, tables, upgrade
from tests.conftest import KINDS, Database, NewDatabase
from tests.servers import execute
from tests.support import LONG

ROOT = Path(__file__).parent.parent.parent
TABLES = (
    *("lock", "guard", "applied", "once", "value", "waiter", "run", "epoch", "witness"),
    *("schema", "version"),
)
OLD_LEASE = f"""INSERT INTO dblock_lock VALUES ('old', 7, 'a token', 'somebody',
    now(), now() + interval '{LONG} seconds')"""
HEAD = f"dblock_{SCHEMA_VERSION:04}"
UPGRADE = "import sys, dblock.schema; dblock.schema.upgrade(sys.argv[1])"


def names(url: str, schema: str | None = None) -> set[str]:
    engine = create_engine(url)
    try:
        return set(inspect(engine).get_table_names(schema=schema))
    finally:
        engine.dispose()


def test_up_and_down(database: Database) -> None:
    upgrade(database.url)
    made = {f"dblock_{name}" for name in TABLES}
    assert names(database.url) == made
    upgrade(database.url)
    with Locks(database.url) as locks:
        assert locks.lease("a", wait=0).acquire()
    downgrade(database.url)
    assert names(database.url) == {"dblock_version"}
    with Locks(database.url) as locks, pytest.raises(SchemaMissing, match="dblock upgrade"):
        locks.show("a")
    upgrade(database.url)
    assert names(database.url) == made


def test_prefix(database: Database) -> None:
    upgrade(database.url, prefix="app_")
    assert "app_lock" in names(database.url)
    with Locks(database.url, prefix="app_") as locks:
        lease = locks.lease("a", wait=0)
        assert lease.acquire()
        engine = create_engine(database.url)
        with engine.connect() as connection, lease.guard(connection):
            connection.rollback()
        engine.dispose()
        lease.release()
        with locks.row("a", wait=0):
            pass
    with Locks(database.url) as locks, pytest.raises(SchemaMissing):
        locks.show("a")


def test_schema(database: Database) -> None:
    if database.kind == "postgresql":
        engine = create_engine(database.url)
        with engine.begin() as connection:
            connection.execute(text("CREATE SCHEMA locking"))
        engine.dispose()
        schema = "locking"
    elif database.kind in ("mariadb", "mysql"):
        schema = create_engine(database.url).url.database or ""
    else:
        schema = "main"  # SQLite's name for the file itself
    upgrade(database.url, schema=schema)
    assert "dblock_lock" in names(database.url, schema)
    with Locks(database.url, schema=schema) as locks, locks.lease("a", wait=0) as lease:
        assert lease.fence == 1
    downgrade(database.url, schema=schema)
    assert "dblock_lock" not in names(database.url, schema)


def test_the_metadata_is_what_the_migrations_make(database: Database) -> None:
    upgrade(database.url)
    metadata = MetaData()
    tables(metadata)
    engine = create_engine(database.url)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": "dblock_version"}
        )
        differences = compare_metadata(context, metadata)
    engine.dispose()
    assert differences == []


def test_the_metadata_stores_tables_as_the_migrations_do(new_database: NewDatabase) -> None:
    """Alembic does not compare that."""
    by_migrations, by_metadata = (new_database("postgresql").url for _ in range(2))
    upgrade(by_migrations)
    metadata = MetaData()
    tables(metadata)
    engine = create_engine(by_metadata)
    metadata.create_all(engine)
    engine.dispose()
    stored = (
        "SELECT relname, relpersistence, reloptions FROM pg_class WHERE relkind = 'r' "
        "AND starts_with(relname, 'dblock') AND relname <> 'dblock_version' ORDER BY relname"
    )
    assert execute(by_metadata, stored) == execute(by_migrations, stored)


def test_every_table_and_column_says_what_it_is_for() -> None:
    made = tables(MetaData()).values()
    silent = [table.name for table in made if not table.comment]
    silent += [str(column) for table in made for column in table.columns if not column.comment]
    assert silent == []


def test_newer_tables_that_only_have_more(database: Database) -> None:
    """A migration that adds, and no more, stops no older code."""
    upgrade(database.url)
    execute(database.url, f"UPDATE dblock_schema SET revision = {SCHEMA_VERSION + 1}")
    with Locks(database.url) as locks, locks.lease("a", wait=0):
        pass
    execute(database.url, f"UPDATE dblock_schema SET version = {SCHEMA_VERSION + 1}")
    with Locks(database.url) as locks, pytest.raises(SchemaMissing, match="pip install -U"):
        locks.show("a")


def test_created_from_the_metadata(database: Database) -> None:
    metadata = MetaData()
    made = tables(metadata)
    engine = create_engine(database.url)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(made["schema"].insert().values(version=SCHEMA_VERSION))
    with Locks(engine) as locks, locks.lease("a", wait=0):
        pass
    engine.dispose()


def test_alembic_from_the_checkout(database: Database) -> None:
    def alembic(*arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "alembic", "-c", str(ROOT / "alembic.ini"), *arguments],
            cwd=ROOT,
            env={**os.environ, "DBLOCK_URL": database.url},
            check=True,
            capture_output=True,
        )

    alembic("upgrade", "head")
    with Locks(database.url) as locks, locks.lease("a", wait=0):
        pass
    upgrade(database.url)  # the same history, so there is nothing to do
    alembic("downgrade", "base")
    assert "dblock_lock" not in names(database.url)


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize("how", ["variable", "argument"])
def test_alembic_is_given_an_empty_url(tmp_path: Path, how: str, value: str) -> None:
    """It does not go on to the URL of alembic.ini, which is another database's."""
    ini = tmp_path / "alembic.ini"
    ini.write_text(
        f"[alembic]\nscript_location = {ROOT / 'migrations'}\nprepend_sys_path = {ROOT}\n"
        f"path_separator = newline\nsqlalchemy.url = sqlite:///{tmp_path}/other.db\n"
    )
    url = ["-x", f"url={value}"] if how == "argument" else []
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "-c", str(ini), *url, "upgrade", "head"],
        cwd=ROOT,
        env={**os.environ} | ({"DBLOCK_URL": value} if how == "variable" else {}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "is empty" in done.stderr
    assert not (tmp_path / "other.db").exists()


def test_a_race_of_upgrades(database: Database) -> None:
    ready = threading.Barrier(4)
    failures: list[str] = []

    def run() -> None:
        ready.wait()
        done = subprocess.run(
            [sys.executable, "-c", UPGRADE, database.url],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            failures.append(done.stderr)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with Locks(database.url) as locks, locks.lease("a", wait=0):
        pass


@pytest.mark.parametrize(
    "url", ["postgresql://nobody@192.0.2.1/x", "mysql://nobody@192.0.2.1/x", "sqlite:////no/where"]
)
def test_sql_without_a_database(url: str) -> None:
    if url.startswith("sqlite"):
        statements = sql(url)
    else:
        statements = sql(url, prefix="app_", schema="locking")
        assert "app_lock_pkey" in statements
        assert "locking" in statements
    assert "CREATE TABLE" in statements
    assert "SET version = 2" in statements


def test_a_lent_engine_is_left_as_it_was(database: Database) -> None:
    engine = create_engine(database.url)
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO dblock_lock (lock_name, fence) VALUES ('a', 0)"))
        connection.rollback()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM dblock_lock")).scalar() == 0
    engine.dispose()


def test_the_wheel_has_the_migrations(tmp_path: Path) -> None:
    """Build a wheel, install it apart from the checkout, and let it create its tables."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("dblock-*.whl")
    # The dependencies come from here; dblock itself must not.
    site = Path(next(p for p in sys.path if p.endswith("site-packages")))
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    site_new = tmp_path / "installed"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site_new, wheel],
        check=True,
        capture_output=True,
    )
    code = (
        "import sys, dblock; from dblock.schema import upgrade, migrations\n"
        f"assert dblock.__file__.startswith({str(tmp_path)!r}), dblock.__file__\n"
        f"assert str(migrations()).startswith({str(tmp_path)!r}), migrations()\n"
        "upgrade(sys.argv[1])\n"
        "with dblock.Locks(sys.argv[1]) as locks, locks.lease('a', wait=0) as lease:\n"
        "    print(lease.fence)\n"
    )
    done = subprocess.run(
        [str(python), "-c", code, f"sqlite:///{tmp_path}/locks.db"],
        env={"PYTHONPATH": f"{site_new}:{site}"},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "1"


# --- the witness, and durability ---------------------------------------------------------------


def test_leases_of_before_the_witness(new_database: NewDatabase) -> None:
    url = new_database("postgresql").url
    upgrade(url, revision="dblock_0001")
    with Locks(url) as locks, pytest.raises(SchemaMissing, match="version 1, this code needs"):
        locks.show("old")
    execute(url, OLD_LEASE)
    upgrade(url)
    assert execute(url, "SELECT version, revision FROM dblock_schema") == [(3, SCHEMA_VERSION)]
    ((longest,),) = execute(url, "SELECT longest_ttl FROM dblock_epoch")
    assert 0 < longest <= LONG
    with Locks(url) as locks:
        assert not locks.lease("old", ttl=LONG).acquire(blocking=False)
        with locks.lease("new", wait=0) as lease:
            assert lease.fence == 1
    downgrade(url, revision="dblock_0001")
    assert execute(url, "SELECT version FROM dblock_schema") == [(1,)]
    assert not {"dblock_epoch", "dblock_witness"} & names(url)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_an_upgrade_that_somebody_is_in_the_way_of(new_database: NewDatabase, kind: str) -> None:
    """It lets the others go on after a moment, and can be run again."""
    url = new_database(kind).url
    upgrade(url, revision="dblock_0001")
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.execute(text("SELECT * FROM dblock_lock FOR UPDATE"))
        with pytest.raises(Unavailable):
            upgrade(url)
    engine.dispose()
    upgrade(url)
    with Locks(url) as locks:
        assert locks.lease("a").acquire()
        locks.release("a", force=True)


@pytest.mark.parametrize("durability", ["volatile", "durable"])
def test_durability(database: Database, durability: str) -> None:
    upgrade(database.url)
    if database.kind == "postgresql":
        upgrade(database.url, durability=durability)
        kinds = dict(execute(database.url, "SELECT relname, relpersistence FROM pg_class"))
        assert kinds["dblock_lock"] == {"durable": "p", "volatile": "u"}[durability]
        assert (kinds["dblock_epoch"], kinds["dblock_witness"]) == ("p", "u")
    elif durability == "volatile":
        with pytest.raises(Unsupported, match="works on postgresql"):
            upgrade(database.url, durability=durability)
    else:
        upgrade(database.url, durability=durability)


def test_the_durability_in_plain_sql() -> None:
    url = "postgresql://nobody@192.0.2.1/x"
    assert 'ALTER TABLE "app_lock" SET UNLOGGED' in sql(url, prefix="app_", durability="volatile")
    assert 'ALTER TABLE "dblock_lock" SET LOGGED' in sql(url, durability="durable")
    assert "SET LOGGED" not in sql(url)
    assert "SET UNLOGGED" not in sql(url)
    with pytest.raises(ValueError, match="durable, volatile, not 'forever'"):
        sql(url, durability="forever")


# --- the identity of a set of tables -----------------------------------------------------------

IDENTITY = "SELECT identity FROM dblock_schema"


def identity(url: str) -> str:
    ((found,),) = execute(url, IDENTITY)
    assert re.fullmatch("[0-9a-f]{32}", found)
    return str(found)


@pytest.mark.parametrize("kind", KINDS)
def test_an_identity_is_made_once(new_database: NewDatabase, kind: str) -> None:
    url, other = (new_database(kind).url for _ in range(2))
    upgrade(url, revision="dblock_0008")
    upgrade(url)
    upgrade(other)
    made = identity(url)
    assert made != identity(other)
    upgrade(url)
    assert identity(url) == made
    upgrade(url, prefix="beside_")
    assert execute(url, IDENTITY.replace("dblock_", "beside_")) != [(made,)]


@pytest.mark.parametrize("kind", KINDS)
def test_printed_statements_make_an_identity_of_each_database(
    new_database: NewDatabase, kind: str
) -> None:
    first, second = (new_database(kind).url for _ in range(2))
    printed = statements(create_engine(first).dialect.name, HEAD)
    for url in (first, second):
        execute(url, *printed)
    assert identity(first) != identity(second)


def test_code_that_knows_no_identity_works_on(database: Database) -> None:
    """It reads all columns of the table: the first two are what they were."""
    upgrade(database.url)
    ((version, revision, *_),) = execute(database.url, "SELECT * FROM dblock_schema")
    assert (version, revision) == (3, SCHEMA_VERSION)
