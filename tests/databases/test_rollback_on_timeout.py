"""A server that undoes the whole transaction when a statement in it waits too long for a row.

The user is told so, as of a deadlock. Otherwise the transaction stays, with all that is in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import MetaData, create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import create_async_engine

from dblock import DeadlockDetected, InProgress, Locks, NotAcquired, fencing
from dblock.aio import fencing as async_fencing
from dblock.schema import upgrade
from tests.conftest import OwnServers
from tests.servers import MariaDB, MySQL
from tests.support import Facts, Threads, new_session

ON = ["--innodb-rollback-on-timeout=ON"]


@pytest.fixture(params=[MariaDB, MySQL])
def engine(request: pytest.FixtureRequest, own_server: OwnServers) -> Iterator[Engine]:
    server = own_server(lambda: request.param(options=ON))
    server.create_database("shop")
    upgrade(server.url_for("shop"))
    made = create_engine(server.url_for("shop"))
    yield made
    made.dispose()


def test_a_gate_says_so_without_a_locks(engine: Engine, threads: Threads) -> None:
    """It asks for the setting after its wait was too long."""
    fencing.table(MetaData()).create(engine)
    facts = Facts(engine)

    def second() -> None:
        with new_session(engine) as session:
            session.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))
            facts.add(session, 1)
            with pytest.raises(DeadlockDetected, match="undoing this transaction"):
                fencing.gate(session, "busy", 2)
            left = session.execute(text("SELECT COUNT(*) FROM facts WHERE id = 1"))
            assert left.scalar() == 0
            session.rollback()
            first.rollback()
            fencing.gate(session, "busy", 2)

    with new_session(engine) as first:
        fencing.gate(first, "busy", 1)
        threads.run(second)


@pytest.mark.parametrize("driver", ["asyncmy", "aiomysql"])
def test_a_gate_says_so_under_asyncio(engine: Engine, driver: str) -> None:
    fencing.table(MetaData()).create(engine)

    async def second() -> None:
        users = create_async_engine(engine.url.set(drivername=f"mysql+{driver}"))
        async with users.connect() as connection:
            await connection.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))
            with pytest.raises(DeadlockDetected, match="undoing this transaction"):
                await async_fencing.gate(connection, "busy", 2)
            await connection.rollback()
            first.rollback()
            await async_fencing.gate(connection, "busy", 2)
        await users.dispose()

    with new_session(engine) as first:
        fencing.gate(first, "busy", 1)
        asyncio.run(second())


def lock_row(locks: Locks, on: Any, wait: float) -> None:
    with locks.row("busy", on=on, wait=wait):
        pass


def call_once(locks: Locks, on: Any, wait: float) -> None:
    with locks.once(on, "busy", wait=wait):
        pass


@pytest.mark.parametrize("wait", [0, 0.2])
@pytest.mark.parametrize("use", [lock_row, call_once])
def test_a_transaction_that_was_undone_is_told(
    engine: Engine, threads: Threads, use: Callable[[Locks, Any, float], None], wait: float
) -> None:
    facts = Facts(engine)

    def second(locks: Locks) -> None:
        with new_session(engine) as session:
            facts.add(session, 1)
            with pytest.raises((NotAcquired, InProgress, DeadlockDetected)) as told:
                use(locks, session, wait)
            undone = told.type is DeadlockDetected
            assert undone == ("undoing this transaction" in str(told.value))
            left = session.execute(text("SELECT COUNT(*) FROM facts WHERE id = 1"))
            assert left.scalar() == (0 if undone else 1)
            session.rollback()
            first.rollback()
            use(locks, session, wait)

    with Locks(engine) as locks, new_session(engine) as first:
        use(locks, first, 0)
        threads.run(second, locks)
