"""How long a share lasts, and what its guard proves."""

from __future__ import annotations

import time

import pytest
from sqlalchemy.engine import Engine

from dblock import LockLost, Locks
from dblock.protocol.renew import Asked, renew_all
from dblock.protocol.state import Renewal
from tests.contract.conftest import NewLocks
from tests.support import (
    LONG,
    MOMENT,
    SECONDS,
    SHORT,
    Threads,
    eventually,
    expire,
    lock_row,
    queues,
)
from tests.worlds.behind import inside, run

NAME = "report"
LONGER = 20 * LONG


def remaining(locks: Locks) -> float:
    found = locks.show(NAME).remaining
    assert found is not None
    return found


def test_a_reader_lets_it_last_for_its_own_ttl(locks: Locks, others: Locks) -> None:
    """And brings no other reader's expiry forward: not when it joins, is renewed, or renews."""
    with locks.shared(NAME, ttl=LONG):
        with others.shared(NAME, ttl=LONGER, wait=0):
            assert remaining(locks) > LONG
        with others.shared(NAME, ttl=LONG / 2, wait=0) as brief:
            assert remaining(locks) > LONG
            brief.renew()
            brief.renew(LONG / 4)
            assert remaining(locks) > LONG
            assert brief.remaining < LONG / 4


def test_dead_readers_run_out_with_the_last_one(locks: Locks, others: Locks) -> None:
    dead = locks.shared(NAME, ttl=SHORT, renew=False)
    dead.acquire()
    with others.shared(NAME, ttl=10 * SHORT) as alive:
        eventually(lambda: not dead.held)
        alive.check()
        assert not locks.lease(NAME).acquire(blocking=False)
    assert others.lease(NAME, ttl=LONG).acquire(timeout=SECONDS)
    with pytest.raises(LockLost):
        dead.release()


def test_readers_are_renewed_while_they_hold_it(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    ttl = 1.0
    with locks.shared(NAME, ttl=ttl) as one, others.shared(NAME, ttl=ttl) as two:
        for _ in range(5):
            seen = lock_row(engine, locks, NAME).expires_at
            eventually(lambda seen=seen: lock_row(engine, locks, NAME).expires_at != seen)  # type: ignore[misc]
            one.check()
            two.check()
    assert not locks.lease(NAME).locked()


def test_readers_of_one_program_are_renewed_at_once(locks: Locks, others: Locks) -> None:
    """They share a row. The longest TTL of theirs counts, whichever is asked for first."""
    with locks.shared(NAME, ttl=5.0, renew=False) as lease:
        hold = inside(lease)._current()
        assert hold is not None
        for ttls in ((LONG, 1.0), (1.0, 2 * LONG)):
            asked = [Asked(Renewal(NAME, hold.token, ttl), hold.lease) for ttl in ttls]
            before = time.monotonic()
            outcomes, _ = run(locks, renew_all(locks._database.dialect, asked))
            assert [outcome.ttl for outcome in outcomes] == list(ttls)
            left = remaining(others)
            assert left + time.monotonic() - before > max(ttls) - 1.0


def test_each_reader_is_told_of_its_loss(new_locks: NewLocks, engine: Engine) -> None:
    told: list[LockLost] = []
    locks = new_locks()
    readers = [new_locks().shared(NAME, ttl=LONG, on_lost=told.append) for _ in range(2)]
    for reader in readers:
        reader.acquire()
    assert locks.release(NAME, force=True)
    assert locks.lease(NAME, ttl=LONG).acquire(blocking=False)
    for reader in readers:
        with pytest.raises(LockLost):
            reader.renew()
        assert not reader.held
        with pytest.raises(LockLost):
            reader.release()
    assert len(told) == 2


def test_a_reader_whose_time_is_over_is_told_though_others_go_on(
    locks: Locks, others: Locks
) -> None:
    reader = locks.shared(NAME, ttl=SHORT, renew=False)
    reader.acquire()
    with others.shared(NAME, ttl=LONG):
        eventually(reader.lost.is_set)
        assert not reader.held
        with pytest.raises(LockLost):
            reader.check()
        with pytest.raises(LockLost):
            reader.release()
        assert locks.show(NAME).readers == 1


def test_a_group_that_ran_out_is_not_joined(locks: Locks, others: Locks, engine: Engine) -> None:
    reader = locks.shared(NAME, ttl=LONG)
    reader.acquire()
    fence = reader.fence
    expire(engine, locks, NAME)
    with others.shared(NAME, ttl=LONG, wait=0) as later:
        assert later.fence > fence
        with pytest.raises(LockLost):
            reader.release()
        assert others.show(NAME).readers == 1


# --- what it proves ------------------------------------------------------------------------------


def test_a_guard_proves_that_nobody_has_written(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    reader = locks.shared(NAME, ttl=LONG)
    reader.acquire()
    with engine.connect() as connection, reader.guard(connection) as fence:
        assert fence == reader.fence
    expire(engine, locks, NAME)
    with others.lease(NAME, ttl=LONG, wait=0):
        pass
    with (
        engine.connect() as connection,
        pytest.raises(LockLost),
        reader.guard(connection),
    ):
        raise AssertionError("not reached")


def test_nobody_writes_while_a_readers_guard_is_open(
    new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    """Although the reader has gone, and the last of the others after it, and a writer waits."""
    locks = new_locks()
    if locks._database.dialect.traits.one_writer:
        return  # there a guard keeps out whoever writes
    guarded, last = locks.shared(NAME, ttl=LONG), new_locks().shared(NAME, ttl=LONG)
    guarded.acquire()
    last.acquire()
    with engine.connect() as connection:
        with guarded.guard(connection):
            writing = threads.start(new_locks().lease(NAME, ttl=LONG).acquire, timeout=SECONDS)
            eventually(lambda: queues(engine, locks))
            guarded.release()
            last.release()
        assert not new_locks().lease(NAME, ttl=LONG).acquire(timeout=2 * MOMENT)
        assert not writing.done()
        connection.commit()
    assert writing.result(SECONDS)


def test_a_guard_keeps_no_reader_out(locks: Locks, others: Locks, engine: Engine) -> None:
    if locks._database.dialect.traits.one_writer:
        return  # there a guard keeps out whoever writes
    with (
        locks.shared(NAME, ttl=LONG) as reader,
        engine.connect() as connection,
        reader.guard(connection),
        others.shared(NAME, ttl=LONG, wait=0) as other,
    ):
        other.renew()
        assert other.fence == reader.fence
