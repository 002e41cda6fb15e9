"""A row lock of dblock's own: taken, waited for, given back, lost with its connection."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy.engine import Engine

from dblock import Attempt, LockLost, Locks, NotAcquired, NotHeld, RetryPolicy
from tests.conftest import Database
from tests.contract.conftest import NewLocks
from tests.contract.sessions import end_sessions
from tests.support import EAGER, LONG, MOMENT, SECONDS, Threads, blocked, lock_row
from tests.worlds.behind import held_up_once


def test_acquire_and_release(locks: Locks, others: Locks, threads: Threads) -> None:
    row = locks.row("order")
    assert not row.held
    assert row.acquire() is True
    assert row.held
    row.check()
    assert not threads.run(others.row("order").acquire, blocking=False)
    row.release()
    assert not row.held
    again = others.row("order", wait=0)
    with again:
        assert again.held
    with pytest.raises(NotHeld, match="the row lock on 'order' is not held"):
        row.release()
    with pytest.raises(NotHeld):
        row.check()


def test_a_failing_body_gives_it_back(locks: Locks, others: Locks) -> None:
    with pytest.raises(KeyError), locks.row("order"):
        raise KeyError("of the body")
    with others.row("order", wait=0):
        pass


def test_as_a_decorator(locks: Locks, others: Locks, threads: Threads) -> None:
    @locks.row("order", wait=0)
    def work() -> bool:
        return threads.run(others.row("order").acquire, blocking=False)

    assert work() is False
    with others.row("order"), pytest.raises(NotAcquired):
        threads.run(work)


def test_the_row_is_made_once(locks: Locks, engine: Engine) -> None:
    for _ in range(3):
        with locks.row("order", wait=0):
            pass
    row = lock_row(engine, locks, "order")
    assert (row.fence, row.token) == (0, None)
    assert locks.list() == []


@pytest.mark.parametrize("wait", [0, 0.05, 1.3])
def test_the_deadline_is_kept(locks: Locks, others: Locks, threads: Threads, wait: float) -> None:
    naps: list[Attempt] = []
    row = others.row("order", wait=wait, retry=RetryPolicy(before_sleep=naps.append))
    with locks.row("order"):
        start = time.monotonic()
        with pytest.raises(NotAcquired, match=f"within {wait:g} s: (held|locked) by") as caught:
            threads.run(row.__enter__)
        waited = time.monotonic() - start
    assert waited >= wait
    assert waited - wait < locks.timeouts.query / 2
    assert caught.value.name == "order"
    assert all(nap.elapsed + nap.sleep <= wait + 1e-6 for nap in naps)


@pytest.mark.parametrize("wait", [None, LONG])
def test_a_waiter_gets_it_on_release(
    locks: Locks, others: Locks, threads: Threads, wait: float | None
) -> None:
    row = others.row("order", wait=wait)
    with locks.row("order"):
        got = threads.start(row.acquire)
        threading.Event().wait(0.1)
        assert not got.done()
    assert got.result(LONG)
    row.release()


def test_a_wait_longer_than_a_statement_may_take(
    new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    """The query timeout is the server's for one statement, not the caller's for the lock."""
    from dblock import Timeouts

    locks = new_locks(timeouts=Timeouts(query=0.3, socket=1.0))
    row = locks.row("order")
    with row:
        pass
    with blocked(engine, locks, "order"):
        got = threads.start(row.acquire)
        threading.Event().wait(1.2)
        assert not got.done()
    assert got.result(LONG)
    threads.run(row.release)


def test_one_at_a_time(new_locks: NewLocks) -> None:
    workers, rounds, inside = 8, 10, [0]
    most = 0
    pool = Threads()

    def work() -> None:
        nonlocal most
        locks = new_locks(retry=EAGER)
        for _ in range(rounds):
            with locks.row("order"):
                inside[0] += 1
                most = max(most, inside[0])
                time.sleep(0.001)
                inside[0] -= 1

    try:
        for _ in range(workers):
            pool.start(work)
        pool.join()
    finally:
        pool.close()
    assert most == 1


def test_lost_with_its_connection(locks: Locks, others: Locks, db: Database) -> None:
    row = locks.row("order")
    assert row.acquire()
    if end_sessions(db) == 0:
        # A file's lock ends with its process alone.
        assert locks._database.dialect.traits.one_writer
        row.check()
        row.release()
        return
    with pytest.raises(LockLost, match="ended with its connection") as caught:
        row.check()
    assert (caught.value.name, caught.value.reason) == ("order", "connection lost")
    assert not row.held
    with others.row("order", wait=LONG):  # free at once
        pass
    with pytest.raises(LockLost):
        row.release()
    with locks.row("order", wait=0):  # and no broken connection is used again
        pass


def test_lost_at_the_end_of_with(locks: Locks, db: Database) -> None:
    ended = []

    @locks.row("order")
    def work() -> None:
        ended.append(end_sessions(db))
        raise KeyError("of the body")

    with pytest.raises(KeyError) as caught:
        work()
    notes = getattr(caught.value, "__notes__", [])
    assert [len(notes)] == ended
    assert all(note.startswith("LockLost at the end of ") for note in notes)


def test_a_check_beside_a_release_is_no_loss(
    locks: Locks, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release waits for the answer to the check, which is over the same connection."""
    row = locks.row("order")
    assert row.acquire()
    begun, go_on = held_up_once(monkeypatch)
    checking = threads.start(row.check)
    assert begun.wait(SECONDS)
    releasing = threads.start(row.release)
    threading.Event().wait(MOMENT)
    assert not releasing.done()
    go_on.set()
    releasing.result(SECONDS)
    checking.result(SECONDS)
    with pytest.raises(NotHeld):
        row.check()
