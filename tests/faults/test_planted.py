"""What a planted mutant would break and nothing else in the suite shows as directly."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, text
from sqlalchemy.engine import Engine
from tenacity import wait_fixed

from dblock import (
    Attempt,
    DeadlockDetected,
    LockLost,
    Locks,
    NotEnough,
    NotHeld,
    RetryPolicy,
    Timeouts,
    Unavailable,
)
from dblock.protocol import commands
from dblock.protocol.lease import ReleaseRequest
from dblock.protocol.release import release
from dblock.protocol.state import Granted
from dblock.protocol.steps import Execute, Procedure
from tests.conftest import SERVERS, NewDatabase
from tests.faults.conftest import GRANT, RENEW, Net
from tests.faults.proxy import SECONDS, Lose
from tests.servers import execute
from tests.support import Threads, eventually

LONG = 600.0
PAUSE = 0.6
ROWS = SERVERS  # whose locks are rows, so that two of them can be held


def expire(engine: Engine) -> None:
    """Let every lease be over by the database's clock, its holder knowing nothing of it."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE dblock_lock SET expires_at = '2000-01-01 00:00:00.000'"))


# --- ownership ---------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["release", "renew"])
def test_a_holder_that_was_taken_over(
    locks: Locks, others: Locks, engine: Engine, action: str
) -> None:
    # Of another length: SQLite's clock may not have moved between the grant and the renewal.
    stale, later = locks.lease("report", ttl=2 * LONG), others.lease("report", ttl=LONG)
    assert stale.acquire()
    expire(engine)
    assert later.acquire()
    before = others.show("report")
    with pytest.raises(LockLost, match="taken by another before it expired"):
        getattr(stale, action)()
    after = others.show("report")
    assert (after.fence, after.expires_at) == (before.fence, before.expires_at)
    later.release()


def test_a_holder_that_was_released_by_force(locks: Locks, others: Locks) -> None:
    for action in ("renew", "release"):
        lease = locks.lease("report", ttl=LONG)
        assert lease.acquire()
        assert others.release("report", force=True)
        with pytest.raises(LockLost) as caught:
            getattr(lease, action)()
        assert caught.value.reason == "forced"


def test_names_are_exact(locks: Locks) -> None:
    for name in ("a", "A", "á", "a "):
        assert locks.lease(name, ttl=LONG).acquire(blocking=False), name
    assert sorted(state.name for state in locks.list()) == sorted(["a", "A", "á", "a "])


# --- fences ------------------------------------------------------------------------------------


def test_a_try_that_began_before_another_hold_has_the_later_fence(
    locks: Locks, others: Locks
) -> None:
    """Trap 4: a number that is drawn when a try begins is older than the hold it is for."""
    first, between = others.lease("report", ttl=LONG), others.lease("report", ttl=LONG)
    fences: list[int] = []

    def meanwhile(attempt: Attempt) -> None:
        if not fences:
            fences.append(first.fence)
            first.release()
            with between:
                fences.append(between.fence)

    late = locks.lease("report", ttl=LONG, retry=RetryPolicy(before_sleep=meanwhile))
    assert first.acquire()
    with late:
        assert fences[0] < fences[1] < late.fence


def test_a_refused_take_from_the_queue_draws_no_fence(new_database: NewDatabase) -> None:
    """Trap 4 once more: the waiter asks with the same token again, after another hold."""

    def take(token: str) -> Procedure[Granted | None]:
        reply = yield Execute(commands.Take("report", token, "a waiter", LONG))
        granted: Granted | None = reply.answer
        return granted

    with Locks(new_database("postgresql", migrated=True).url) as locks:
        database = locks._database
        with locks.lease("report"):
            assert database.run(take("late")) is None
        between = database.run(take("between"))
        database.run(
            release(database.exchange("report"), ReleaseRequest("report", "between", None))
        )
        late = database.run(take("late"))
    assert between is not None
    assert late is not None
    assert between.fence < late.fence


def test_a_try_that_finds_a_newer_row_than_it_has_read_is_granted(
    new_database: NewDatabase, threads: Threads
) -> None:
    """The name was free when it was read, and is free once it is locked, but had another hold."""
    db = new_database("postgresql", migrated=True)
    engine = create_engine(db.url)
    stop = "SELECT pg_advisory_lock_shared(1)"
    stopped = (
        "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database "
        "WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
    )
    patient = Timeouts(connect=SECONDS, query=SECONDS, socket=2 * SECONDS)
    with (
        Locks(db.url, timeouts=patient) as locks,
        Locks(db.url) as others,
        engine.connect() as connection,
    ):
        with others.lease("report"), locks.lease("another"):  # so both know the tables' place
            pass
        connection.execute(text("SELECT pg_advisory_lock(1)"))
        late = locks.lease("report")
        grant = locks._database.dialect.query(commands.Grant("report", "", "", 1.0)).sql
        assert " AS open, " in grant
        vars(locks._database.dialect)["grant_new"] = grant.replace(
            " AS open, ", f" AS open, ({stop}) AS stop, "
        )
        trying = threads.start(late.acquire, blocking=False)
        eventually(lambda: execute(db.url, stopped) == [(1,)])
        with others.lease("report"):
            pass
        connection.execute(text("SELECT pg_advisory_unlock(1)"))
        assert trying.result(SECONDS)
        assert late.fence == 3
        late.release()
    engine.dispose()


# --- clocks ------------------------------------------------------------------------------------


def test_a_wrong_clock_here_takes_no_lease_from_others(
    locks: Locks, others: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() - 100_000)
    with locks.lease("report", ttl=LONG, wait=0) as lease:
        assert lease.fence == 1  # what was granted first was good, and not granted again
        assert not others.lease("report").acquire(blocking=False)
        lease.renew()
        assert not others.lease("report").acquire(blocking=False)


def test_a_transaction_that_began_before_the_expiry_sees_it(
    new_database: NewDatabase,
) -> None:
    db = new_database("postgresql", migrated=True)
    engine = create_engine(db.url)
    with Locks(db.url) as locks, engine.connect() as connection:
        assert locks.lease("report", ttl=0.1).acquire()
        connection.execute(text("SELECT now()"))
        deadline = time.monotonic() + SECONDS
        with Locks(db.url) as others:
            while others.lease("report").locked():
                assert time.monotonic() < deadline
            assert others.row("report", wait=0, on=connection).acquire()
    engine.dispose()


def test_a_renewal_does_not_wait_for_a_locked_row(new_database: NewDatabase) -> None:
    """Nor a release: both are told, at the latest at the holder's deadline."""
    db = new_database("postgresql", migrated=True)
    engine = create_engine(db.url)
    patience = Timeouts(query=0.2, socket=0.4)
    with Locks(db.url, timeouts=patience) as locks, engine.connect() as blocker:
        lease = locks.lease("report", ttl=1)
        assert lease.acquire()
        blocker.execute(text("SELECT FROM dblock_lock FOR UPDATE"))
        with pytest.raises(LockLost, match="expired"):
            lease.renew()
        with pytest.raises(LockLost, match="expired"):
            lease.release()
        lasting = locks.lease("another", ttl=LONG)
        assert lasting.acquire()
        blocker.execute(text("SELECT FROM dblock_lock FOR UPDATE"))
        with pytest.raises(Unavailable, match="could not be released"):
            lasting.release()
        assert not lasting.held
        blocker.rollback()
        lasting.release()
        with pytest.raises(NotHeld):
            lasting.release()
    engine.dispose()


def test_the_term_starts_before_the_request(net: Net) -> None:
    net.proxy.lose(Lose.NOTHING, GRANT, hook=lambda: time.sleep(PAUSE))
    lease = net.locks.lease("report", ttl=10, renew=False)
    assert lease.acquire()
    assert lease.remaining <= 9.0 - PAUSE
    net.proxy.lose(Lose.NOTHING, RENEW, hook=lambda: time.sleep(PAUSE))
    lease.renew()
    assert lease.remaining <= 9.0 - PAUSE


def test_a_sleep_ends_at_the_deadline() -> None:
    policy = RetryPolicy(wait=wait_fixed(100))
    assert policy.sleep_after("report", 1, 0.0, left=5.0) == 5.0
    assert policy.sleep_after("report", 1, 0.0, left=None) == 100.0
    assert policy.sleep_after("report", 1, 5.0, left=0.0) is None


# --- exclusion ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ROWS)
def test_a_lease_does_not_wait_for_a_row_lock(kind: str, new_database: NewDatabase) -> None:
    db = new_database(kind, migrated=True)
    with (
        Locks(db.url) as locks,
        Locks(db.url) as others,
        ThreadPoolExecutor(1) as pool,
        locks.row("order"),
    ):
        trying = pool.submit(others.lease("order").acquire, blocking=False)
        assert trying.result(5) is False


def test_a_row_lock_does_not_come_over_a_lease(locks: Locks, others: Locks) -> None:
    with locks.lease("order", ttl=LONG):
        assert not others.row("order").acquire(blocking=False)
    with others.row("order", wait=0):
        pass


def test_nor_in_the_users_transaction(locks: Locks, others: Locks, engine: Engine) -> None:
    with locks.lease("order", ttl=LONG), engine.connect() as connection:
        assert not others.row("order", on=connection).acquire(blocking=False)
    with engine.connect() as connection, others.row("order", wait=0, on=connection):
        pass


def test_in_a_pause_no_row_is_locked_in_the_users_transaction(new_database: NewDatabase) -> None:
    db = new_database("postgresql", migrated=True)
    engine = create_engine(db.url)
    with Locks(db.url) as locks:
        with locks.row("order"):
            pass
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE dblock_witness SET writer = pg_current_xact_id()::xid::text, "
                "grants_from = clock_timestamp() + interval '20 s'"
            )
        with engine.connect() as connection:
            assert not locks.row("order", on=connection).acquire(blocking=False)
    engine.dispose()


def test_a_thread_does_not_wait_for_itself(locks: Locks) -> None:
    lease = locks.lease("report", ttl=LONG)
    with lease, pytest.raises(DeadlockDetected):
        lease.acquire(timeout=0.2)


def test_several_locks_are_taken_in_the_order_of_their_names(locks: Locks) -> None:
    with locks.all(*(locks.lease(name, ttl=LONG) for name in ("c", "a", "b"))):
        taken = sorted(locks.list(), key=lambda state: (str(state.acquired_at), state.name))
        assert [state.name for state in taken] == ["a", "b", "c"]


# --- the guard ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ROWS)
def test_a_takeover_waits_for_a_guarded_transaction(kind: str, new_database: NewDatabase) -> None:
    db = new_database(kind, migrated=True)
    engine = create_engine(db.url)
    with Locks(db.url) as locks, Locks(db.url) as others, engine.connect() as connection:
        lease, rival = locks.lease("report", ttl=LONG), others.lease("report", ttl=LONG)
        assert lease.acquire()
        with lease.guard(connection):
            lease.renew()
            expire(engine)
            assert not rival.acquire(blocking=False)
        connection.commit()
        assert rival.acquire(blocking=False)
    engine.dispose()


def test_a_lease_that_is_over_guards_nothing(locks: Locks, engine: Engine) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    expire(engine)
    with (
        engine.connect() as connection,
        pytest.raises(LockLost),
        lease.guard(connection),
    ):
        pytest.fail("the guard let it in")


# --- counters ----------------------------------------------------------------------------------

metadata = MetaData()
stock = Table(
    "stock", metadata, Column("id", Integer, primary_key=True), Column("left_over", Integer)
)


def test_a_counter_stays_above_its_floor_and_counts_a_key_once(
    locks: Locks, engine: Engine
) -> None:
    metadata.create_all(engine)
    counter = locks.counter(stock.c.left_over, key=stock.c.id)
    with engine.begin() as connection:
        connection.execute(stock.insert().values(id=1, left_over=5))
        assert counter.take(connection, 1, 3, idempotency_key="order 1")
        with pytest.raises(NotEnough):
            counter.take(connection, 1, 3)
    with engine.begin() as connection:
        assert not counter.take(connection, 1, 2, idempotency_key="order 1")
        assert counter.value(connection, 1) == 2
