"""A lock is where its Locks are: a transaction that is elsewhere is refused, never locked in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

import dblock.schema
from dblock import Counter, Locks
from tests.conftest import Database, NewDatabase, new_name, upgrade
from tests.contract.shop import Base, Product
from tests.servers import FAMILY
from tests.servers.base import execute
from tests.support import LONG, Threads, borrowed, new_session
from tests.worlds.world import World

REFUSED = "these locks are in"


@pytest.fixture
def empty(
    request: pytest.FixtureRequest, db: Database, new_database: NewDatabase
) -> Iterator[Database]:
    """Another database, where a table of the same name is another one."""
    if db.kind not in FAMILY:
        yield replace(new_database(db.kind), driver=db.driver)
        return
    # The databases of one server are one to a transaction. This is of another server.
    server = request.getfixturevalue(f"hostile_{db.kind}")
    name = make_url(db.url).database
    server.create_database(name)
    yield replace(db, url=server.url_for(name), server=server)
    server.drop_database(name)


@pytest.fixture
def other(request: pytest.FixtureRequest, db: Database, new_database: NewDatabase) -> Database:
    """The same, with dblock's tables."""
    if db.kind not in FAMILY:
        return replace(new_database(db.kind, migrated=True), driver=db.driver)
    empty: Database = request.getfixturevalue("empty")
    upgrade(empty.url)
    return empty


@pytest.fixture
def elsewhere(other: Database, world: World) -> Iterator[Engine]:
    made = world.engine(other.users_url)
    yield made
    made.dispose()


def row(locks: Locks, on: Any) -> None:
    locks.row("report", on=on, wait=LONG).acquire()


def endless_row(locks: Locks, on: Any) -> None:
    locks.row("report", on=on).acquire()


def tried_row(locks: Locks, on: Any) -> None:
    locks.row("report", on=on).acquire(blocking=False)


def guard(locks: Locks, on: Any) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        try:
            with lease.guard(on):
                pass
        finally:
            on.rollback()


def once(locks: Locks, on: Any) -> None:
    with locks.once(on, "key"):
        pass


def key(locks: Locks, on: Any) -> None:
    counter = locks.counter(Product.stock, key=Product.id)
    counter.take(on, 1, idempotency_key="key")


WAYS = (row, endless_row, tried_row, guard, once, key)
ways = pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])


@ways
@pytest.mark.parametrize("known", [True, False], ids=["known", "fresh"])
def test_a_transaction_in_another_database_is_refused(
    locks: Locks,
    elsewhere: Engine,
    other: Database,
    db: Database,
    way: Callable[[Locks, Any], None],
    known: bool,
) -> None:
    """Whether its tables know the name or are fresh, and both are named."""
    fill(elsewhere)
    if known:
        with Locks(other.url) as there:
            for some in (locks, there):
                with some.lease("report"):
                    pass
    with borrowed(elsewhere, "session") as on:
        with pytest.raises(ValueError, match=REFUSED) as refused:
            way(locks, on)
        for one in (db, other):
            place = make_url(one.url).database if db.kind not in FAMILY else f"port {port(one)}"
            assert str(place) in str(refused.value)
        assert on.execute(text("SELECT stock FROM product WHERE id = 1")).scalar_one() == 10
        on.commit()  # it is still the user's, and nothing was recorded in it
    for table in ("once", "applied"):
        assert execute(other.url, f"SELECT count(*) FROM dblock_{table}") == [(0,)]


def fill(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    with new_session(engine) as session:
        session.add(Product(id=1, stock=10))
        session.commit()


def port(db: Database) -> int | None:
    return make_url(db.url).port


@pytest.mark.parametrize("way", ["row", "guard", "once"])
def test_nothing_is_locked_in_another_database(
    locks: Locks, elsewhere: Engine, other: Database, way: str
) -> None:
    users = create_engine(other.url)

    def call_there() -> int:
        with users.begin() as mine, there.once(mine, "key", wait=0) as call:
            if not call.replayed:
                call.result = 1
        return int(call.result)

    with Locks(other.url) as there, borrowed(elsewhere, "connection") as on:
        with there.lease("report"):
            pass
        assert call_there() == 1
        refused = pytest.raises(ValueError, match=REFUSED)
        if way == "row":
            with refused:
                locks.row("report", on=on).acquire()
        elif way == "guard":
            with locks.lease("report", ttl=LONG) as lease, refused, lease.guard(on):
                pass
        else:
            with refused, locks.once(on, "key"):
                pass
        if there._database.dialect.traits.one_writer:  # such a try makes it the file's writer
            on.rollback()
        with there.row("report", wait=0):
            pass
        assert call_there() == 1
    users.dispose()


@ways
def test_a_database_without_tables_is_not_told_to_make_them(
    locks: Locks, empty: Database, world: World, way: Callable[[Locks, Any], None]
) -> None:
    """They would be the wrong ones."""
    engine = world.engine(empty.users_url)
    fill(engine)
    with borrowed(engine, "connection") as on, pytest.raises(ValueError, match=REFUSED):
        way(locks, on)
    engine.dispose()


def excludes(locks: Locks, others: Locks, on: Any, threads: Threads) -> None:
    """A row lock in this transaction is a lock of these Locks."""
    assert locks.row("report", on=on).acquire(blocking=False)
    for other in (others.lease("report"), others.row("report")):
        assert not threads.run(other.acquire, blocking=False)
    on.rollback()
    with others.lease("report", ttl=LONG):
        assert not locks.row("report", on=on).acquire(blocking=False)
        on.rollback()


def test_no_search_path_leads_elsewhere(
    locks: Locks,
    others: Locks,
    db: Database,
    engine: Engine,
    threads: Threads,
    new_database: NewDatabase,
) -> None:
    """Nor USE, nor ATTACH. Another schema has such tables too."""
    if db.kind == "postgresql":
        schema = new_name()
        execute(db.url, f"CREATE SCHEMA {schema}")
        dblock.schema.upgrade(db.url, schema=schema)
        moved = f"SET search_path = {schema}"
    else:
        tenant = make_url(new_database(db.kind, migrated=True).url).database
        moved = f"USE `{tenant}`" if db.kind in FAMILY else f"ATTACH '{tenant}' AS tenant"
    with borrowed(engine, "connection") as on:
        on.execute(text(moved))
        on.commit()
        excludes(locks, others, on, threads)
        guard(locks, on)
        with locks.once(on, "key") as call:
            call.result = 1
        on.commit()
    assert execute(db.url, "SELECT count(*) FROM dblock_once") == [(1,)]


def test_no_schema_translate_map_leads_elsewhere(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    moved = engine.execution_options(schema_translate_map={None: "tenant"})
    with borrowed(moved, "connection") as on:
        excludes(locks, others, on, threads)


def test_a_counter_counts_where_the_schema_translate_map_leads(
    stock: Counter, db: Database, engine: Engine, new_database: NewDatabase
) -> None:
    """Not in the table of the same name that another tenant has."""
    schema = "tenant"
    if db.kind == "postgresql":
        schema = new_name()
        execute(db.url, f"CREATE SCHEMA {schema}")
    else:
        tenant = make_url(new_database(db.kind).url).database or ""
        schema = tenant if db.kind in FAMILY else schema
    moved = engine.execution_options(schema_translate_map={None: schema})
    with borrowed(moved, "connection") as on:
        if db.kind == "sqlite":
            on.execute(text(f"ATTACH '{tenant}' AS {schema}"))
        place = f"{schema}.product"
        on.execute(text(f"CREATE TABLE {place} (id INTEGER PRIMARY KEY, stock INTEGER)"))
        on.execute(text(f"INSERT INTO {place} VALUES (1, 5)"))
        on.commit()
        assert stock.take(on, 1, 3)
        assert stock.value(on, 1) == 2
        on.commit()
        for table, left in ((place, 2), ("product", 10)):
            assert on.execute(text(f"SELECT stock FROM {table} WHERE id = 1")).scalar_one() == left


@pytest.mark.parametrize("filled", [True, False], ids=["copy", "empty"])
def test_a_temporary_table_catches_no_lock(
    locks: Locks, others: Locks, db: Database, engine: Engine, threads: Threads, filled: bool
) -> None:
    with locks.lease("report"):
        pass
    with borrowed(engine, "connection") as on:
        on.execute(text("CREATE TEMPORARY TABLE dblock_lock AS SELECT * FROM dblock_lock"))
        if not filled:
            on.execute(text("DELETE FROM dblock_lock"))
        on.commit()
        if db.kind in FAMILY and not filled:  # it hides the real one, by whatever name
            with pytest.raises(ValueError, match="temporary table"):
                locks.row("report", on=on).acquire()
        else:
            excludes(locks, others, on, threads)


def test_a_copy_of_the_whole_database_is_another_one(
    locks: Locks, db: Database, world: World, new_database: NewDatabase
) -> None:
    """One that was made of a template, or of a file: with the same identity."""
    locks.list()
    url = make_url(db.url)
    copied = new_database(db.kind)
    name = make_url(copied.url).database
    if db.kind == "sqlite":
        execute(db.url, "PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copyfile(str(url.database), str(name))
    elif db.kind == "postgresql":
        # As a dump has it: the row is written anew.
        upgrade(copied.url)
        ((identity,),) = execute(db.url, "SELECT identity FROM dblock_schema")
        execute(copied.url, f"UPDATE dblock_schema SET identity = '{identity}'")
    else:
        return  # of a copy on another server of MariaDB nothing is known
    there = world.engine(replace(copied, driver=db.driver).users_url)
    with borrowed(there, "connection") as on, pytest.raises(ValueError, match=REFUSED):
        locks.row("report", on=on).acquire()
    there.dispose()


def test_tables_that_were_made_anew_are_found(
    db: Database, world: World, new_database: NewDatabase
) -> None:
    """As in a test's set-up, while the process goes on."""
    fresh = replace(new_database(db.kind, migrated=True), driver=db.driver)
    engine = world.engine(fresh.users_url)
    with world.locks(fresh.url) as locks:
        with borrowed(engine, "connection") as on:
            assert locks.row("report", on=on).acquire()
            on.rollback()
        engine.dispose()
        dblock.schema.downgrade(fresh.url)
        upgrade(fresh.url)
        with borrowed(engine, "connection") as on:
            for way in (row, guard, once):
                way(locks, on)
                on.rollback()
    engine.dispose()


def test_a_session_with_binds(
    locks: Locks, others: Locks, engine: Engine, elsewhere: Engine, threads: Threads
) -> None:
    """One of its connections is to the database of the locks: that is the one to give."""
    with Session(elsewhere, binds={Product: engine}) as session:
        with pytest.raises(ValueError, match=REFUSED):
            locks.row("report", on=session).acquire()
        session.rollback()
        on = session.connection(bind_arguments={"mapper": Product})
        assert locks.row("report", on=on).acquire()
        assert not threads.run(others.row("report").acquire, blocking=False)


def test_the_first_use_may_be_in_a_transaction(
    db: Database, world: World, engine: Engine, stock: Counter
) -> None:
    for way in WAYS:
        with world.locks(db.locks_url) as locks, borrowed(engine, "session") as on:
            way(locks, on)
            on.rollback()
