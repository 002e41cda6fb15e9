"""Transactions of the user's that are set up in other ways than a plain one."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from dblock import Locks
from tests.conftest import SERVERS, NewDatabase
from tests.servers import FAMILY, execute
from tests.support import LONG


def is_free(others: Locks) -> bool:
    lease = others.lease("a")
    if not lease.acquire(blocking=False):
        return False
    lease.release()
    return True


@pytest.mark.parametrize("db", SERVERS, indirect=True)
def test_two_phases(locks: Locks, others: Locks, engine: Engine) -> None:
    with locks.lease("guarding", ttl=LONG) as lease, engine.connect() as connection:
        transaction = connection.begin_twophase()
        with locks.row("a", on=connection, wait=0) as row, lease.guard(connection):
            assert row.held
        assert row.held
        assert not is_free(others)
        transaction.commit()
        assert not row.held
    assert is_free(others)


@pytest.mark.parametrize("kind", FAMILY)
def test_a_session_in_two_phases(new_database: NewDatabase, kind: str) -> None:
    """MySQL keeps a prepared transaction's row locks only if the transaction has changed a row."""
    database = new_database(kind, migrated=True)
    execute(database.url, "CREATE TABLE fact (id INTEGER PRIMARY KEY)")
    engine = create_engine(database.url)
    with Locks(database.url) as locks, Locks(database.url) as others:
        with Session(engine, twophase=True) as session:
            with locks.row("a", on=session, wait=0):
                session.execute(text("INSERT INTO fact VALUES (1)"))
            session.prepare()
            assert not is_free(others)
            session.commit()
        assert is_free(others)
    engine.dispose()


def test_savepoints(locks: Locks, others: Locks, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.execute(text("SELECT 1"))
        nested = session.begin_nested()
        with locks.row("a", on=session, wait=0):
            pass
        nested.commit()
        assert locks.row("a", on=session).acquire()
    assert is_free(others)
