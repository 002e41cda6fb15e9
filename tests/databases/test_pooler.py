"""Leases and row locks through PgBouncer's transaction pooling: sessions are nobody's own there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import create_async_engine

from dblock import Lease, Locks, RowLock
from dblock.aio import AsyncLocks
from tests.conftest import Database, NewDatabase
from tests.servers import execute
from tests.support import BORROWED, EAGER, LONG, Facts, Threads, borrowed

CLIENTS = 8  # more than the pooler's server connections
SETTINGS = ("lock_timeout", "statement_timeout", "synchronous_commit", "TimeZone")


@pytest.fixture
def pooled(new_database: NewDatabase) -> Database:
    return new_database("pgbouncer", migrated=True)


@pytest.fixture
def engine(pooled: Database) -> Iterator[Engine]:
    """The user's own, made for a pooler: what it prepares would be on another's backend."""
    made = create_engine(pooled.url, connect_args={"prepare_threshold": None})
    yield made
    made.dispose()


@pytest.fixture
def locks(pooled: Database) -> Iterator[Locks]:
    with Locks(pooled.url, retry=EAGER) as made:
        yield made


def test_sessions_are_shared(engine: Engine) -> None:
    """The test-bed is what it should be: two clients, one after the other on one backend."""
    with engine.connect() as one, engine.connect() as two:
        pids = set()
        for connection in (one, two, one, two):
            pids.add(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
            connection.rollback()
    assert len(pids) == 1


def test_pairs_of_leases(pooled: Database, threads: Threads) -> None:
    """Prepared statements meet the backends of others, and fall back."""
    pairs = 200

    def work(number: int) -> int:
        fence = 0
        with Locks(pooled.url) as locks:
            lease = locks.lease(f"report:{number}", ttl=LONG)
            for _ in range(pairs):
                with lease:
                    lease.check()
                    fence = lease.fence
        return fence

    working = [threads.start(work, number) for number in range(CLIENTS)]
    assert [done.result(100) for done in working] == [pairs] * CLIENTS


def test_one_name_under_contention(pooled: Database, engine: Engine, threads: Threads) -> None:
    rounds, facts = 10, Facts(engine)

    def work(number: int) -> None:
        with Locks(pooled.url, retry=EAGER) as locks:
            for turn in range(rounds):
                lock: Lease | RowLock = locks.lease("order", ttl=LONG)
                if (number + turn) % 2:
                    lock = locks.row("order", wait=LONG)
                with lock, engine.begin() as connection:
                    facts.write(connection, facts.read(connection) + 1)

    for number in range(4):  # each may need two server connections at once, of five
        threads.start(work, number)
    threads.join()
    assert facts.n == 4 * rounds


@pytest.mark.parametrize("how", BORROWED)
def test_row_locks_in_the_users_transactions(
    pooled: Database, engine: Engine, threads: Threads, how: str
) -> None:
    rounds, facts = 10, Facts(engine)

    def work() -> None:
        with Locks(pooled.url, retry=EAGER) as locks:
            for _ in range(rounds):
                with borrowed(engine, how) as on, locks.row("order", wait=LONG, on=on):
                    facts.write(on, facts.read(on) + 1)
                    on.commit()

    for _ in range(4):
        threads.start(work)
    threads.join()
    assert facts.n == 4 * rounds


def test_the_guard(locks: Locks, engine: Engine) -> None:
    facts = Facts(engine)
    with locks.lease("report", ttl=LONG) as lease, borrowed(engine, "session") as on:
        for number in range(1, 10):
            with lease.guard(on):
                facts.add(on, number)
            lease.renew()
            on.commit()
    assert facts.ids() == set(range(10))


def test_nothing_is_left_behind(pooled: Database, engine: Engine, threads: Threads) -> None:
    """Neither a setting for the next client nor a lock."""
    assert pooled.server is not None

    def session() -> list[str]:
        with engine.connect() as connection:
            values = [connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in SETTINGS]
            connection.rollback()
            return values

    before = session()

    def work(number: int) -> None:
        with Locks(pooled.url, retry=EAGER) as locks, borrowed(engine, "session") as on:
            for _ in range(5):
                name = f"order:{number % 3}"
                with locks.lease(name, ttl=LONG) as lease:
                    lease.renew()
                with locks.row(name, wait=LONG):
                    pass
                locks.row(name, wait=0.05, on=on).acquire()
                on.commit()

    for number in range(4):
        threads.start(work, number)
    threads.join()
    # Server connections held all at once, so that every one of them is looked at.
    with engine.connect() as one, engine.connect() as two, engine.connect() as three:
        for connection in (one, two, three):
            for name, value in zip(SETTINGS, before, strict=True):
                assert connection.exec_driver_sql(f"SHOW {name}").scalar_one() == value
    database = pooled.url.rpartition("/")[2]
    left = "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database "
    left += f"WHERE datname = '{database}' AND pid <> pg_backend_pid()"
    assert execute(pooled.url, left) == [(0,)]


def test_psycopg2(pooled: Database, locks: Locks, threads: Threads) -> None:
    engine = create_engine(replace(pooled, driver="psycopg2").users_url)
    facts = Facts(engine)

    def work(number: int) -> None:
        with borrowed(engine, "connection") as on, locks.lease(f"lease {number % 3}") as lease:
            with lease.guard(on), locks.row(f"row {number % 3}", on=on):
                facts.add(on, number)
            on.commit()

    for number in range(1, CLIENTS + 1):
        threads.start(work, number)
    threads.join()
    assert facts.ids() == set(range(CLIENTS + 1))
    engine.dispose()


def test_asyncpg(pooled: Database) -> None:
    """It prepares all, under names that are nobody else's, as SQLAlchemy's manual has it."""

    async def main() -> None:
        engine = create_async_engine(
            replace(pooled, driver="asyncpg").users_url,
            poolclass=NullPool,
            connect_args={
                "statement_cache_size": 0,
                "prepared_statement_cache_size": 0,
                "prepared_statement_name_func": lambda: f"__asyncpg_{uuid4()}__",
            },
        )

        async def work(number: int) -> None:
            async with made.lease(f"lease {number % 3}") as lease, engine.connect() as on:
                async with lease.guard(on), made.row(f"row {number % 3}", on=on):
                    assert (await on.execute(text("SELECT 1"))).scalar_one() == 1
                await on.commit()

        async with AsyncLocks(engine, retry=EAGER) as made:
            await asyncio.gather(*map(work, range(CLIENTS)))
        await engine.dispose()

    asyncio.run(main())
