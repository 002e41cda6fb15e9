"""Statements on the driver's cursor: who watches SQLAlchemy sees them all the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import InvalidRequestError

from dblock import Counter, Locks, NotEnough, Unavailable
from tests.conftest import BORROWED, KINDS, Database, lent
from tests.contract.shop import Base, Product, left
from tests.support import new_session, statements_seen, without_comments

pytestmark = pytest.mark.parametrize("db", [*KINDS, *BORROWED["threads"]], indirect=True)
db = pytest.fixture(lent)


@pytest.fixture
def engine(db: Database) -> Iterator[Engine]:
    made = create_engine(db.users_url)
    yield made
    made.dispose()


@pytest.fixture
def stock(db: Database, engine: Engine) -> Iterator[Counter]:
    """Of product 1, with 10."""
    Base.metadata.create_all(engine)
    with new_session(engine) as session:
        session.add(Product(id=1, stock=10))
        session.commit()
    with Locks(db.url) as locks:
        yield locks.counter(Product.stock, key=Product.id)


def test_the_log_has_them(stock: Counter, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with engine.connect() as connection:
        stock.take(connection, 1)
        connection.rollback()
    with (
        caplog.at_level(logging.INFO, "sqlalchemy.engine.Engine"),
        engine.connect() as connection,
    ):
        stock.take(connection, 1)
        connection.commit()
    assert "UPDATE product" in caplog.text
    assert left(engine, stock) == 9


def test_a_listener_sees_them_and_may_change_them(stock: Counter, engine: Engine) -> None:
    """Also one that comes when statements were sent without it."""
    with engine.connect() as connection:
        stock.take(connection, 1)
        with statements_seen(" -- mine") as seen:
            stock.take(connection, 1)
            stock.value(connection, 1)
        told = [without_comments(statement) for statement in seen]
        assert [statement.split()[0] for statement in told] == ["UPDATE", "SELECT"]
        connection.commit()
    assert left(engine, stock) == 8


def test_a_row_lock_is_seen_too(db: Database, engine: Engine) -> None:
    said: list[str] = []

    def listen(connection: Any, cursor: Any, statement: str, *rest: object) -> None:
        said.append(statement)

    with Locks(db.url) as locks, engine.connect() as connection:
        locks.row("order", on=connection).acquire()
        connection.commit()
        event.listen(engine, "before_cursor_execute", listen)
        locks.row("order", on=connection).acquire()
        connection.commit()
    assert any("dblock_lock" in statement for statement in said)


def test_in_a_savepoint(stock: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        assert stock.take(session, 1)
        savepoint = session.begin_nested()
        assert stock.take(session, 1, 5)
        savepoint.rollback()
        with pytest.raises(NotEnough):
            stock.take(session, 1, 10)
        session.commit()
    assert left(engine, stock) == 9


def test_a_transaction_that_is_over_within_its_block(stock: Counter, engine: Engine) -> None:
    with engine.begin() as connection:
        stock.take(connection, 1)
        transaction = connection.get_transaction()
        assert transaction is not None
        transaction.rollback()
        with pytest.raises(InvalidRequestError, match="closed transaction"):
            stock.take(connection, 1)
    assert left(engine, stock) == 10


def test_a_server_that_went_away_empties_the_pool(
    stock: Counter, engine: Engine, db: Database
) -> None:
    """As it does when a statement of SQLAlchemy's own finds out."""
    if db.kind != "postgresql":
        return

    def pid(connection: Connection) -> int:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())

    with engine.connect() as idle, engine.connect() as connection:
        stock.take(connection, 1)
        connection.commit()
        old, end = pid(idle), text("SELECT pg_terminate_backend(:pid)")
        victim = pid(connection)
        stock.take(connection, 1)
        idle.execute(end, {"pid": victim})
        with pytest.raises(Unavailable):
            stock.take(connection, 1)
        assert connection.invalidated
    with engine.connect() as another, engine.connect() as one_more:
        assert old not in (pid(another), pid(one_more))
    assert left(engine, stock) == 9
