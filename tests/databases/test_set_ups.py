"""Transactions of the user's that are set up in other ways than a plain one."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from dblock import Locks
from tests.conftest import NewDatabase
from tests.support import LONG


def is_free(others: Locks) -> bool:
    lease = others.lease("a")
    if not lease.acquire(blocking=False):
        return False
    lease.release()
    return True


@pytest.mark.parametrize("db", ["postgresql", "mariadb"], indirect=True)
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


def test_a_session_in_two_phases(new_database: NewDatabase) -> None:
    database = new_database("mariadb", migrated=True)
    engine = create_engine(database.url)
    with Locks(database.url) as locks, Locks(database.url) as others:
        with Session(engine, twophase=True) as session:
            with locks.row("a", on=session, wait=0):
                pass
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
