"""An upgrade or a downgrade that is cut off after any statement can be repeated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import MetaData, NullPool, create_engine, inspect, text

from dblock import Locks, Unsupported
from dblock.protocol.schema_version import SCHEMA_VERSION
from dblock.schema import create, downgrade, drop, sql, tables, upgrade
from tests import cut_off
from tests.conftest import Database, NewDatabase
from tests.servers import execute

HEAD = f"dblock_{SCHEMA_VERSION:04d}"


# Where a transaction is undone whole, it does not matter much after which statement. MySQL takes
# four times as long as MariaDB to create a table.
STEP = {"postgresql": 11, "mariadb": 1, "mysql": 5, "sqlite": 11}
SELDOM = {"postgresql": 11, "mariadb": 4, "mysql": 17, "sqlite": 11}

# Each runs the whole schema up and down dozens of times.
pytestmark = pytest.mark.timeout(900)


def names(url: str) -> set[str]:
    engine = create_engine(url)
    try:
        return set(inspect(engine).get_table_names()) - {"dblock_version"}
    finally:
        engine.dispose()


def check(url: str) -> None:
    """The tables have all columns of the newest revision, and work."""
    engine = create_engine(url)
    with engine.connect() as connection:
        for table in tables(MetaData()).values():
            found = connection.execute(text(f"SELECT * FROM {table.name} WHERE 1 = 0"))
            assert set(found.keys()) == set(table.columns.keys())
    engine.dispose()
    ((version, revision, identity),) = execute(url, "SELECT * FROM dblock_schema")
    assert (version, revision, len(identity)) == (3, SCHEMA_VERSION, 32)
    with Locks(url) as locks, locks.lease("a", wait=0):
        pass


@pytest.mark.parametrize("cut", ["created", "dropped"])
def test_a_revision_without_transactions(database: Database, cut: str) -> None:
    """As in a user's own history, where that does not make one of a migration."""
    engine = create_engine(database.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)

    def run(step: Callable[..., None]) -> None:
        with engine.connect() as connection:
            step(Operations(MigrationContext.configure(connection)), HEAD)

    def there_and_back() -> None:
        if cut == "created":
            run(create)
            check(database.url)
        run(drop)
        assert names(database.url) == set()
        if cut == "dropped":
            run(create)
            check(database.url)

    if cut == "dropped":
        run(create)
    step = create if cut == "created" else drop
    every = {"mariadb": 1, "mysql": 5}.get(database.kind, 3)
    assert cut_off.everywhere(lambda: run(step), there_and_back, step=every) > SCHEMA_VERSION


def test_an_upgrade_is_repeated(database: Database) -> None:
    def upgraded() -> None:
        upgrade(database.url)
        check(database.url)
        downgrade(database.url)
        assert names(database.url) == set()

    step = STEP[database.kind]
    number = cut_off.everywhere(lambda: upgrade(database.url), upgraded, step=step)
    assert number > SCHEMA_VERSION


def test_a_downgrade_is_repeated(database: Database) -> None:
    def downgraded() -> None:
        downgrade(database.url)
        assert names(database.url) == set()
        upgrade(database.url)
        check(database.url)

    upgrade(database.url)
    step = STEP[database.kind]
    number = cut_off.everywhere(lambda: downgrade(database.url), downgraded, step=step)
    assert number > SCHEMA_VERSION


def test_an_upgrade_after_a_downgrade_that_was_cut_off(database: Database) -> None:
    """It brings back what is gone, though Alembic has it on record."""

    def brought_back() -> None:
        upgrade(database.url)
        check(database.url)

    upgrade(database.url)
    cut_off.everywhere(lambda: downgrade(database.url), brought_back, step=SELDOM[database.kind])


def test_a_downgrade_after_an_upgrade_that_was_cut_off(database: Database) -> None:
    """It says what it found, and leaves nothing."""

    def dropped() -> None:
        there = names(database.url)
        done = downgrade(database.url)
        assert set(done.dropped) == there
        said = str(done)
        assert "an upgrade that was cut off" in said if there and not done.before else True
        assert names(database.url) == set()
        assert str(downgrade(database.url)) == "dblock has no tables here"

    cut_off.everywhere(lambda: upgrade(database.url), dropped, step=SELDOM[database.kind])


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "mysql", "sqlite"])
def test_printed_statements_are_run_again(new_database: NewDatabase, kind: str) -> None:
    """From any one on; and over tables that are newer than the first of them."""
    url = new_database(kind).url
    statements = [one for one in sql(url).split(";\n\n") if one]
    transactional = kind not in ("mariadb", "mysql")
    for number in range(1, len(statements) + 1):
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        for part in (statements[:number], statements):
            if transactional and part is not statements:
                continue  # nothing is left of it
            with engine.connect() as connection:
                for statement in part:
                    connection.exec_driver_sql(statement)
        engine.dispose()
        if transactional:
            break
    check(url)
    assert str(upgrade(url)) == f"already at revision {HEAD}"


def test_a_table_of_another(database: Database) -> None:
    """It is not taken for one that an upgrade has left."""
    upgrade(database.url, revision="dblock_0004")
    execute(database.url, "CREATE TABLE dblock_once (page INTEGER)")
    with pytest.raises(Unsupported, match=r"but is not dblock's: .*idempotency_key"):
        upgrade(database.url)
    execute(database.url, "DROP TABLE dblock_once")
    upgrade(database.url)
    check(database.url)


def test_a_downgrade_says_what_it_did(database: Database) -> None:
    upgrade(database.url)
    done = downgrade(database.url, revision="dblock_0008")
    assert str(done) == f"downgraded from revision {HEAD} to dblock_0008"
    assert str(downgrade(database.url, revision="dblock_0008")) == "already at revision dblock_0008"
    assert str(downgrade(database.url)).startswith("dropped dblock_lock, ")
