"""A counter in several rows: as many change it at once, and it is as exact as in a single one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from typing import Any, cast

import pytest
from sqlalchemy import (
    Column,
    Float,
    Integer,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    create_engine,
    event,
    select,
    text,
)
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session
from sqlalchemy.types import TypeEngine

from dblock import Conflict, Counter, DeadlockDetected, Locks, NotEnough, Unsupported
from dblock.dialects.sqlite.adapter import busy_timeout
from tests.conftest import Database
from tests.contract.shop import Base, Product, Shelf, left
from tests.servers import FAMILY
from tests.support import (
    BORROWED,
    LONG,
    MOMENT,
    SECONDS,
    Threads,
    attribute,
    borrowed,
    new_session,
    statements_seen,
    told_to_retry,
)

STRIPES = 4


@pytest.fixture
def shelf(locks: Locks, engine: Engine) -> Counter:
    """Of product 1, with 10, spread over four rows."""
    Base.metadata.create_all(engine)
    counter = locks.counter(Shelf.stock, key=Shelf.product, stripes=STRIPES)
    with new_session(engine) as session:
        session.add(Shelf(product=1, stripe=0, stock=10))
        session.commit()
        counter.spread(session, 1)
        session.commit()
    return counter


def rows(engine: Engine, table: Any = Shelf.__table__) -> list[Any]:
    """What is in each stripe."""
    _, stripe, value = table.c
    with engine.connect() as connection:
        return list(connection.execute(select(value).order_by(stripe)).scalars())


def made(
    db: Database, kind: type[TypeEngine[Any]] | TypeEngine[Any], *values: object
) -> tuple[Column[Any], Column[Any]]:
    """A table with a row for each value; return the column and the key."""
    table = Table(
        "thing",
        MetaData(),
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("part", SmallInteger, primary_key=True, autoincrement=False),
        Column("n", kind),
    )
    engine = create_engine(db.url)
    with engine.begin() as connection:
        table.create(connection)
        for part, value in enumerate(values):
            connection.execute(table.insert().values(id=1, part=part, n=value))
    engine.dispose()
    return table.c.n, table.c.id


# --- as any counter ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", BORROWED)
def test_take_and_add(shelf: Counter, engine: Engine, how: str) -> None:
    assert rows(engine) == [3, 3, 2, 2]
    with borrowed(engine, how) as on:
        assert shelf.take(on, 1, 3) is True
        assert shelf.take(on, 1) is True
        assert shelf.value(on, 1) == 6
        assert left(engine, shelf) == 10  # it commits with the user's transaction
        on.commit()
        assert shelf.add(on, 1, 4) is True
        on.commit()
        assert left(engine, shelf) == 10
        assert shelf.take(on, 1, 10)
        on.rollback()
    assert left(engine, shelf) == 10


def test_what_one_row_does_not_have(shelf: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        assert shelf.take(session, 1, 9) is True
        session.commit()
        assert rows(engine) == [1, 0, 0, 0]
        with pytest.raises(NotEnough, match=r"product 1 is 1: .* leave less than 0") as caught:
            shelf.take(session, 1, 2)
        assert caught.value.available == 1
        assert shelf.take(session, 1) is True  # the transaction lives on
        session.commit()
    assert rows(engine) == [0, 0, 0, 0]


def test_much_that_is_added_is_evened_out(shelf: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        shelf.add(session, 1, 1000)
        shelf.take(session, 1, 1007)
        session.commit()
    assert rows(engine) == [1, 1, 1, 0]


def test_the_floor_is_one_of_the_sum(locks: Locks, shelf: Counter, engine: Engine) -> None:
    reserved = locks.counter(Shelf.stock, key=Shelf.product, floor=8, stripes=STRIPES)
    with new_session(engine) as session:
        with pytest.raises(NotEnough) as caught:
            reserved.take(session, 1, 3)
        assert caught.value.available == 2
        assert reserved.take(session, 1)
        assert reserved.take(session, 1)
        with pytest.raises(NotEnough):
            reserved.take(session, 1)
        session.commit()
    assert left(engine, shelf) == 8


def test_an_idempotency_key(shelf: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        assert shelf.take(session, 1, 7, idempotency_key="order:1") is True
        assert shelf.take(session, 1, 7, idempotency_key="order:1") is False
        with pytest.raises(NotEnough):
            shelf.take(session, 1, 7, idempotency_key="order:2")
        assert shelf.add(session, 1, 4) is True
        assert shelf.take(session, 1, 7, idempotency_key="order:2") is True
        session.commit()
    assert left(engine, shelf) == 0


def test_the_orm_sees_the_new_value(shelf: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        loaded = [session.get(Shelf, (1, stripe)) for stripe in range(STRIPES)]
        assert sum(attribute(session, one, "stock") for one in loaded) == 10
        shelf.take(session, 1, 9)
        assert [attribute(session, one, "stock") for one in loaded] == [1, 0, 0, 0]


def test_not_in_autocommit(shelf: Counter, engine: Engine) -> None:
    """What takes several rows has to be a transaction, so it is asked for from the start."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for call in (shelf.take, shelf.add, shelf.spread):
            with pytest.raises(ValueError, match="autocommit"):
                call(connection, 1)
        assert shelf.value(connection, 1) == 10


def test_no_such_row(shelf: Counter, engine: Engine) -> None:
    calls: list[Callable[[Session], Any]] = [
        lambda on: shelf.take(on, 99),
        lambda on: shelf.add(on, 99),
        lambda on: shelf.value(on, 99),
        lambda on: shelf.spread(on, 99),
    ]
    for call in calls:
        with new_session(engine) as session, pytest.raises(LookupError, match="product 99"):
            call(session)


# --- many at once ------------------------------------------------------------------------------


def test_nobody_waits_while_a_row_is_free(
    locks: Locks, shelf: Counter, engine: Engine, threads: Threads
) -> None:
    if locks._database.dialect.traits.one_writer:  # whose writers wait for each other in any case
        return
    with ExitStack() as stack:
        sessions = [stack.enter_context(new_session(engine)) for _ in range(STRIPES)]
        for session in sessions:
            assert threads.start(shelf.take, session, 1).result(LONG)
        for session in sessions:
            session.commit()
    assert left(engine, shelf) == 10 - STRIPES


def test_who_finds_none_free_waits_for_one(
    locks: Locks, engine: Engine, db: Database, threads: Threads
) -> None:
    if locks._database.dialect.traits.one_writer:
        return
    value, key = made(db, Integer, 5)
    counter = locks.counter(value, key=key, stripes=1)
    with new_session(engine) as first, new_session(engine) as second:
        assert counter.take(first, 1, 3)
        waiting = threads.start(counter.take, second, 1, 2)
        with pytest.raises(TimeoutError):
            waiting.result(MOMENT)
        first.commit()
        assert waiting.result(LONG)
        second.commit()
    assert left(engine, counter) == 0


def test_what_others_are_taking_is_waited_for(
    locks: Locks, shelf: Counter, engine: Engine, threads: Threads
) -> None:
    """Who needs several rows takes nothing from under those who have one."""
    with new_session(engine) as first, new_session(engine) as second:
        assert shelf.take(first, 1, 2)
        waiting = threads.attempt(shelf.take, second, 1, 9)
        with pytest.raises(TimeoutError):
            waiting.result(MOMENT)
        first.commit()
        with pytest.raises(NotEnough) as caught:
            waiting.result(LONG)
        assert caught.value.available == 8
    assert left(engine, shelf) == 8


@pytest.mark.parametrize("watched", [False, True])
def test_never_oversold(shelf: Counter, engine: Engine, threads: Threads, watched: bool) -> None:
    """Whatever many take and give back at once, what is there and what they have is the same."""
    if watched:
        event.listen(engine, "before_cursor_execute", lambda *args: None)
    with new_session(engine) as session:
        shelf.add(session, 1, 90)
        session.commit()

    def work(number: int) -> int:
        drawn, mine = random.Random(number), 0
        while True:
            with new_session(engine) as session:
                try:
                    change = drawn.randint(1, 7)
                    if drawn.random() < 0.2 and mine >= change:
                        shelf.add(session, 1, change)
                        change = -change
                    else:
                        shelf.take(session, 1, change)
                    if drawn.random() < 0.2:
                        session.rollback()
                        continue
                    session.commit()
                    mine += change
                except (Conflict, DeadlockDetected) as error:
                    told_to_retry(error)
                except NotEnough:
                    return mine

    having = [threads.start(work, number) for number in range(8)]
    taken = sum(done.result(LONG * 2) for done in having)
    assert taken + sum(rows(engine)) == 100
    assert min(rows(engine)) >= 0


def test_who_takes_once_meets_no_deadlock(
    locks: Locks, shelf: Counter, engine: Engine, threads: Threads
) -> None:
    """Also where most changes need several rows: a deadlock undoes nothing but the change, which is
    made again. MariaDB's drivers do not tell whether there was something before."""
    if locks._database.dialect.name in FAMILY:
        return

    def work(number: int) -> int:
        drawn, mine = random.Random(number), 0
        for _ in range(60):
            with new_session(engine) as session:
                change = drawn.randint(1, 7)
                try:
                    if drawn.random() < 0.5:
                        change = -change
                        shelf.add(session, 1, -change)
                    else:
                        shelf.take(session, 1, change)
                except NotEnough:
                    continue
                session.commit()
                mine += change
        return mine

    having = [threads.start(work, number) for number in range(6)]
    assert 10 - sum(done.result(SECONDS) for done in having) == sum(rows(engine))


def test_what_a_transaction_did_before_is_not_lost(
    shelf: Counter, engine: Engine, threads: Threads
) -> None:
    """Then a deadlock is told, and the whole transaction is to be run again."""

    def work(number: int) -> int:
        drawn, done = random.Random(number), 0
        for turn in range(60):
            with new_session(engine) as session:
                if engine.dialect.name == "sqlite":  # the others keep the file for long
                    session.execute(text(busy_timeout(SECONDS)))
                try:
                    session.add(Product(id=100 * number + turn + 10, stock=0))
                    session.flush()
                    shelf.add(session, 1, drawn.randint(1, 7))
                    shelf.take(session, 1, drawn.randint(1, 7))
                    session.commit()
                    done += 1
                except (DeadlockDetected, NotEnough):
                    session.rollback()
        return done

    having = [threads.start(work, number) for number in range(6)]
    done = sum(one.result(SECONDS) for one in having)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM product")).scalar_one() == done


def test_spread_while_others_take(
    locks: Locks, engine: Engine, db: Database, threads: Threads
) -> None:
    value, key = made(db, Integer, 300)
    counters = [locks.counter(value, key=key, stripes=stripes) for stripes in (2, 5, 3)]

    def work(counter: Counter) -> int:
        mine = 0
        while True:
            with new_session(engine) as session:
                if db.kind == "postgresql":  # it looks for deadlocks after a second
                    session.execute(text("SET LOCAL deadlock_timeout = '50ms'"))
                try:
                    if mine % 5 == 4:
                        counter.spread(session, 1)
                    counter.take(session, 1)
                    session.commit()
                    mine += 1
                except (Conflict, DeadlockDetected) as error:
                    told_to_retry(error)
                except NotEnough:
                    return mine

    having = [threads.start(work, counter) for counter in counters for _ in range(2)]
    assert sum(done.result(LONG * 2) for done in having) == 300
    assert left(engine, counters[0]) == 0


# --- rows --------------------------------------------------------------------------------------


def test_more_and_fewer_stripes(locks: Locks, engine: Engine, db: Database) -> None:
    value, key = made(db, Integer, 10)
    table = value.table
    with new_session(engine) as session:
        one = locks.counter(value, key=key, stripes=8)
        assert one.take(session, 1, 2)  # before it was ever spread
        for stripes, found in ((4, [2] * 4), (2, [4, 4, 0, 0]), (5, [2, 2, 2, 1, 1])):
            locks.counter(value, key=key, stripes=stripes).spread(session, 1)
            session.commit()
            assert rows(engine, table) == found


def test_decimals(locks: Locks, engine: Engine, db: Database) -> None:
    value, key = made(db, Numeric(10, 2), "0.30")
    money = locks.counter(value, key=key, stripes=STRIPES)
    cents = [Decimal(cent) for cent in ("0.08", "0.08", "0.07", "0.07")]
    with new_session(engine) as session:
        money.spread(session, 1)
        session.commit()
        assert rows(engine, value.table) == cents
        for rest in ("0.20", "0.10", "0.00"):
            assert money.take(session, 1, 0.1)
            assert money.value(session, 1) == Decimal(rest)
        with pytest.raises(NotEnough):
            money.take(session, 1, Decimal("0.01"))
        with pytest.raises(ValueError, match="has 2 decimals at most"):
            money.add(session, 1, Decimal("0.001"))


def test_no_room(locks: Locks, engine: Engine, db: Database) -> None:
    """Each row has as much room as its column; all of it can be used."""
    if db.kind == "sqlite":  # whose integers are all of one size
        return
    value, key = made(db, SmallInteger, 32_000, 32_000)
    counter = locks.counter(value, key=key, stripes=2)
    with new_session(engine) as session:
        assert counter.add(session, 1, 1_000)
        assert counter.add(session, 1, 534)
        with pytest.raises(OverflowError):
            counter.add(session, 1)
        assert counter.value(session, 1) == 2 * 32_767
        assert counter.take(session, 1, 32_767)
        assert counter.take(session, 1, 32_767)


def test_null_is_no_number(locks: Locks, engine: Engine, db: Database) -> None:
    value, key = made(db, Integer, 5, None)
    counter = locks.counter(value, key=key, stripes=2)
    with new_session(engine) as session:
        assert counter.take(session, 1, 5) is True
        with pytest.raises(Unsupported, match="NULL"):
            counter.take(session, 1)
        with pytest.raises(Unsupported, match="NULL"):
            counter.spread(session, 1)


def test_floating_point(locks: Locks, engine: Engine, db: Database) -> None:
    value, key = made(db, Float, 5.0)
    counter = locks.counter(value, key=key, stripes=2)
    with new_session(engine) as session:
        for call in (counter.take, counter.add, counter.spread):
            with pytest.raises(Unsupported, match="an integer column or a NUMERIC"):
                call(session, 1)


# --- what is refused before anything is asked --------------------------------------------------


@pytest.fixture
def silent(engine: Engine) -> Iterator[list[str]]:
    """All that is sent meanwhile."""
    with statements_seen() as seen:
        yield seen


def test_what_cannot_be_striped(locks: Locks, silent: list[str]) -> None:
    made, one = Shelf.__table__.c, Product.__table__.c
    texts = Table(
        "texts", MetaData(), *(Column(name, String(9), primary_key=True) for name in "ab")
    )
    texts.append_column(Column("n", Integer))
    turned = Table("turned", MetaData(), *(Column(name, Integer) for name in "abn"))
    calls: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TypeError, "a number of rows", {"stripes": "4"}),
        (TypeError, "a number of rows", {"stripes": True}),
        (TypeError, "a number of rows", {"stripes": 4.0}),
        (ValueError, "one stripe at least", {"stripes": 0}),
        (ValueError, "floor is 0 or more", {"floor": None}),
        (ValueError, "floor is 0 or more", {"floor": -1}),
        (ValueError, "no version column", {"version": made.stripe}),
        (ValueError, "the primary key of product", {"key": one.id, "column": one.stock}),
        (ValueError, "the primary key of shelf", {"key": made.stripe}),
        (ValueError, "the primary key of texts", {"key": texts.c.a, "column": texts.c.n}),
        (ValueError, "the primary key of turned", {"key": turned.c.a, "column": turned.c.n}),
    ]
    usual: dict[str, Any] = {"column": made.stock, "key": made.product, "stripes": STRIPES}
    for error, said, other in calls:
        with pytest.raises(error, match=said):
            locks.counter(**(usual | other))
    assert silent == []


def test_what_needs_one_row(shelf: Counter, stock: Counter, engine: Engine) -> None:
    with new_session(engine) as session:
        with pytest.raises(Unsupported, match="striped"):
            shelf.update(session, 1, lambda value: value)
        with pytest.raises(Unsupported, match="striped"):
            shelf.compare_and_update(session, 1, seen=1, new=2)
        with pytest.raises(Unsupported, match="one row"):
            stock.spread(session, 1)
        for bad in (0, -1):
            with pytest.raises(ValueError, match="is above 0"):
                shelf.take(session, 1, bad)
        with pytest.raises(TypeError, match="is a number"):
            shelf.take(session, 1, cast(Any, "1"))
