"""Servers that replicate want a primary key in each table, and some refuse tables without."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.management import call_command
from sqlalchemy import MetaData, create_engine, inspect

from dblock import Locks
from dblock.schema import downgrade, tables, upgrade
from tests.conftest import SERVERS, Database, NewDatabase, OwnServers
from tests.contrib.django.conftest import Site, of
from tests.contrib.django.conftest import site as site
from tests.servers import FAMILY, MariaDB, MySQL, OwnServer, execute

#: Servers that take no table without one.
FORCED: dict[str, Callable[[], OwnServer]] = {
    "mariadb": lambda: MariaDB(options=["--innodb-force-primary-key=ON"]),
    "mysql": lambda: MySQL(options=["--sql-require-primary-key=ON"]),
}
# What dblock_0001 made before it had a key.
WITHOUT = {
    "postgresql": "ALTER TABLE dblock_schema DROP CONSTRAINT dblock_schema_pkey",
    **dict.fromkeys(FAMILY, "ALTER TABLE dblock_schema DROP PRIMARY KEY"),
}


@pytest.fixture(params=SERVERS)
def strict(
    request: pytest.FixtureRequest, new_database: NewDatabase, own_server: OwnServers
) -> Database:
    """A database that refuses tables without a primary key, or changes to those."""
    if request.param in FORCED:
        return new_database(request.param, server=own_server(FORCED[request.param]))
    database = new_database("postgresql")
    execute(database.url, "CREATE PUBLICATION everything FOR ALL TABLES")
    return database


def test_the_whole_schema_where_a_key_is_wanted(strict: Database, site: Site) -> None:
    upgrade(strict.url)
    with Locks(strict.url) as locks, locks.lease("a", wait=0):
        pass
    downgrade(strict.url, revision="dblock_0001")
    upgrade(strict.url)
    if strict.kind == "postgresql":
        upgrade(strict.url, durability="volatile")
        upgrade(strict.url, durability="durable")
    downgrade(strict.url)
    execute(strict.url, "DROP TABLE dblock_version")

    metadata = MetaData()
    made = tables(metadata)
    engine = create_engine(strict.url)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(made["schema"].insert().values(version=1))
        connection.execute(made["schema"].update().values(revision=1))
    metadata.drop_all(engine)
    engine.dispose()

    site.use(**of(strict))
    call_command("migrate", "dblock", verbosity=0)
    call_command("migrate", "dblock", "zero", verbosity=0)
    assert not any(name.startswith("dblock_") for name in without_key(strict.url)[1])


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", ["dblock_0001", "dblock_0003", "dblock_0006", "dblock_0008"])
def test_an_older_table_gets_its_key(new_database: NewDatabase, kind: str, revision: str) -> None:
    """Before anything else is changed in it, for there may be a publication meanwhile."""
    url = new_database(kind).url
    upgrade(url, revision=revision)
    execute(url, WITHOUT[kind])
    if kind == "postgresql":
        execute(url, "CREATE PUBLICATION everything FOR ALL TABLES")
    assert without_key(url)[0] == ["dblock_schema"]
    upgrade(url)
    assert without_key(url)[0] == []


def test_every_table_has_a_primary_key(database: Database) -> None:
    upgrade(database.url)
    assert "dblock_version" in without_key(database.url)[1]
    assert without_key(database.url)[0] == []


def without_key(url: str) -> tuple[list[str], list[str]]:
    """Return the tables without a primary key, and all."""
    engine = create_engine(url)
    look = inspect(engine)
    names = sorted(look.get_table_names())
    found = [name for name in names if not look.get_pk_constraint(name)["constrained_columns"]]
    engine.dispose()
    return found, names
