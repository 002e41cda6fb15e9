"""One name is one lock: row locks and leases on it exclude each other."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy.engine import Engine

from dblock import Conflict, Lease, Locks, RetryPolicy, RowLock
from tests.contract.conftest import NewLocks
from tests.support import (
    BORROWED,
    EAGER,
    LONG,
    MOMENT,
    SHORT,
    Facts,
    Threads,
    borrowed,
    expire,
    told_to_retry,
)


def test_a_row_lock_keeps_leases_out(locks: Locks, others: Locks, threads: Threads) -> None:
    lease = others.lease("order", ttl=LONG)
    with locks.row("order"):
        assert not threads.run(lease.acquire, blocking=False)
        assert not threads.run(lease.acquire, timeout=MOMENT)
        got = threads.start(lease.acquire)
    assert got.result(LONG)
    lease.release()


def test_a_lease_keeps_row_locks_out(locks: Locks, others: Locks, threads: Threads) -> None:
    waiting = threading.Event()
    row = others.row("order", retry=RetryPolicy(before_sleep=lambda attempt: waiting.set()))
    with locks.lease("order", ttl=LONG):
        assert not threads.run(row.acquire, blocking=False)
        assert not threads.run(row.acquire, timeout=MOMENT)
        waiting.clear()
        got = threads.start(row.acquire)
        assert waiting.wait(LONG)
        assert not got.done()
    assert got.result(LONG)
    assert row.held
    row.release()


@pytest.mark.parametrize("how", BORROWED)
def test_the_same_in_the_users_transaction(
    locks: Locks, others: Locks, engine: Engine, threads: Threads, how: str
) -> None:
    lease = others.lease("order", ttl=LONG)
    with borrowed(engine, how) as on:
        assert locks.row("order", wait=0, on=on).acquire()
        assert not threads.run(lease.acquire, blocking=False)
        on.commit()
        assert threads.run(lease.acquire, blocking=False)
        assert not locks.row("order", wait=0, on=on).acquire()
        assert not locks.row("order", wait=MOMENT, on=on).acquire()
        on.rollback()
        lease.release()
        assert locks.row("order", wait=0, on=on).acquire()
        on.rollback()


def test_a_row_lock_waits_for_the_expiry(locks: Locks, others: Locks) -> None:
    lease = locks.lease("order", ttl=SHORT, renew=False)
    assert lease.acquire()
    with others.row("order", wait=LONG):
        assert not lease.held


def test_a_lapsed_lease_is_in_no_row_locks_way(locks: Locks, others: Locks, engine: Engine) -> None:
    assert locks.lease("order", ttl=LONG).acquire()
    expire(engine, locks, "order")
    with others.row("order", wait=0):
        pass
    with borrowed(engine, "connection") as on:
        assert others.row("order", wait=0, on=on).acquire()
        on.commit()


def test_other_names_are_other_locks(locks: Locks, others: Locks, threads: Threads) -> None:
    """On a database with one writer a row lock keeps all out; a lease nowhere does."""
    row, lease = others.row("b", wait=0), others.lease("c", wait=0, ttl=LONG)
    with locks.lease("a", ttl=LONG):
        assert threads.run(row.acquire)
        assert threads.run(lease.acquire) is not locks._database.dialect.traits.one_writer
        row.release()
        assert lease.held or threads.run(lease.acquire)
        lease.release()


def acquired(lock: RowLock) -> bool:
    try:
        return lock.acquire()
    except Conflict as conflict:
        told_to_retry(conflict)
        return False


def test_under_contention(new_locks: NewLocks, facts: Facts, engine: Engine) -> None:
    """Threads of both kinds raise a number which only the lock protects."""
    workers, rounds = 8, 12
    together = threading.Barrier(workers)
    pool = Threads()

    def work(number: int) -> None:
        locks = new_locks(retry=EAGER)
        together.wait(LONG)
        for turn in range(rounds):
            lock: Lease | RowLock
            if (number + turn) % 2:
                lock = locks.lease("order", ttl=LONG)
                with lock, engine.connect() as connection:
                    n = facts.read(connection)
                    connection.rollback()
                    time.sleep(0)
                    facts.write(connection, n + 1)
                    connection.commit()
            else:
                with engine.connect() as connection:
                    lock = locks.row("order", on=connection)
                    while not acquired(lock):
                        # A lease came first, and here a refused row lock is in its way.
                        assert locks._database.dialect.traits.refusal_holds
                        connection.rollback()
                    facts.write(connection, facts.read(connection) + 1)
                    connection.commit()

    try:
        for number in range(workers):
            pool.start(work, number)
        pool.join()
    finally:
        pool.close()
    assert facts.n == workers * rounds
