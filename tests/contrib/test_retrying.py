"""Whole units of work, run again on real conflicts."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import select, text
from sqlalchemy.engine import Engine, create_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from tenacity import stop_after_attempt, wait_none

from dblock import Conflict, RetryPolicy, retry_on_conflict
from tests.conftest import BORROWED, SERVERS, Database, NewDatabase
from tests.support import LONG, SECONDS, Threads


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "product"
    id: Mapped[int] = mapped_column(primary_key=True)
    stock: Mapped[int]
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    made = create_engine(database.url)
    Base.metadata.create_all(made)
    with Session(made) as session, session.begin():
        session.add_all([Product(id=1, stock=0), Product(id=2, stock=0)])
    yield made
    made.dispose()


def stock(engine: Engine, key: int = 1) -> int:
    with Session(engine) as session:
        return session.scalars(select(Product.stock).where(Product.id == key)).one()


def test_a_stale_version(engine: Engine) -> None:
    tries = []

    @retry_on_conflict(sessionmaker(engine))
    def take(session: Session, n: int) -> int:
        product = session.get(Product, 1)
        assert product is not None
        tries.append(product.stock)
        if len(tries) < 3:  # another comes in between
            session.execute(text("UPDATE product SET version = version + 1 WHERE id = 1"))
        product.stock += n
        return product.stock

    assert take(5) == 5
    assert len(tries) == 3
    assert stock(engine) == 5


def test_it_gives_up(engine: Engine) -> None:
    tries = []
    policy = RetryPolicy(wait=wait_none(), stop=stop_after_attempt(3))

    @retry_on_conflict(sessionmaker(engine), retry=policy)
    def never(session: Session) -> None:
        tries.append(1)
        raise Conflict("of the unit's own")

    with pytest.raises(Conflict, match="in each of 3 tries: of the unit's own"):
        never()
    assert len(tries) == 3


def test_other_errors_are_not_retried(engine: Engine) -> None:
    tries = []

    @retry_on_conflict(sessionmaker(engine))
    def twice(session: Session) -> None:
        tries.append(1)
        session.execute(text("INSERT INTO product VALUES (1, 0, 1)"))

    with pytest.raises(IntegrityError):
        twice()
    assert len(tries) == 1


@pytest.mark.parametrize("kind", [*SERVERS, *BORROWED["threads"]])
def test_a_deadlock(new_database: NewDatabase, threads: Threads, kind: str) -> None:
    """Two take two rows in opposite order: one is undone by the database, and comes again."""
    made = create_engine(new_database(kind).users_url)
    Base.metadata.create_all(made)
    with Session(made) as session, session.begin():
        session.add_all([Product(id=1, stock=0), Product(id=2, stock=0)])
    both = threading.Barrier(2)
    done = threading.Event()
    tries = []

    @retry_on_conflict(sessionmaker(made))
    def work(session: Session, first: int, second: int) -> None:
        tries.append(first)
        if len(tries) > 2:  # or it could have its first row before the other gets it
            assert done.wait(SECONDS)
        add(session, first)
        if len(tries) <= 2:
            both.wait(LONG)
        add(session, second)

    def run(first: int, second: int) -> None:
        work(first, second)
        done.set()

    for order in ((1, 2), (2, 1)):
        threads.start(run, *order)
    threads.join()
    assert len(tries) == 3
    assert (stock(made, 1), stock(made, 2)) == (2, 2)
    made.dispose()


def add(session: Session, key: int) -> None:
    session.execute(text("UPDATE product SET stock = stock + 1 WHERE id = :id"), {"id": key})


@pytest.mark.parametrize("kind", ["postgresql", "postgresql+psycopg2"])
def test_a_serialization_failure(new_database: NewDatabase, kind: str) -> None:
    made = create_engine(new_database(kind).users_url, isolation_level="REPEATABLE READ")
    Base.metadata.create_all(made)
    with Session(made) as session, session.begin():
        session.add(Product(id=1, stock=0))
    tries = []

    @retry_on_conflict(sessionmaker(made))
    def work(session: Session) -> None:
        session.execute(text("SELECT 1 FROM product"))
        tries.append(1)
        if len(tries) == 1:
            with Session(made) as other, other.begin():
                add(other, 1)
        add(session, 1)

    work()
    assert len(tries) == 2
    assert stock(made) == 2
    made.dispose()
