"""A row lock in the user's own transaction, which stays the user's."""

from __future__ import annotations

import threading
import time
from datetime import datetime

import pytest
from sqlalchemy import update
from sqlalchemy.engine import Engine

from dblock import Conflict, Locks, NotAcquired, Unsupported
from tests.conftest import Database
from tests.support import (
    BORROWED,
    LONG,
    MOMENT,
    TABLE,
    Facts,
    Threads,
    blocked,
    borrowed,
    named,
    settings,
    told_to_retry,
)

FAR_OFF = datetime(2100, 1, 1)
how_borrowed = pytest.mark.parametrize("how", BORROWED)


@how_borrowed
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_it_ends_with_the_transaction(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, threads: Threads, how: str, end: str
) -> None:
    with borrowed(engine, how) as on:
        row = locks.row("order", on=on)
        assert not row.held
        with row:
            assert row.held
            facts.add(on, 1)
        assert row.held  # beyond the block, as long as the transaction
        assert not threads.run(others.row("order").acquire, blocking=False)
        getattr(on, end)()
        assert not row.held
        with others.row("order", wait=0):
            pass
        # The next transaction can have it again.
        assert row.acquire(blocking=False)
        assert row.held
        on.rollback()
    assert facts.ids() == ({0, 1} if end == "commit" else {0})


def test_it_excludes_others_of_its_kind(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    def attempt(wait: float) -> bool:
        with borrowed(engine, "connection") as on:
            got = others.row("order", on=on).acquire(timeout=wait)
            on.rollback()
            return got

    with borrowed(engine, "connection") as on, locks.row("order", on=on):
        assert threads.run(attempt, 0) is False
        start = time.monotonic()
        assert threads.run(attempt, MOMENT) is False
        waited = time.monotonic() - start
        assert waited >= MOMENT
        assert waited - MOMENT < locks.timeouts.query / 2
        waiting = threads.start(attempt, LONG)
        threading.Event().wait(0.1)
        assert not waiting.done()
        on.commit()
        assert waiting.result(LONG) is True


def test_a_lock_twice_in_one_transaction(locks: Locks, engine: Engine) -> None:
    with borrowed(engine, "session") as on:
        assert locks.row("order", on=on).acquire()
        assert locks.row("order", on=on, wait=0).acquire()
        with locks.row("order", on=on), locks.row("another", on=on):
            pass
        on.commit()


@pytest.mark.parametrize("wait", [0, MOMENT])
def test_the_transaction_lives_on_after_a_refusal(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, wait: float
) -> None:
    held = others.lease("order", ttl=LONG)
    assert held.acquire()
    with borrowed(engine, "session") as on:
        facts.add(on, 1)
        row = locks.row("order", wait=wait, on=on)
        assert row.acquire() is False
        assert not row.held
        with pytest.raises(NotAcquired, match=r"held by .* others"), row:
            raise AssertionError("not reached")
        facts.add(on, 2)
        on.commit()
    assert facts.ids() == {0, 1, 2}
    held.release()


@pytest.mark.parametrize("wait", [0, MOMENT])
def test_the_transaction_lives_on_after_a_row_lock_refused_it(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, threads: Threads, wait: float
) -> None:
    together = threading.Barrier(2)

    def hold() -> None:
        with others.row("order"):
            together.wait(LONG)
            together.wait(LONG)

    holding = threads.start(hold)
    together.wait(LONG)
    with borrowed(engine, "session") as on:
        assert locks.row("order", wait=wait, on=on).acquire() is False
        together.wait(LONG)
        holding.result(LONG)
        facts.add(on, 1)
        assert locks.row("order", wait=LONG, on=on).acquire()
        on.commit()
    assert facts.ids() == {0, 1}


def test_no_setting_is_changed(locks: Locks, others: Locks, engine: Engine, db: Database) -> None:
    held = others.lease("held", ttl=LONG)
    assert held.acquire()
    with borrowed(engine, "session") as on:
        before = settings(on, db.kind)
        on.rollback()
        for wait in (0, 0.05):
            for name, got in (("free", True), ("held", False)):
                assert locks.row(name, wait=wait, on=on).acquire() is got
                assert settings(on, db.kind) == before
            on.commit()
            assert settings(on, db.kind) == before
            on.rollback()
        assert locks.row("new, without a deadline", on=on).acquire()
        assert settings(on, db.kind) == before
        on.commit()
    held.release()


def test_no_setting_is_changed_by_waiting(
    locks: Locks, engine: Engine, db: Database, threads: Threads
) -> None:
    with locks.row("order"):
        pass
    with borrowed(engine, "connection") as on:
        before = settings(on, db.kind)
        on.rollback()
        with blocked(engine, locks, "order"):
            assert not threads.run(locks.row("order", wait=MOMENT, on=on).acquire)
            assert settings(on, db.kind) == before
        assert locks.row("order", wait=LONG, on=on).acquire()
        assert settings(on, db.kind) == before
        on.rollback()
        assert settings(on, db.kind) == before


def test_it_commits_with_the_data(locks: Locks, others: Locks, engine: Engine) -> None:
    """dblock itself neither commits nor rolls back."""
    facts = Facts(engine)
    with borrowed(engine, "session") as on:
        facts.add(on, 1)
        with locks.row("order", on=on):
            facts.add(on, 2)
        assert facts.ids() == {0}
        assert on.in_transaction()  # type: ignore[union-attr]
        on.rollback()
    assert facts.ids() == {0}
    with others.row("order", wait=0):
        pass


def test_a_failing_body_leaves_the_end_to_the_user(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    with borrowed(engine, "session") as on:
        with pytest.raises(KeyError), locks.row("order", on=on):
            raise KeyError("of the body")
        assert not threads.run(others.row("order").acquire, blocking=False)
        on.rollback()
    with others.row("order", wait=0):
        pass


def test_it_is_not_released(locks: Locks, engine: Engine) -> None:
    with borrowed(engine, "connection") as on:
        row = locks.row("order", on=on)
        with row, pytest.raises(Unsupported, match="ends with it: commit or roll that back"):
            row.release()
        assert row.held
        on.commit()


def test_a_missing_row_is_made_without_harm(
    locks: Locks, others: Locks, engine: Engine, facts: Facts
) -> None:
    with borrowed(engine, "session") as on:
        facts.add(on, 1)
        for number in range(10):
            assert locks.row(f"order:{number}", wait=0, on=on).acquire()
        facts.add(on, 2)
        on.commit()
    assert facts.ids() == {0, 1, 2}


def test_two_make_the_same_row(locks: Locks, engine: Engine, threads: Threads) -> None:
    for number in range(10):
        together = threading.Barrier(2)

        def take(name: str, together: threading.Barrier) -> None:
            with borrowed(engine, "connection") as on:
                together.wait(LONG)
                with locks.row(name, wait=LONG, on=on):
                    on.commit()

        for _ in range(2):
            threads.start(take, f"order:{number}", together)
        threads.join()


def test_a_lease_granted_while_the_row_was_waited_for(
    locks: Locks, engine: Engine, threads: Threads
) -> None:
    """The waiter was first in line, and yet does not stand in the way of the lease's release."""
    with locks.row("order"):
        pass
    grant = (
        update(TABLE).where(named(locks, "order")).values(token="f" * 32, fence=TABLE.c.fence + 1)
    )

    def take() -> bool:
        with borrowed(engine, "connection") as on:
            try:
                return locks.row("order", on=on).acquire(timeout=LONG)
            except Conflict as conflict:
                # Refused here it holds the row until its end, so that comes at once.
                told_to_retry(conflict)
                assert locks._database.dialect.traits.refusal_holds
                return False

    with engine.connect() as other:
        if locks._database.dialect.traits.one_writer:
            other.exec_driver_sql("BEGIN IMMEDIATE")
        other.execute(grant.values(expires_at=FAR_OFF))
        taking = threads.start(take)
        threading.Event().wait(MOMENT)  # until it waits in the server
        assert not taking.done()
        other.commit()
    if locks._database.dialect.traits.refusal_holds:
        assert taking.result(LONG) is False
    else:
        threading.Event().wait(MOMENT)  # until it waits for the lease's end
        assert not taking.done()
    start = time.monotonic()
    assert locks.release("order", force=True)
    assert time.monotonic() - start < locks.timeouts.query / 2
    assert taking.result(LONG) is not locks._database.dialect.traits.refusal_holds
