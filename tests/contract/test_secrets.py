"""Nobody but its holder is given a token; nothing in a label reaches a terminal or a log raw."""

from __future__ import annotations

import logging
import pickle
from dataclasses import asdict

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError

from dblock import DeadlockDetected, Lease, LockLost, Locks, NotAcquired
from dblock.events import LockEvent, listen
from tests.conftest import NewDatabase
from tests.contract.conftest import NewLocks
from tests.support import LONG, SECONDS, Threads, eventually, expire

# A line that is not in the log, an erased screen, and text that reads from right to left.
EVIL = "a\n2026-01-01 ERROR forged\r\x1b[2J\u202eb"
HARMLESS = r"a\n2026-01-01 ERROR forged\r\x1b[2J\u202eb"


def refused_by(lease: Lease) -> NotAcquired:
    with pytest.raises(NotAcquired) as caught:
        lease.__enter__()
    return caught.value


def all_of(value: object) -> str:
    return f"{value!r} {value} {pickle.dumps(value)!r}"


def test_nobody_else_is_given_a_token(
    locks: Locks, others: Locks, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    events: list[LockEvent] = []
    end = listen(events.append)
    lease, later = locks.lease("report", ttl=LONG), others.lease("report", ttl=LONG)
    assert lease.acquire()
    tokens = [lease.token]
    told = []
    refusal = refused_by(others.lease("report", wait=0))
    for state in (refusal.holder, others.show("report"), *others.list()):
        assert state is not None
        assert state.held
        assert not hasattr(state, "token")
        told += [all_of(state), all_of(asdict(state))]
    told += [all_of(refusal)]

    expire(engine, locks, "report")
    (state,) = others.list()
    assert not state.held
    assert (state.remaining or 0) < 0
    told += [all_of(state)]
    assert later.acquire(blocking=False)
    tokens += [later.token]
    with pytest.raises(LockLost) as caught:
        lease.release()
    told += [all_of(caught.value)]
    assert locks.release("report", force=True)
    assert locks.show("report").remaining is None
    with pytest.raises(LockLost) as caught:
        later.renew()
    told += [all_of(caught.value)]
    with locks.lease("handed over", ttl=LONG) as lease:
        tokens += [lease.token]
        text = lease.detach()
    with others.attach(text, ttl=LONG) as taken:
        tokens += [taken.token]
        told += [repr(taken)]
        with pytest.raises(LockLost) as caught:
            locks.attach(text).acquire()
        told += [all_of(caught.value)]
    end()

    told += [all_of(event) for event in events]
    told += [f"{record.getMessage()} {record.args}" for record in caplog.records]
    assert len(events) >= 4
    assert [token for token in tokens if any(token in text for text in told)] == []


def test_nothing_in_a_label_is_raw_where_people_read_it(
    new_locks: NewLocks, engine: Engine, threads: Threads, caplog: pytest.LogCaptureFixture
) -> None:
    """Its name may be as evil as its label."""
    caplog.set_level(logging.DEBUG)
    events: list[LockEvent] = []
    end = listen(events.append)
    locks, others = new_locks(label=EVIL), new_locks()
    lease = locks.lease(EVIL, ttl=LONG)
    assert lease.acquire()
    refusal = refused_by(others.lease(EVIL, wait=0))

    waiting = threads.start(others.lease(EVIL, label=EVIL).acquire)
    eventually(lambda: bool(locks.show(EVIL).waiters))
    (waiter,) = locks.show(EVIL).waiters
    lease.release()
    assert waiting.result(SECONDS)
    end()

    assert refusal.holder is not None
    assert refusal.name == EVIL  # exact, as data
    assert (refusal.holder.owner or "").endswith(EVIL)
    assert waiter.owner.endswith(EVIL)
    said = [str(refusal), refusal.holder.describe()]
    said += [waiter.describe()]
    assert all(HARMLESS in text for text in said)

    said += [str(event) for event in events]
    said += [record.getMessage() for record in caplog.records if record.name.startswith("dblock")]
    assert len(events) >= 4
    assert [text for text in said if not text.isprintable()] == []


def test_a_label_in_a_cycle(new_locks: NewLocks, threads: Threads) -> None:
    one, two = new_locks(label=EVIL), new_locks(label=EVIL)
    with one.lease("a", ttl=LONG):
        taken = threads.start(lambda: both(two))
        eventually(lambda: bool(one.show("a").waiters))
        with pytest.raises(DeadlockDetected) as caught:
            one.lease("b", ttl=LONG).acquire()
    assert taken.result(SECONDS)
    assert HARMLESS in str(caught.value)
    assert str(caught.value).isprintable()
    assert {owner[-len(EVIL) :] for _, owner in caught.value.cycle} == {EVIL}


def both(locks: Locks) -> bool:
    with locks.lease("b", ttl=LONG), locks.lease("a", ttl=LONG):
        return True


def test_an_error_in_the_users_transaction_does_not_quote_it(new_database: NewDatabase) -> None:
    """SQLAlchemy adds a statement's parameters to errors that are passed on as they are."""
    database = new_database("sqlite", migrated=True)
    engine = create_engine(database.url)
    with (
        Locks(database.url) as locks,
        locks.lease("a", ttl=LONG) as lease,
        engine.connect() as connection,
    ):
        connection.exec_driver_sql(
            "CREATE TEMP TRIGGER strange BEFORE UPDATE ON main.dblock_lock "
            "BEGIN SELECT RAISE(ABORT, 'strange'); END"
        )
        with pytest.raises(IntegrityError, match="strange") as caught, lease.guard(connection):
            pass
        assert lease.token not in str(caught.value)
        connection.rollback()
    engine.dispose()
