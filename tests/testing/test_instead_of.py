"""The application's own locks in the test's database, and back where they were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from dblock import DeadlockDetected, LockLost, Locks, NotAcquired, NotHeld
from dblock.aio import AsyncLocks
from dblock.schema import upgrade
from dblock.testing import Faults
from tests.conftest import SERVERS, NewDatabase
from tests.support import Threads

NOWHERE = "postgresql+psycopg://nobody@127.0.0.1:1/nowhere"
ID, STOCK = Column("id", Integer, primary_key=True), Column("stock", Integer)
PRODUCT = Table("product", MetaData(), ID, STOCK)


@pytest.fixture
def away() -> Iterator[Locks]:
    """The application's locks, in a database that is not there."""
    with Locks(NOWHERE) as made:
        yield made


def test_what_was_made_before_comes_along(away: Locks, dblock_faults: Faults) -> None:
    ran: list[str] = []

    @away.lease("nightly", wait=0)
    def nightly() -> None:
        ran.append("nightly")

    @away.cron("figures", once_per="day")
    def figures() -> None:
        ran.append("figures")

    lease = away.lease("report", ttl=30)
    dblock_faults.instead_of(away)
    nightly()
    figures()
    figures()
    assert ran == ["nightly", "figures"]
    with dblock_faults.held_by_another("nightly"), pytest.raises(NotAcquired):
        nightly()
    lease.acquire()
    assert [state.name for state in away.list() if state.held] == ["report"]
    dblock_faults.expire("report")
    with pytest.raises(LockLost):
        lease.release()
    run = figures.last_run()
    assert run is not None
    assert run.exit_status == 0


def test_it_ends_where_it_began(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/real.db"
    upgrade(url)
    with Locks(url) as locks:
        lease = locks.lease("report")
        for _ in range(2):
            with lease:
                pass
            before = locks.show("report").fence
            with Faults(locks) as faults:
                assert locks.show("report").fence == 0
                lease.acquire()
                faults.advance(5)
            assert not lease.held
            assert locks.show("report").fence == before
        with lease:
            assert lease.held


def test_the_same_thread_and_its_holds(away: Locks, dblock_faults: Faults) -> None:
    """Handles have looked up where to find what their thread holds, when they were made."""
    lease = away.lease("report")
    dblock_faults.instead_of(away)
    with lease, pytest.raises(DeadlockDetected):
        away.lease("report").acquire()
    with pytest.raises(NotHeld):
        lease.release()


def test_what_is_held_stays_where_it_is(tmp_path: Path, dblock_faults: Faults) -> None:
    url = f"sqlite:///{tmp_path}/real.db"
    upgrade(url)
    with Locks(url) as locks, locks.lease("leader") as lease:
        with pytest.raises(ValueError, match="hold 'leader'"):
            dblock_faults.instead_of(locks)
        with pytest.raises(ValueError, match="hold 'leader'"):
            Faults(locks)
        lease.check()


def test_not_twice(away: Locks, dblock_faults: Faults) -> None:
    dblock_faults.instead_of(away)
    with pytest.raises(ValueError, match="already"):
        dblock_faults.instead_of(away)


def test_several_are_in_one_database(away: Locks, dblock_faults: Faults) -> None:
    with Locks(NOWHERE) as other:
        dblock_faults.instead_of(away, other)
        with away.lease("report"):
            assert not other.lease("report", wait=0).acquire()
            assert not dblock_faults.locks.lease("report", wait=0).acquire()


def test_they_can_be_closed(away: Locks, dblock_faults: Faults) -> None:
    dblock_faults.instead_of(away)
    with away, away.lease("report"):
        pass
    with pytest.raises(ValueError, match="closed"):
        away.show("report")
    assert dblock_faults.locks.show("report").fence == 1


@pytest.mark.parametrize("keeper", ["task", "thread"])
def test_of_tasks(dblock_faults: Faults, keeper: str) -> None:
    locks = AsyncLocks(NOWHERE, keeper=keeper)  # type: ignore[arg-type]

    @locks.lease("nightly", wait=0)
    async def nightly() -> None:
        dblock_faults.expire("nightly")

    async def twice() -> None:
        for _ in range(2):
            with pytest.raises(LockLost):
                await nightly()
        await locks.close()

    for _ in range(2):  # each in a loop of its own
        with Faults(locks) as faults:
            dblock_faults = faults
            asyncio.run(twice())


# --- transactions of the application's ---------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/shop.db")
    PRODUCT.metadata.create_all(made)
    yield made
    made.dispose()


def test_row_locks_in_transactions(
    dblock_locks: Locks, dblock_faults: Faults, shop: Engine, threads: Threads
) -> None:
    def refused() -> None:
        with Session(shop) as session, session.begin():
            assert not dblock_locks.row("order", wait=0, on=session).acquire()
            assert not dblock_locks.lease("order", wait=0).acquire()
            assert dblock_locks.row("other", wait=0, on=session).acquire()

    row = dblock_locks.row("order", wait=0)
    with shop.connect() as connection, connection.begin():
        mine = dblock_locks.row("order", on=connection)
        with mine, dblock_locks.row("order", on=connection), dblock_locks.lease("report"):
            threads.run(refused)
        assert mine.held  # until the transaction ends
        with pytest.raises(DeadlockDetected):
            dblock_locks.lease("order").acquire()
        with pytest.raises(ValueError, match="take_over"):
            dblock_faults.held_by_another("order")
        threads.run(refused)
    assert not mine.held
    with row:
        pass
    with dblock_faults.held_by_another("order"), Session(shop) as session:
        assert not dblock_locks.row("order", wait=3, on=session).acquire()


def test_threads_wait_for_row_locks_in_transactions(
    dblock_locks: Locks, shop: Engine, threads: Threads
) -> None:
    def lock() -> None:
        with shop.connect() as connection, dblock_locks.row("order", wait=60, on=connection):
            pass

    with shop.connect() as connection, dblock_locks.row("order", on=connection):
        waiting = threads.start(lock)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
    waiting.result(60)


def test_transactions_are_looked_at_as_usual(dblock_locks: Locks, shop: Engine) -> None:
    with shop.connect() as connection:
        pass
    with pytest.raises(ValueError, match="closed"):
        dblock_locks.row("order", on=connection).acquire()
    with pytest.raises(TypeError, match="an SQLAlchemy Connection"):
        dblock_locks.row("order", on=3).acquire()  # type: ignore[arg-type]


def test_locks_of_another_kind_of_database(
    away: Locks, dblock_faults: Faults, shop: Engine
) -> None:
    dblock_faults.instead_of(away)
    with Session(shop) as session, pytest.raises(ValueError, match="these locks are in postgresql"):
        away.row("order", on=session).acquire()


def test_after_a_guard_nothing_is_in_the_way(dblock_locks: Locks, shop: Engine) -> None:
    """On a server it is not; SQLite's one writer would be."""
    scoped = scoped_session(sessionmaker(shop))
    for _ in range(2):
        with dblock_locks.lease("report") as lease, lease.guard(scoped):
            lease.renew()
            with dblock_locks.lease("other"):
                pass
    scoped.remove()


def test_counters_are_where_they_were(tmp_path: Path, shop: Engine) -> None:
    url = f"sqlite:///{tmp_path}/real.db"
    with shop.begin() as connection:
        connection.execute(PRODUCT.insert().values(id=7, stock=10))
    with Locks(url) as locks:
        before = locks.counter(STOCK, key=ID)
        with Faults(locks), Session(shop) as session, session.begin():
            before.take(session, 7, 3)
            locks.counter(STOCK, key=ID).take(session, 7, 3)
        with Session(shop) as session:
            assert before.value(session, 7) == 4
            assert locks.counter(STOCK, key=ID).value(session, 7) == 4


@pytest.mark.parametrize("kind", SERVERS)
def test_a_counter_of_before_counts_on_a_server(new_database: NewDatabase, kind: str) -> None:
    engine = create_engine(new_database(kind).url)
    PRODUCT.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(PRODUCT.insert().values(id=7, stock=10))
    with Locks(engine) as locks:
        before = locks.counter(STOCK, key=ID)
        with Faults(locks), Session(engine) as session, session.begin():
            before.take(session, 7, 3)
        with Session(engine) as session:
            assert before.value(session, 7) == 7
    engine.dispose()


def test_calls_that_are_made_once_are_where_they_were(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/calls.db"
    upgrade(url)
    engine = create_engine(url)
    with Locks(url) as locks, Faults(locks):
        for replayed in (False, True):
            with Session(engine) as session, session.begin(), locks.once(session, "key") as call:
                assert call.replayed is replayed
    engine.dispose()
