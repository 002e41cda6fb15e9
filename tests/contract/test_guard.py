"""A stale holder cannot commit: the lease is proved in the user's transaction until its end."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from dblock import Conflict, Lease, LockLost, Locks, NotHeld, RowLock
from dblock.holding.database import Database
from tests import lending
from tests.support import (
    BORROWED,
    LONG,
    MOMENT,
    SECONDS,
    SHORT,
    Facts,
    Threads,
    borrowed,
    eventually,
    expire,
    settings,
)
from tests.worlds.behind import held_up
from tests.worlds.world import World

how_borrowed = pytest.mark.parametrize("how", BORROWED)
ENOUGH = 2.0  # a TTL that lasts until the guard is there, and ends while the test waits for it


@how_borrowed
def test_a_holder_commits(
    locks: Locks, engine: Engine, facts: Facts, db: lending.Database, how: str
) -> None:
    with locks.lease("report", ttl=LONG) as lease, borrowed(engine, how) as on:
        before = settings(on, db.kind)
        on.rollback()
        with lease.guard(on) as fence:
            assert fence == lease.fence
            facts.add(on, 1)
            on.commit()  # inside
        with lease.guard(on):
            facts.add(on, 2)
            assert settings(on, db.kind) == before
        on.commit()  # or after
        assert settings(on, db.kind) == before
        on.rollback()
        with contextlib.suppress(KeyError), lease.guard(on):
            facts.add(on, 3)
            raise KeyError("of the body")
        on.rollback()
    assert facts.ids() == {0, 1, 2}


@pytest.mark.parametrize("ended", ["expired", "expired and taken", "forced"])
def test_a_stale_holder_does_not(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, ended: str
) -> None:
    told: list[LockLost] = []
    lease, later = locks.lease("report", ttl=LONG, on_lost=told.append), others.lease("report")
    assert lease.acquire()
    if ended == "forced":
        others.release("report", force=True)
    else:
        expire(engine, locks, "report")
    if ended == "expired and taken":
        assert later.acquire(blocking=False)
    with borrowed(engine, "session") as on:
        facts.add(on, 1)
        with pytest.raises(LockLost) as caught, lease.guard(on):
            raise AssertionError("not reached")
        reason = "expired" if ended == "expired" else "forced"  # by its own clock it was early
        assert (caught.value.name, caught.value.reason) == ("report", reason)
        assert told == [caught.value]
        assert not lease.held
        facts.add(on, 2)  # the transaction is the user's, to end as they like
        on.rollback()
        with pytest.raises(LockLost), lease.guard(on):  # and again
            raise AssertionError("not reached")
    assert facts.ids() == {0}


def test_past_the_holders_own_deadline(locks: Locks, engine: Engine) -> None:
    lease = locks.lease("report", ttl=SHORT, renew=False)
    assert lease.acquire()
    eventually(lambda: not lease.held)
    with borrowed(engine, "session") as on, pytest.raises(LockLost) as caught, lease.guard(on):
        raise AssertionError("not reached")
    assert caught.value.reason == "expired"


def test_without_a_hold(locks: Locks, engine: Engine) -> None:
    lease = locks.lease("report")
    with borrowed(engine, "session") as on, pytest.raises(NotHeld), lease.guard(on):
        raise AssertionError("not reached")


def test_a_takeover_waits_for_the_guarded_transaction(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, threads: Threads
) -> None:
    one_writer = locks._database.dialect.traits.one_writer
    lease = locks.lease("report", ttl=ENOUGH if one_writer else LONG, renew=False)
    assert lease.acquire()
    begun: list[str] = []

    def take(lock: Lease | RowLock) -> int:
        begun.append(lock.name)
        with lock:
            return facts.n

    def take_in_a_transaction() -> int:
        begun.append("report")
        # A lease may come in between, on SQLite: then the transaction has to begin anew.
        again = [Conflict] if one_writer else []
        while True:
            with borrowed(engine, "connection") as on, contextlib.suppress(*again):
                assert others.row("report", on=on).acquire()
                return facts.read(on)

    with borrowed(engine, "session") as on, lease.guard(on):
        facts.write(on, 7)
        if not one_writer:
            expire(engine, locks, "report")
        eventually(lambda: not lease.locked())  # by the database's clock
        assert not threads.run(others.lease("report").acquire, blocking=False)
        assert not threads.run(others.row("report").acquire, blocking=False)
        taking = [
            threads.start(take, others.lease("report", ttl=LONG)),
            threads.start(take, others.row("report")),
            threads.start(take_in_a_transaction),
        ]
        eventually(lambda: len(begun) == len(taking))
        threading.Event().wait(MOMENT)
        assert not any(one.done() for one in taking)
        on.commit()
    assert [one.result(LONG) for one in taking] == [7, 7, 7]
    with pytest.raises(LockLost):
        lease.renew()


def test_the_holders_renewal_does_not_wait(
    locks: Locks, engine: Engine, facts: Facts, threads: Threads
) -> None:
    """Except where one transaction writes at a time."""
    with locks.lease("report", ttl=LONG) as lease:
        with borrowed(engine, "session") as on, lease.guard(on):
            facts.add(on, 1)
            renewing = threads.start(lease.renew)
            if locks._database.dialect.traits.one_writer:
                threading.Event().wait(MOMENT)
                assert not renewing.done()
            else:
                renewing.result(LONG)
            with lease.guard(on):  # after it, and in the same transaction again
                facts.add(on, 2)
            on.commit()
        renewing.result(LONG)
    assert facts.ids() == {0, 1, 2}


@pytest.mark.parametrize("force", [False, True])
def test_a_release_during_the_guard(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, threads: Threads, force: bool
) -> None:
    """The name is free, and yet the next grant waits for the guarded transaction."""
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    later = others.lease("report", ttl=LONG)
    with borrowed(engine, "session") as on:
        with lease.guard(on):
            facts.write(on, 7)
            if force:
                releasing = threads.start(lambda: others.release("report", force=True) or None)
            else:
                releasing = threads.start(lease.release)
            if not locks._database.dialect.traits.one_writer:
                releasing.result(LONG)
                assert not lease.locked()
            assert not threads.run(later.acquire, blocking=False)
            taking = threads.start(later.acquire)
            threading.Event().wait(MOMENT)
            assert not taking.done()
        on.commit()
    assert taking.result(LONG)
    assert facts.n == 7
    later.release()


@pytest.mark.parametrize("kind", ["lease", "shared", "slot"])
def test_a_release_beside_a_guard_is_no_loss(
    locks: Locks, engine: Engine, threads: Threads, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whoever looks finds the row free by our own release: nobody has forced anything."""
    told: list[LockLost] = []
    if kind == "slot":
        semaphore = locks.semaphore("report", 2, ttl=LONG, on_lost=told.append)
        assert semaphore.acquire()
        lease = semaphore.slot
    else:
        lease = getattr(locks, kind)("report", ttl=LONG, on_lost=told.append)
        assert lease.acquire()
    lost, begun, go_on = lease.lost, threading.Event(), threading.Event()
    borrow = Database.borrow

    def slowly(*args: Any) -> Any:
        begun.set()
        assert held_up(go_on.wait, SECONDS)
        return borrow(*args)

    def guard() -> None:
        with (
            borrowed(engine, "session") as on,
            pytest.raises(NotHeld, match="is not held"),
            lease.guard(on),
        ):
            raise AssertionError("not reached")

    monkeypatch.setattr(Database, "borrow", slowly)
    guarding = threads.start(guard)
    assert begun.wait(SECONDS)
    lease.release()
    go_on.set()
    guarding.result(SECONDS)
    with locks.lease("report", ttl=LONG):
        pass
    assert not told
    assert not lost.is_set()


def test_guards_do_not_exclude_each_other(locks: Locks, engine: Engine, facts: Facts) -> None:
    """Several transactions of one holder; on a database with one writer, and on a node of a
    cluster, one after the other."""
    with locks.lease("report", ttl=LONG) as lease, borrowed(engine, "session") as one:
        with lease.guard(one):
            pass
        place = locks._database.dialect.place
        if locks._database.dialect.traits.one_writer or (place is not None and place.clustered):
            one.commit()
        with borrowed(engine, "session") as two, lease.guard(two):
            facts.add(two, 2)
            two.commit()
        one.commit()
    assert facts.ids() == {0, 2}


def test_stale_after_a_takeover_since_the_snapshot(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, db: lending.Database, world: World
) -> None:
    level = "SERIALIZABLE" if db.kind == "sqlite" else "REPEATABLE READ"
    strict = world.engine(db.users_url, isolation_level=level)
    lease, later = locks.lease("report", ttl=LONG), others.lease("report", ttl=LONG)
    assert lease.acquire()
    with borrowed(strict, "session") as on:
        if locks._database.dialect.traits.one_writer:
            on.execute(text("BEGIN"))  # which the driver itself leaves to the first write
        facts.read(on)
        expire(engine, locks, "report")
        assert later.acquire(blocking=False)
        with pytest.raises(LockLost) as caught, lease.guard(on):
            raise AssertionError("not reached")
        assert caught.value.reason == "forced"  # by its own clock it was early
        on.rollback()
    strict.dispose()
    later.release()
