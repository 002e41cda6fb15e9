"""Counters that many change at once: never oversold, never lost, and no change twice."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from tenacity import stop_after_attempt, wait_none

from dblock import Conflict, Counter, DeadlockDetected, Locks, NotEnough, RetryPolicy
from tests.conftest import Database
from tests.contract.shop import Product, left
from tests.support import (
    LONG,
    Threads,
    new_session,
    told_to_retry,
)
from tests.worlds.world import World


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
            elif not locks._database.dialect.traits.one_writer:  # there is no lock for readers
                with pytest.raises(DBAPIError):
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
    if locks._database.dialect.traits.one_writer:
        strict = world.engine(db.users_url)
    else:
        strict = world.engine(db.users_url, isolation_level="REPEATABLE READ")
    with strict.connect() as connection:
        if locks._database.dialect.traits.one_writer:
            connection.exec_driver_sql("BEGIN")  # which the driver leaves to the first write
        assert stock.value(connection, 1) == 10
        with new_session(engine) as other:
            stock.take(other, 1, 4)
            other.commit()
        try:
            assert stock.take(connection, 1, 6)
        except Conflict as conflict:
            traits = locks._database.dialect.traits
            assert traits.failure_aborts or traits.one_writer
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
                    if tries == 1 and not locks._database.dialect.traits.one_writer:
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
    assert tries == ([1, 1] if locks._database.dialect.traits.one_writer else [1, 2])
    assert (left(engine, stock), left(engine, stock, 2)) == (8, 8)
