"""A counter that says True has counted: what a column cannot hold exactly is refused before."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import (
    Float,
    Integer,
    Numeric,
)
from sqlalchemy.engine import Engine
from sqlalchemy.types import TypeDecorator, TypeEngine
from tenacity import stop_after_attempt

from dblock import Locks, NotEnough, RetryPolicy, Unsupported
from tests.conftest import Database
from tests.contract.counting import KEY, Change, made, now, refused
from tests.servers import FAMILY
from tests.support import borrowed, statements_seen

# --- amounts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0.4, 2.5, Decimal("2.5"), Decimal("0.001")])
def test_a_fraction_of_an_integer(
    locks: Locks, db: Database, engine: Engine, amount: int | float | Decimal
) -> None:
    table = made(db, Integer, 10)
    counter = locks.counter(table.c.n, key=table.c.id)
    calls: list[Change] = [
        lambda on: counter.take(on, 1, amount, idempotency_key=KEY),
        lambda on: counter.add(on, 1, amount),
        lambda on: counter.compare_and_update(on, 1, seen=10, new=amount),
        lambda on: counter.compare_and_update(on, 1, seen=amount, new=10),
        lambda on: counter.update(on, 1, lambda value: amount),
    ]
    for number, call in enumerate(calls):
        with borrowed(engine, "connection") as on:
            with pytest.raises(ValueError, match="has no fraction in INTEGER"):
                call(on)
            on.commit()
            if number == 0:
                assert counter.take(on, 1, 1, idempotency_key=KEY) is True
                on.rollback()
            assert counter.value(on, 1) == 10


def test_whole_numbers_of_other_types(locks: Locks, db: Database, engine: Engine) -> None:
    table = made(db, Integer, 10)
    counter = locks.counter(table.c.n, key=table.c.id, floor=Decimal("1.0"))
    assert now(engine, counter, lambda on: counter.take(on, 1, 2.0)) == 8
    left = now(engine, counter, lambda on: counter.take(on, 1, Decimal("7.00")))
    assert left == 1
    assert isinstance(left, int)


def test_decimals_that_a_numeric_would_round(locks: Locks, db: Database, engine: Engine) -> None:
    table = made(db, Numeric(10, 2), "0.30")
    money = locks.counter(table.c.n, key=table.c.id, floor=None)
    for amount in (Decimal("0.001"), 0.1 + 0.2, Decimal("1e-999999")):
        with borrowed(engine, "connection") as on:
            with pytest.raises(ValueError, match="has 2 decimals at most in"):
                money.take(on, 1, amount)
            assert money.value(on, 1) == Decimal("0.30")
    for left in ("0.20", "0.10", "0.00", "-0.10"):
        assert now(engine, money, lambda on: money.take(on, 1, 0.1)) == Decimal(left)
    seen, new = Decimal("-0.10"), Decimal("0.20")
    compare = money.compare_and_update
    assert now(engine, money, lambda on: compare(on, 1, seen=seen, new=new)) == new
    with borrowed(engine, "connection") as on:
        assert compare(on, 1, seen=seen, new=new) is False
        assert money.update(on, 1, lambda value: value * 3) == Decimal("0.60")
        assert money.update(on, 1, lambda value: value - Decimal("0.3")) == Decimal("0.30")


def test_the_floor_is_exact(locks: Locks, db: Database, engine: Engine) -> None:
    """Thirty cents are there, by doubles or not: three times ten can be taken, and no fourth."""
    table = made(db, Numeric(10, 2), "0.30")
    money = locks.counter(table.c.n, key=table.c.id)
    for _ in range(3):
        now(engine, money, lambda on: money.take(on, 1, Decimal("0.10")))
    with borrowed(engine, "connection") as on, pytest.raises(NotEnough) as caught:
        money.take(on, 1, Decimal("0.01"))
    assert caught.value.available == 0


def test_the_floor_is_for_those_who_take(locks: Locks, db: Database, engine: Engine) -> None:
    table = made(db, Integer, 2)
    counter = locks.counter(table.c.n, key=table.c.id, floor=8)
    assert now(engine, counter, lambda on: counter.add(on, 1, 3)) == 5
    with borrowed(engine, "connection") as on, pytest.raises(NotEnough):
        counter.take(on, 1)
    for floor in ("8", True):
        with pytest.raises(TypeError, match="floor is a number"):
            locks.counter(table.c.n, key=table.c.id, floor=floor)  # type: ignore[arg-type]
    with borrowed(engine, "connection") as on, pytest.raises(ValueError, match="floor has no frac"):
        locks.counter(table.c.n, key=table.c.id, floor=0.5).take(on, 1)


REALLY = [
    ("INTEGER", Numeric(10, 2), Decimal("0.5"), ValueError),
    ("NUMERIC(10, 2)", Numeric(10, 4), Decimal("0.001"), ValueError),
    ("NUMERIC(4, 2)", Numeric(10, 2), 100, OverflowError),
    ("SMALLINT", Integer, 40_000, OverflowError),
    ("SMALLINT", Integer, 32_760, OverflowError),
]


@pytest.mark.parametrize(("really", "said", "amount", "error"), REALLY)
def test_a_column_that_is_not_what_the_model_says(
    locks: Locks,
    db: Database,
    engine: Engine,
    really: str,
    said: TypeEngine[Any],
    amount: int | float | Decimal,
    error: type[Exception],
) -> None:
    if db.kind == "sqlite" and really == "SMALLINT":
        error, amount = OverflowError, 2**63 - 5  # where all integers are of one size
    table = made(db, said, 10, really=really)
    counter = locks.counter(table.c.n, key=table.c.id)
    refused(engine, counter, error, lambda on: counter.add(on, 1, amount, idempotency_key=KEY))


DOMAINS = [("SMALLINT", Integer(), 40_000, OverflowError), *REALLY[:1], *REALLY[3:]]


@pytest.mark.parametrize(("really", "said", "amount", "error"), DOMAINS)
def test_a_domain_of_a_domain(
    locks: Locks,
    db: Database,
    engine: Engine,
    really: str,
    said: TypeEngine[Any],
    amount: int | float | Decimal,
    error: type[Exception],
) -> None:
    """It counts as what it is of. Only PostgreSQL has any."""
    if db.kind != "postgresql":
        return
    with engine.begin() as connection:
        for name, base in (("inner", really), ("outer", '"inner"')):
            connection.exec_driver_sql(f'DROP DOMAIN IF EXISTS "{name}" CASCADE')
            connection.exec_driver_sql(f'CREATE DOMAIN "{name}" AS {base}')
    table = made(db, said, 10, really='"outer"')
    counter = locks.counter(table.c.n, key=table.c.id)
    refused(engine, counter, error, lambda on: counter.add(on, 1, amount, idempotency_key=KEY))


@pytest.mark.parametrize(
    "said", [Numeric(20, 4, asdecimal=False), Float()], ids=["numeric", "float"]
)
@pytest.mark.parametrize("versioned", [False, True])
def test_a_value_that_the_model_rounds(
    locks: Locks, db: Database, engine: Engine, said: TypeEngine[Any], versioned: bool
) -> None:
    """What was read is compared with all its digits, of which a float has not so many."""
    if db.kind == "sqlite":  # which has no more of them itself
        return
    table = made(db, said, "1234567890123456.7891", really="NUMERIC(20, 4)")
    few = RetryPolicy(stop=stop_after_attempt(3))
    version = table.c.version if versioned else None
    counter = locks.counter(table.c.n, key=table.c.id, version=version, retry=few)
    with borrowed(engine, "connection") as on:
        assert counter.update(on, 1, lambda value: 5) == 5
        assert counter.value(on, 1) == 5


class Cents(TypeDecorator[Decimal]):
    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: object) -> Any:
        return None if value is None else value * 100

    def process_result_value(self, value: Any, dialect: object) -> Decimal | None:
        return None if value is None else Decimal(value) / 100


def test_a_type_of_the_users(locks: Locks, db: Database, engine: Engine) -> None:
    table = made(db, Cents, 1000)
    money = locks.counter(table.c.n, key=table.c.id)
    assert now(engine, money, lambda on: money.take(on, 1, Decimal("0.25"))) == Decimal("9.75")
    with borrowed(engine, "connection") as on:
        with pytest.raises(ValueError, match="no fraction"):
            money.take(on, 1, Decimal("0.001"))
        with pytest.raises(NotEnough) as caught:
            money.take(on, 1, 10)
        assert caught.value.available == Decimal("9.75")
        assert money.update(on, 1, lambda value: value + 1) == Decimal("10.75")
        assert money.value(on, 1) == Decimal("10.75")


def test_what_no_counter_counts_in(locks: Locks, db: Database, engine: Engine) -> None:
    table = made(db, Integer, "'10'", really="VARCHAR(10)")
    counter = locks.counter(table.c.n, key=table.c.id)
    with borrowed(engine, "connection") as on:
        with pytest.raises(Unsupported, match="a counter needs an integer column"):
            counter.take(on, 1, 1)
        assert locks.counter(table.c.version, key=table.c.id).add(on, 1) is True


# --- NULL --------------------------------------------------------------------------------------


@pytest.mark.parametrize("floor", [0, None])
def test_null_is_no_number(locks: Locks, db: Database, engine: Engine, floor: int | None) -> None:
    table = made(db, Integer, None)
    counter = locks.counter(table.c.n, key=table.c.id, floor=floor)
    versioned = locks.counter(table.c.n, key=table.c.id, version=table.c.version)
    calls: list[Change] = [
        lambda on: counter.take(on, 1, 1, idempotency_key=KEY),
        lambda on: counter.add(on, 1, 1, idempotency_key=KEY),
        lambda on: counter.update(on, 1, lambda value: 1),
        lambda on: versioned.update(on, 1, lambda value: 1),
    ]
    for call in calls:
        assert "is NULL" in refused(engine, counter, Unsupported, call)
    with borrowed(engine, "connection") as on:
        with pytest.raises(TypeError, match="the value that was seen is a number"):
            counter.compare_and_update(on, 1, seen=None, new=1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the new value is a number"):
            counter.compare_and_update(on, 1, seen=1, new=None)  # type: ignore[arg-type]
        assert locks.counter(table.c.version, key=table.c.id).add(on, 1, idempotency_key=KEY)


def test_a_version_that_is_null(locks: Locks, db: Database, engine: Engine) -> None:
    table = made(db, Integer, 10, version=None)
    plain = locks.counter(table.c.n, key=table.c.id)
    counter = locks.counter(table.c.n, key=table.c.id, version=table.c.version)
    calls: list[Change] = [
        lambda on: counter.take(on, 1, 1, idempotency_key=KEY),
        lambda on: counter.add(on, 1, 1, idempotency_key=KEY),
        lambda on: counter.update(on, 1, lambda value: 1),
    ]
    for call in calls:
        with borrowed(engine, "connection") as on:
            with pytest.raises(Unsupported, match=r"thing\.version of id 1 is NULL"):
                call(on)
            assert plain.take(on, 1, 1, idempotency_key=KEY) is True


# --- floating point ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["FLOAT", "REAL", "DOUBLE PRECISION"])
def test_floating_point(locks: Locks, db: Database, engine: Engine, kind: str) -> None:
    """0.1 is not what it was when it was read; nothing is tried again for ever for that."""
    table = made(db, Numeric(10, 2), 0.1, really=kind)
    counter = locks.counter(table.c.n, key=table.c.id)
    with borrowed(engine, "connection") as on:
        for call in (
            lambda: counter.update(on, 1, lambda value: value + 1),
            lambda: counter.compare_and_update(on, 1, seen=counter.value(on, 1), new=1),
        ):
            with pytest.raises(Unsupported, match="a version column, or make the column a NUMERIC"):
                call()
        assert counter.add(on, 1, 2.5) is True
        assert counter.take(on, 1, Decimal("0.5")) is True
        assert float(counter.value(on, 1)) == pytest.approx(2.1)
        with pytest.raises(NotEnough):
            counter.take(on, 1, 3)
        versioned = locks.counter(table.c.n, key=table.c.id, version=table.c.version)
        assert versioned.update(on, 1, lambda value: 0.7) == 0.7
        assert versioned.compare_and_update(on, 1, seen=1, new=0.1) is True
        assert versioned.compare_and_update(on, 1, seen=1, new=0.2) is False


@pytest.mark.parametrize("really", ["FLOAT(6, 2)", "DOUBLE(6, 2)", "DOUBLE(6, 2) UNSIGNED"])
def test_floating_point_with_decimals(
    locks: Locks, db: Database, engine: Engine, really: str
) -> None:
    """MariaDB rounds what is in there; no other has them."""
    if db.kind not in FAMILY:
        return
    table = made(db, Float, "0.30", really=really)
    counter = locks.counter(table.c.n, key=table.c.id)
    with borrowed(engine, "connection") as on:
        with pytest.raises(ValueError, match="has 2 decimals at most"):
            counter.add(on, 1, 0.001, idempotency_key=KEY)
        with pytest.raises(OverflowError, match=re.escape("would leave more than 9999.99")):
            counter.add(on, 1, 9999.7, idempotency_key=KEY)
        for left in (0.2, 0.1, 0.0):
            assert counter.take(on, 1, 0.1) is True
            assert counter.value(on, 1) == left
        with pytest.raises(NotEnough):
            counter.take(on, 1, 0.01, idempotency_key=KEY)
        assert counter.update(on, 1, lambda value: value + 9999.99) == 9999.99
        assert counter.compare_and_update(on, 1, seen=9999.99, new=0.29) is True
        assert counter.take(on, 1, 0.29, idempotency_key=KEY) is True
        assert counter.value(on, 1) == 0


def test_too_little_to_be_seen(locks: Locks, db: Database, engine: Engine) -> None:
    table = made(db, Float, "1e30")
    counter = locks.counter(table.c.n, key=table.c.id)
    for call in (counter.take, counter.add):
        with borrowed(engine, "connection") as on:
            with pytest.raises(OverflowError, match="would leave it as it is"):
                call(on, 1, 1, idempotency_key=KEY)
            before = counter.value(on, 1)
            assert call(on, 1, 1e29, idempotency_key=KEY) is True
            assert counter.value(on, 1) != before
    most = 3.2e38 if db.kind in FAMILY else 1.6e308
    with borrowed(engine, "connection") as on:
        assert counter.add(on, 1, most / 2) is True
        with pytest.raises(OverflowError, match="would leave more than"):
            counter.add(on, 1, most * 0.8)
        assert counter.take(on, 1, most / 4) is True


# --- what it costs -----------------------------------------------------------------------------


def test_the_column_is_looked_at_once(locks: Locks, db: Database, engine: Engine) -> None:
    table = made(db, Integer, 10)
    with borrowed(engine, "connection") as on:
        assert locks.counter(table.c.n, key=table.c.id).take(on, 1)
        with statements_seen() as seen:
            other = locks.counter(table.c.n, key=table.c.id)
            assert other.take(on, 1)
            assert other.add(on, 1)
    assert len(seen) == 2
