"""Counters in the user's tables: never below the floor, never lost, never applied twice."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from dblock import Counter, Locks, NotEnough
from tests.contract.shop import Product, left
from tests.support import (
    BORROWED,
    attribute,
    borrowed,
    new_session,
)


def product_one(session: Session) -> Product:
    product = session.get(Product, 1)
    assert product is not None
    return product


@pytest.mark.parametrize("how", BORROWED)
def test_take_and_add(stock: Counter, engine: Engine, how: str) -> None:
    with borrowed(engine, how) as on:
        assert stock.take(on, 1, 3) is True
        assert stock.take(on, 1) is True
        assert stock.value(on, 1) == 6
        assert left(engine, stock) == 10  # it commits with the user's transaction
        on.commit()
        assert stock.add(on, 1, 4) is True
        assert stock.add(on, 1) is True
        on.commit()
        assert left(engine, stock) == 11
        assert stock.take(on, 1, 11)
        on.rollback()
    assert (left(engine, stock), left(engine, stock, 2)) == (11, 10)


def test_not_enough(stock: Counter, engine: Engine) -> None:
    with borrowed(engine, "session") as on:
        stock.take(on, 1, 7)
        with pytest.raises(NotEnough, match=r"id 1 is 3: .* leave less than 0") as caught:
            stock.take(on, 1, 4)
        assert caught.value.available == 3
        assert stock.take(on, 1, 3)  # the transaction lives on
        on.commit()
    assert left(engine, stock) == 0


def test_the_floor(locks: Locks, stock: Counter, engine: Engine) -> None:
    reserved = locks.counter(Product.stock, key=Product.id, floor=8)
    bottomless = locks.counter(Product.stock, key=Product.id, floor=None)
    with borrowed(engine, "session") as on:
        with pytest.raises(NotEnough) as caught:
            reserved.take(on, 1, 3)
        assert caught.value.available == 2
        assert reserved.take(on, 1, 2)
        assert bottomless.take(on, 1, 100)
        assert bottomless.value(on, 1) == -92
        on.commit()


def test_no_such_row(stock: Counter, engine: Engine) -> None:
    calls: list[Callable[[Session], Any]] = [
        lambda on: stock.take(on, 99),
        lambda on: stock.add(on, 99),
        lambda on: stock.take(on, 99, idempotency_key="order:1"),
        lambda on: stock.value(on, 99),
        lambda on: stock.update(on, 99, lambda value: value),
    ]
    for call in calls:
        with new_session(engine) as session, pytest.raises(LookupError, match="no row with id 99"):
            call(session)
    with new_session(engine) as session:
        assert stock.compare_and_update(session, 99, seen=1, new=2) is False


def test_amounts(stock: Counter, engine: Engine) -> None:
    with borrowed(engine, "session") as on:
        for bad in (0, -1, float("nan"), float("inf"), Decimal("NaN"), Decimal("Infinity")):
            with pytest.raises(ValueError, match=r"is above 0|is finite"):
                stock.take(on, 1, bad)
        for worse in ("1", None, True):
            with pytest.raises(TypeError, match="is a number"):
                stock.add(on, 1, worse)  # type: ignore[arg-type]
        on.rollback()
    assert left(engine, stock) == 10


def test_compare_and_update_by_value(stock: Counter, engine: Engine) -> None:
    with borrowed(engine, "session") as on:
        assert stock.compare_and_update(on, 1, seen=10, new=5) is True
        assert stock.compare_and_update(on, 1, seen=10, new=4) is False
        assert stock.compare_and_update(on, 1, seen=5, new=5) is True  # matched, not changed
        on.commit()
    assert left(engine, stock) == 5


def test_compare_and_update_by_version(locks: Locks, stock: Counter, engine: Engine) -> None:
    """There and back goes unnoticed by value, and not by version."""
    versioned = locks.counter(Product.stock, key=Product.id, version=Product.version)
    with new_session(engine) as session:
        seen = product_one(session).version
        versioned.take(session, 1, 3)
        versioned.add(session, 1, 3)
        session.commit()
        product = product_one(session)
        assert (product.stock, product.version) == (10, seen + 2)
        assert versioned.compare_and_update(session, 1, seen=seen, new=1) is False
        assert versioned.compare_and_update(session, 1, seen=seen + 2, new=1) is True
        assert attribute(session, product, "stock") == 1
        assert product.version == seen + 3
        session.commit()


def test_update(locks: Locks, stock: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        assert stock.update(session, 1, lambda value: value * 2) == 20
        session.commit()
        versioned = locks.counter(Product.stock, key=Product.id, version=Product.version)
        assert versioned.update(session, 1, lambda value: value - 1) == 19
        assert product_one(session).version == 1
        session.commit()
    assert left(engine, stock) == 19


def test_the_orm_sees_the_new_value(stock: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        product = product_one(session)
        assert product.stock == 10
        stock.take(session, 1, 3)
        assert attribute(session, product, "stock") == 7
        stock.update(session, 1, lambda value: value + 1)
        assert attribute(session, product, "stock") == 8
        stock.compare_and_update(session, 1, seen=8, new=2)
        assert attribute(session, product, "stock") == 2
        session.commit()
        assert attribute(session, product, "stock") == 2


def test_what_the_orm_has_not_written_yet(stock: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        new = Product(id=3, stock=5)
        session.add(new)
        assert stock.take(session, 3, 2)
        assert attribute(session, new, "stock") == 3
        session.commit()
    assert left(engine, stock, 3) == 3


def test_an_idempotency_key(stock: Counter, engine: Engine) -> None:
    def take() -> bool:
        with new_session(engine) as session:
            done = stock.take(session, 1, 3, idempotency_key="order:1")
            session.commit()
            return done

    with new_session(engine) as session:
        assert stock.take(session, 1, 3, idempotency_key="order:1") is True
        assert stock.take(session, 1, 3, idempotency_key="order:1") is False
        session.rollback()  # and the key is free again
    assert take() is True
    assert take() is False
    assert left(engine, stock) == 7
    with new_session(engine) as session:
        for key in ("order:2", "ORDER:2", "order:2 "):  # keys are as exact as names
            assert stock.add(session, 1, idempotency_key=key) is True
        session.commit()
    assert left(engine, stock) == 10


def test_not_enough_leaves_no_key(stock: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        with pytest.raises(NotEnough):
            stock.take(session, 1, 11, idempotency_key="order:1")
        stock.add(session, 1, 5)
        assert stock.take(session, 1, 11, idempotency_key="order:1") is True
        session.commit()
    assert left(engine, stock) == 4


def test_in_autocommit(stock: Counter, engine: Engine) -> None:
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        assert stock.take(connection, 1, 3)
        assert left(engine, stock) == 7
        assert stock.compare_and_update(connection, 1, seen=7, new=8)
        with pytest.raises(NotEnough):
            stock.take(connection, 1, 9)
        with pytest.raises(ValueError, match="autocommit"):
            stock.take(connection, 1, idempotency_key="order:1")
    assert left(engine, stock) == 8
