"""Somebody locks dblock's tables on MariaDB or MySQL: nothing is granted, and then all goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from dblock import OutcomeUnknown, QueryTimeout, Timeouts
from tests.conftest import NewDatabase
from tests.support import LONG
from tests.worlds.portal import WORLDS
from tests.worlds.world import World

#: No statement waits for longer, so that they all end while the tables are locked.
IMPATIENT = Timeouts(connect=5, query=0.5, socket=LONG)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with WORLDS[request.param]() as made:
        yield made


@pytest.mark.parametrize(
    ("lock", "told"),
    [
        # The rows can still be read, so dblock finds out that nothing was granted.
        ("LOCK TABLES dblock_lock READ", QueryTimeout),
        ("FLUSH TABLES WITH READ LOCK", QueryTimeout),
        # They cannot: the statement may have done its work just before, for all that can be known.
        ("LOCK TABLES dblock_lock WRITE", OutcomeUnknown),
    ],
)
def test_nothing_is_granted_while_the_tables_are_locked(
    new_database: NewDatabase, world: World, lock: str, told: type[Exception]
) -> None:
    url = new_database("mariadb", migrated=True).url
    engine = create_engine(url, poolclass=NullPool)
    with world.locks(url, timeouts=IMPATIENT) as locks:
        with locks.lease("before", ttl=LONG), engine.connect() as operator:
            operator.execute(text(lock))
            with pytest.raises(told):
                locks.lease("report", ttl=LONG).acquire(blocking=False)
            operator.execute(text("UNLOCK TABLES"))
            with locks.lease("report", ttl=LONG, wait=LONG):
                pass
        assert locks.list() == []
