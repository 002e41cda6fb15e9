"""A database on PostgreSQL with the SQL functions, and a session that calls them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dblock.schema import upgrade
from tests.conftest import Database, NewDatabase
from tests.sql_functions.caller import Caller
from tests.worlds.portal import WORLDS
from tests.worlds.world import World


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with WORLDS[request.param]() as made:
        yield made


@pytest.fixture
def db(new_database: NewDatabase) -> Database:
    """One that nothing but the functions has used."""
    made = new_database("postgresql")
    upgrade(made.url, functions=True)
    return made


@pytest.fixture
def caller(db: Database) -> Iterator[Caller]:
    with Caller(db.url) as made:
        yield made


@pytest.fixture
def other(db: Database) -> Iterator[Caller]:
    with Caller(db.url) as made:
        yield made
