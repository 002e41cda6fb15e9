"""A counter counts in one row: a key that several rows have is refused, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    create_engine,
    text,
)
from sqlalchemy.engine import Engine
from sqlalchemy.exc import MultipleResultsFound
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from dblock import Locks
from tests.conftest import Database, NewDatabase
from tests.support import borrowed


def table(*more: Any, primary: tuple[str, ...] = ("day",), unique: bool | None = None) -> Table:
    columns = [
        Column(name, Integer, primary_key=name in primary, autoincrement=False, unique=unique)
        if name == "id"
        else Column(name, Integer, primary_key=name in primary, autoincrement=False)
        for name in ("id", "day", "n")
    ]
    return Table("thing", MetaData(), *columns, *more)


@pytest.mark.parametrize(
    "made",
    [
        table(),
        table(primary=("id", "day")),
        table(UniqueConstraint("id", "day")),
        table(Index("by_id", "id")),
        table(Index("some", "id", unique=True, postgresql_where=text("day > 0"))),
    ],
    ids=["another key", "composite key", "composite constraint", "index", "partial index"],
)
def test_a_key_that_is_not_unique_is_refused(locks: Locks, made: Table) -> None:
    with pytest.raises(ValueError, match=r"thing\.id is not unique, and a counter counts in one"):
        locks.counter(made.c.n, key=made.c.id)


@pytest.mark.parametrize(
    "made",
    [
        table(primary=("id",)),
        table(unique=True),
        table(UniqueConstraint("id")),
        table(Index("by_id", "id", unique=True)),
        table(primary=()),
    ],
    ids=["primary key", "unique", "constraint", "index", "unknown"],
)
def test_a_key_that_is_unique_or_may_be(locks: Locks, made: Table) -> None:
    locks.counter(made.c.n, key=made.c.id)


def test_a_mapped_class_with_a_composite_key(locks: Locks) -> None:
    class Base(DeclarativeBase):
        pass

    class Stock(Base):
        __tablename__ = "stock"
        product: Mapped[int] = mapped_column(primary_key=True)
        place: Mapped[int] = mapped_column(primary_key=True)
        n: Mapped[int] = mapped_column()

    with pytest.raises(ValueError, match=r"stock\.product is not unique"):
        locks.counter(Stock.n, key=Stock.product)


@pytest.fixture
def twice(db: Database) -> Table:
    """A table that has a key twice, which the metadata does not tell."""
    table(primary=("id", "day")).create(engine := create_engine(db.url))
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO thing VALUES (1, 1, 10), (1, 2, 20), (2, 1, 5)"))
    engine.dispose()
    return table(primary=("id",))


def test_a_change_of_a_key_that_two_rows_have_changes_nothing(
    locks: Locks, engine: Engine, twice: Table
) -> None:
    counter = locks.counter(twice.c.n, key=twice.c.id)
    with borrowed(engine, "connection") as on:
        for change in (
            lambda: counter.take(on, 1),
            lambda: counter.take(on, 1, 15),
            lambda: counter.add(on, 1, idempotency_key="a"),
            lambda: counter.compare_and_update(on, 1, seen=10, new=7),
            lambda: counter.update(on, 1, lambda value: value + 1),
            lambda: counter.value(on, 1),
        ):
            with pytest.raises(MultipleResultsFound, match="is in 2 rows of thing"):
                change()
        assert counter.take(on, 2, 5) is True  # the transaction goes on
        on.commit()
    with engine.connect() as connection:
        found = connection.execute(text("SELECT n FROM thing ORDER BY id, day")).scalars()
        assert list(found) == [10, 20, 0]


def test_a_table_that_others_inherit(new_database: NewDatabase) -> None:
    """A unique index of PostgreSQL's says nothing of the tables that inherit."""
    made = table(primary=("id",))
    engine = create_engine(new_database("postgresql", migrated=True).url)
    made.create(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE heir () INHERITS (thing)"))
        connection.execute(text("INSERT INTO thing VALUES (1, 1, 10)"))
        connection.execute(text("INSERT INTO heir VALUES (1, 1, 10), (2, 1, 10)"))
    with Locks(engine) as locks, engine.connect() as connection:
        counter = locks.counter(made.c.n, key=made.c.id)
        with pytest.raises(MultipleResultsFound):
            counter.take(connection, 1)
        assert counter.take(connection, 2) is True
    engine.dispose()


def test_a_table_in_partitions(new_database: NewDatabase) -> None:
    """An index of each partition's says nothing of the others."""
    made = table(primary=("id",))
    engine = create_engine(new_database("postgresql", migrated=True).url)
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE thing (id integer, day integer, n integer) PARTITION BY LIST (day)",
            "CREATE TABLE first PARTITION OF thing (UNIQUE (id)) FOR VALUES IN (1)",
            "CREATE TABLE second PARTITION OF thing (UNIQUE (id)) FOR VALUES IN (2)",
            "INSERT INTO thing VALUES (1, 1, 10), (1, 2, 10), (2, 2, 10)",
        ):
            connection.execute(text(statement))
    with Locks(engine) as locks, engine.connect() as connection:
        counter = locks.counter(made.c.n, key=made.c.id)
        with pytest.raises(MultipleResultsFound):
            counter.take(connection, 1)
        assert counter.take(connection, 2) is True
    engine.dispose()


def test_a_stripe_that_is_there_twice(locks: Locks, engine: Engine) -> None:
    """spread() finds that out; and so does a change."""
    really = table(primary=())
    really.create(engine)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO thing VALUES (1, 0, 10), (1, 0, 10)"))
    made = table(primary=("id", "day"))
    counter = locks.counter(made.c.n, key=made.c.id, stripes=2)
    for change in (counter.spread, counter.take):
        with (
            borrowed(engine, "connection") as on,
            pytest.raises(MultipleResultsFound, match="several rows of thing"),
        ):
            change(on, 1)
    with engine.connect() as connection:
        assert list(connection.execute(text("SELECT n FROM thing")).scalars()) == [10, 10]
