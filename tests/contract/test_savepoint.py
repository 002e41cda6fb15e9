"""What is done in a savepoint is undone with the transaction around it, first in it or not.

Python's sqlite3 begins no transaction for a savepoint, so the release of one may be a commit.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import MetaData, event, text
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from dblock import Locks, fencing
from tests.contract.shop import Base, Product, left
from tests.contract.test_fencing import gate
from tests.support import BORROWED, LONG, Borrowed, Facts, Threads, borrowed, new_session
from tests.worlds.surface import Bridged
from tests.worlds.world import World

SESSIONS = tuple(how for how in BORROWED if how != "connection")
in_sessions = pytest.mark.parametrize("how", SESSIONS)
FIRST = "a savepoint is open that may have begun it"


@contextlib.contextmanager
def savepoint(on: Borrowed) -> Iterator[None]:
    def run(function: Callable[[], Any]) -> Any:
        return on.run(function) if isinstance(on, Bridged) else function()

    nested = on.begin_nested()
    try:
        yield
    except BaseException:
        run(nested.rollback)
        raise
    run(nested.commit)


def add_one(on: Borrowed) -> None:
    on.execute(text("UPDATE facts SET n = n + 1 WHERE id = 0"))


def keys(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM dblock_once")).scalar_one())


@in_sessions
def test_a_call_first_in_a_savepoint(locks: Locks, engine: Engine, facts: Facts, how: str) -> None:
    """As docs/once.md has it."""

    def call(on: Borrowed) -> bool:
        with savepoint(on), locks.once(on, "key") as made:
            if not made.replayed:
                add_one(on)
                made.result = 7
            return bool(made.replayed)

    with borrowed(engine, how) as on:
        assert not call(on)
        on.rollback()
    assert (facts.n, keys(engine)) == (0, 0)
    with borrowed(engine, how) as on:
        assert not call(on)
        assert call(on)
        on.commit()
    assert (facts.n, keys(engine)) == (1, 1)


@in_sessions
def test_a_call_that_fails_in_a_savepoint_undoes_the_block_alone(
    locks: Locks, engine: Engine, facts: Facts, how: str
) -> None:
    with borrowed(engine, how) as on:
        with contextlib.suppress(ZeroDivisionError), savepoint(on), locks.once(on, "key"):
            add_one(on)
            raise ZeroDivisionError
        facts.add(on, 1)
        on.commit()
    assert (facts.n, facts.ids(), keys(engine)) == (0, {0, 1}, 0)


@in_sessions
def test_a_row_lock_first_in_a_savepoint_stays_as_long_as_the_transaction(
    locks: Locks, others: Locks, engine: Engine, threads: Threads, how: str
) -> None:
    with borrowed(engine, how) as on:
        row = locks.row("order", on=on)
        with savepoint(on), row:
            pass
        assert row.held
        assert not threads.run(others.row("order").acquire, blocking=False)
        on.commit()
        assert not row.held
        with others.row("order", wait=0):
            pass


@in_sessions
def test_a_guard_first_in_a_savepoint_stays_as_long_as_the_transaction(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, threads: Threads, how: str
) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    with borrowed(engine, how) as on:
        with savepoint(on), lease.guard(on):
            add_one(on)
        assert not threads.run(others.row("report").acquire, blocking=False)
        on.rollback()
    assert facts.n == 0
    lease.release()


@in_sessions
@pytest.mark.parametrize("options", [{}, {"idempotency_key": "one"}])
def test_a_counter_first_in_a_savepoint(
    locks: Locks, engine: Engine, how: str, options: dict[str, str]
) -> None:
    Base.metadata.create_all(engine)
    with new_session(engine) as session:
        session.add(Product(id=1, stock=10))
        session.commit()
    stock = locks.counter(Product.stock, key=Product.id)
    for end, expected in (("rollback", 10), ("commit", 7), ("commit", 7 if options else 4)):
        with borrowed(engine, how) as on:
            with savepoint(on):
                stock.take(on, 1, 3, **options)
            getattr(on, end)()
        assert left(engine, stock) == expected


@in_sessions
def test_the_gate_first_in_a_savepoint(
    locks: Locks, engine: Engine, how: str, facts: Facts
) -> None:
    with engine.begin() as connection:
        made = fencing.table(MetaData())
        if isinstance(connection, Bridged):
            connection.run(made.create, connection._side())
        else:
            made.create(connection)
    with borrowed(engine, how) as on:
        with savepoint(on):
            gate(on, "order", 7)
            add_one(on)
        on.rollback()
    assert facts.n == 0
    with borrowed(engine, how) as on:
        gate(on, "order", 1)
        on.rollback()


@in_sessions
def test_what_was_done_before_the_savepoint_does_not_matter(
    locks: Locks, engine: Engine, facts: Facts, how: str
) -> None:
    for before in (facts.read, add_one, lambda on: locks.row("another", on=on).acquire()):
        with borrowed(engine, how) as on:
            before(on)
            with savepoint(on), savepoint(on), locks.once(on, "key"):
                add_one(on)
            with savepoint(on):
                add_one(on)
                assert locks.row("order", on=on).acquire()
            on.rollback()
        assert (facts.n, keys(engine)) == (0, 0)


def test_locks_of_two_kinds_in_one_savepoint(
    locks: Locks, others: Locks, engine: Engine, facts: Facts
) -> None:
    with borrowed(engine, "session") as on:
        with savepoint(on):
            for one in (locks, others, locks):
                assert one.row("order", on=on).acquire()
            add_one(on)
        on.rollback()
    assert facts.n == 0


def test_on_a_connection_that_has_begun(locks: Locks, engine: Engine, facts: Facts) -> None:
    with borrowed(engine, "connection") as on:
        assert locks.row("order", on=on).acquire()
        with savepoint(on):
            add_one(on)
            assert locks.row("another", on=on).acquire()
        on.rollback()
    assert facts.n == 0


def reads(on: Borrowed) -> None:
    on.execute(text("SELECT n FROM facts")).all()


@pytest.mark.parametrize(
    ("how", "before"),
    [("connection", None), *((how, before) for how in BORROWED for before in (reads, add_one))],
)
def test_a_savepoint_that_may_have_begun_the_transaction_is_refused(
    locks: Locks, engine: Engine, facts: Facts, how: str, before: Callable[[Any], None] | None
) -> None:
    """Nothing tells whether sqlite3 had begun a transaction before the savepoint."""
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    doubtful = locks._database.dialect.traits.one_writer
    with borrowed(engine, how) as on, savepoint(on):
        if before is not None:
            before(on)
        for use in (
            locks.row("order", on=on).acquire,
            lease.guard(on).__enter__,
            locks.once(on, "key").__enter__,
        ):
            with pytest.raises(ValueError, match=FIRST) if doubtful else contextlib.nullcontext():
                use()
    assert keys(engine) == 0
    lease.release()


def test_a_session_that_joins_a_transaction_by_a_savepoint(
    locks: Locks, engine: Engine, facts: Facts, world: World
) -> None:
    """As SQLAlchemy's page on tests has it."""
    for before in (None, add_one):
        with engine.connect() as connection:
            connection.begin()
            if before is not None:
                before(connection)
            options: Any = {"join_transaction_mode": "create_savepoint"}
            if isinstance(connection, Bridged):
                made = AsyncSession(connection.target, **options)
                session: Any = Bridged(
                    connection._world, partial(getattr, made, "sync_session"), made
                )
            else:
                session = Session(connection, **options)
            with locks.once(session, "key"):
                add_one(session)
            assert locks.row("order", on=session).acquire()
            session.commit()
            connection.rollback()
        assert (facts.n, keys(engine)) == (0, 0)


def by_events(engine: Engine) -> None:
    target = engine._side() if isinstance(engine, Bridged) else engine

    @event.listens_for(target, "connect")
    def begin_nothing(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(target, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    engine.dispose()


def by_the_driver(engine: Engine, autocommit: bool = False) -> None:
    target = engine._side() if isinstance(engine, Bridged) else engine

    @event.listens_for(target, "do_connect")
    def connect(dialect: Any, record: Any, args: Any, options: dict[str, Any]) -> None:
        options["autocommit"] = autocommit

    engine.dispose()


RECIPES = [by_events, by_the_driver] if sys.version_info >= (3, 12) else [by_events]
AUTOCOMMIT = ("engine", "driver") if sys.version_info >= (3, 12) else ("engine",)
on_sqlite = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


@on_sqlite
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("how", BORROWED)
def test_where_each_transaction_begins_with_a_begin(
    locks: Locks, engine: Engine, facts: Facts, how: str, recipe: Callable[[Engine], None]
) -> None:
    """By one of SQLAlchemy's documented recipes."""
    recipe(engine)
    for before in (None, reads, add_one):
        with borrowed(engine, how) as on:
            with savepoint(on):
                if before is not None:
                    before(on)
                with locks.once(on, "key"):
                    add_one(on)
            on.rollback()
        assert (facts.n, keys(engine)) == (0, 0)


@on_sqlite
@pytest.mark.parametrize("how", BORROWED)
@pytest.mark.parametrize("whose", AUTOCOMMIT)
def test_autocommit_is_refused(
    locks: Locks, engine: Engine, facts: Facts, how: str, whose: str
) -> None:
    """A savepoint is a transaction of its own there."""
    if whose == "driver":
        by_the_driver(engine, autocommit=True)
    else:
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    with borrowed(engine, how) as on, pytest.raises(ValueError, match="autocommit mode"):
        locks.row("order", on=on).acquire()
    with borrowed(engine, how) as on, savepoint(on):
        with pytest.raises(ValueError, match="autocommit mode"):
            locks.row("order", on=on).acquire()
        with pytest.raises(ValueError, match="autocommit mode"), locks.once(on, "key"):
            raise AssertionError("not reached")
