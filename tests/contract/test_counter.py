"""Counters in the user's tables: never below the floor, never lost, never applied twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from tenacity import stop_after_attempt, wait_none

from dblock import Conflict, Counter, DeadlockDetected, Locks, NotEnough, RetryPolicy
from tests.conftest import Database
from tests.support import (
    BORROWED,
    LONG,
    Threads,
    attribute,
    borrowed,
    new_session,
    told_to_retry,
)
from tests.worlds.world import World


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "product"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stock: Mapped[int]
    version: Mapped[int] = mapped_column(default=0)


@pytest.fixture
def stock(locks: Locks, engine: Engine) -> Counter:
    """Of products 1 and 2, with 10 of each."""
    Base.metadata.create_all(engine)
    with new_session(engine) as session:
        session.add_all([Product(id=1, stock=10), Product(id=2, stock=10)])
        session.commit()
    return locks.counter(Product.stock, key=Product.id)


def product_one(session: Session) -> Product:
    product = session.get(Product, 1)
    assert product is not None
    return product


def left(engine: Engine, stock: Counter, key: int = 1) -> int:
    with engine.connect() as connection:
        return int(stock.value(connection, key))


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
                stock.add(on, 1, worse)
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


def test_update_behind_another(locks: Locks, stock: Counter, engine: Engine) -> None:
    """What was read is no longer so when it is to be written: it is read again, or refused."""
    seen: list[int] = []

    def change(value: int) -> int:
        seen.append(value)
        if len(seen) == 1:
            with new_session(engine) as other:
                stock.take(other, 1, 4)
                other.commit()
        return value + 100

    with new_session(engine) as session:
        try:
            assert stock.update(session, 1, change) == 106
        except Conflict as conflict:  # a snapshot as old as the first read
            told_to_retry(conflict)
            session.rollback()
            assert stock.update(session, 1, change) == 106
        session.commit()
    assert seen[0] == 10
    assert seen[-1] == 6
    assert left(engine, stock) == 106


def test_update_keeps_others_off_after_a_lost_race(
    locks: Locks, stock: Counter, engine: Engine
) -> None:
    tries = 0

    def change(value: int) -> int:
        nonlocal tries
        tries += 1
        with new_session(engine) as other:
            if tries == 1:
                stock.take(other, 1, 4)
                other.commit()
            elif not locks.dialect.one_writer:  # there is no lock for readers
                with pytest.raises(OperationalError):
                    other.get(Product, 1, with_for_update={"nowait": True})
        return value + 100

    with new_session(engine) as session:
        try:
            assert stock.update(session, 1, change) == 106
            assert tries == 2
            session.commit()
            assert stock.update(session, 1, change) == 206  # nor does the next one race
        except Conflict as conflict:  # a snapshot as old as the first read
            told_to_retry(conflict)


def test_update_gives_up(locks: Locks, stock: Counter, engine: Engine) -> None:
    retry = RetryPolicy(wait=wait_none(), stop=stop_after_attempt(1))
    impatient = locks.counter(Product.stock, key=Product.id, retry=retry)

    def change(value: int) -> int:
        with new_session(engine) as other:
            stock.take(other, 1)
            other.commit()
        return value + 100

    with new_session(engine) as session, pytest.raises(Conflict, match="product"):
        impatient.update(session, 1, change)
    assert left(engine, stock) == 9


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


def test_one_key_at_once(stock: Counter, engine: Engine, threads: Threads) -> None:
    """The second waits for the end of the first one's transaction, and then knows."""
    took = threading.Event()

    def second() -> bool:
        with new_session(engine) as session:
            took.wait(LONG)
            done = stock.take(session, 1, 3, idempotency_key="order:1")
            session.commit()
            return done

    repeating = threads.start(second)
    with new_session(engine) as session:
        assert stock.take(session, 1, 3, idempotency_key="order:1")
        took.set()
        threading.Event().wait(0.2)
        assert not repeating.done()
        session.commit()
    assert repeating.result(LONG) is False
    assert left(engine, stock) == 7


def test_never_oversold(stock: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        stock.add(session, 1, 90)
        session.commit()
    workers, taken, together = 8, [0] * 8, threading.Barrier(8)
    rests: list[object] = []
    pool = Threads()

    def work(number: int) -> None:
        together.wait(LONG)
        while True:
            with new_session(engine) as session:
                try:
                    stock.take(session, 1, 3)
                except NotEnough as error:
                    rests.append(error.available)
                    return
                session.commit()
                taken[number] += 3

    try:
        for number in range(workers):
            pool.start(work, number)
        pool.join()
    finally:
        pool.close()
    assert sum(taken) == 99
    assert rests == [1] * workers
    assert left(engine, stock) == 1


def test_an_old_snapshot(
    locks: Locks, stock: Counter, engine: Engine, db: Database, world: World
) -> None:
    if locks.dialect.one_writer:
        strict = world.engine(db.url)
    else:
        strict = world.engine(db.url, isolation_level="REPEATABLE READ")
    with strict.connect() as connection:
        if locks.dialect.one_writer:
            connection.exec_driver_sql("BEGIN")  # which the driver leaves to the first write
        assert stock.value(connection, 1) == 10
        with new_session(engine) as other:
            stock.take(other, 1, 4)
            other.commit()
        try:
            assert stock.take(connection, 1, 6)
        except Conflict as conflict:
            assert locks.dialect.failure_aborts or locks.dialect.one_writer
            told_to_retry(conflict)
            connection.rollback()
            assert stock.take(connection, 1, 6)
        connection.commit()
    strict.dispose()
    assert left(engine, stock) == 0


def test_a_cycle(locks: Locks, stock: Counter, engine: Engine, threads: Threads) -> None:
    """Two take the same two in opposite orders: one is told, or it waits its turn."""
    together = threading.Barrier(2)
    one_is_through = threading.Event()

    def take(first: int, second: int) -> int:
        for tries in range(1, 10):
            with new_session(engine) as session:
                try:
                    stock.take(session, first)
                    if tries == 1 and not locks.dialect.one_writer:
                        together.wait(LONG)
                    stock.take(session, second)
                    session.commit()
                except (DeadlockDetected, Conflict) as error:
                    told_to_retry(error)
                else:
                    one_is_through.set()
                    return tries
            # At once, it could take its first row again before the other is woken: a new cycle.
            assert one_is_through.wait(LONG)
        raise AssertionError("never came through")

    taking = [threads.start(take, 1, 2), threads.start(take, 2, 1)]
    tries = sorted(done.result(LONG) for done in taking)
    assert tries == ([1, 1] if locks.dialect.one_writer else [1, 2])
    assert (left(engine, stock), left(engine, stock, 2)) == (8, 8)


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
