"""Locks in the user's transactions of the stricter isolation levels.

A snapshot that is older than the row's last change cannot lock it on PostgreSQL, nor write at all
on SQLite; InnoDB's locking reads see the newest row whatever the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from dblock import Conflict, Locks
from tests.conftest import Database
from tests.support import (
    BORROWED,
    LONG,
    MOMENT,
    Borrowed,
    Facts,
    borrowed,
    settings,
    told_to_retry,
)
from tests.worlds.world import World


@pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
def strict(db: Database, world: World, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The user's engine, with transactions of a stricter level. SQLite has just one level."""
    level = "SERIALIZABLE" if db.kind == "sqlite" else request.param
    made = world.engine(db.users_url, isolation_level=level)
    yield made
    made.dispose()


def begin(on: Borrowed, locks: Locks, facts: Facts) -> None:
    """Begin a transaction whose snapshot is taken now."""
    if locks._database.dialect.traits.one_writer:
        on.execute(text("BEGIN"))  # which the driver itself leaves to the first write
    facts.read(on)


def sees_only_its_snapshot(locks: Locks) -> bool:
    traits = locks._database.dialect.traits
    return traits.failure_aborts or traits.one_writer


@pytest.mark.parametrize("how", BORROWED)
def test_a_lock_taken_first(
    locks: Locks, others: Locks, strict: Engine, facts: Facts, how: str
) -> None:
    for turn in range(3):
        with others.lease("order", ttl=LONG):
            pass
        with borrowed(strict, how) as on, locks.row("order", wait=LONG if turn else 0, on=on):
            facts.write(on, facts.read(on) + 1)
            on.commit()
    assert facts.n == 3


@pytest.mark.parametrize("wait", [0, MOMENT, None])
def test_a_snapshot_older_than_the_row(
    locks: Locks, others: Locks, strict: Engine, facts: Facts, wait: float | None
) -> None:
    with others.lease("order", ttl=LONG):
        pass
    with borrowed(strict, "session") as on:
        begin(on, locks, facts)
        with others.lease("order", ttl=LONG):
            pass
        row = locks.row("order", wait=wait, on=on)
        if sees_only_its_snapshot(locks):
            with pytest.raises(Conflict, match="Retry the whole transaction") as caught:
                row.acquire()
            assert caught.value.name == "order"
            on.rollback()
        assert row.acquire()
        facts.add(on, 1)
        on.commit()
    assert facts.ids() == {0, 1}


def test_a_lease_is_in_the_way(locks: Locks, others: Locks, strict: Engine, facts: Facts) -> None:
    held = others.lease("order", ttl=LONG)
    assert held.acquire()
    with borrowed(strict, "session") as on:
        assert locks.row("order", wait=0, on=on).acquire() is False
        on.rollback()
        held.release()
        assert locks.row("order", wait=0, on=on).acquire() is True
        facts.add(on, 1)
        on.commit()
    assert facts.ids() == {0, 1}


def test_a_new_name(locks: Locks, strict: Engine, facts: Facts) -> None:
    """Its row is made from outside, at the cost of one repetition under a strict snapshot."""
    with borrowed(strict, "session") as on:
        try:
            assert locks.row("new", wait=LONG, on=on).acquire()
        except Conflict as conflict:
            assert locks._database.dialect.traits.failure_aborts
            told_to_retry(conflict)
            on.rollback()
            assert locks.row("new", wait=LONG, on=on).acquire()
        facts.add(on, 1)
        on.commit()
    assert facts.ids() == {0, 1}


def test_the_level_stays(locks: Locks, strict: Engine, facts: Facts, db: Database) -> None:
    with locks.row("order"):
        pass
    with borrowed(strict, "session") as on:
        before = settings(on, db.kind)
        on.rollback()
        assert locks.row("order", on=on).acquire()
        assert settings(on, db.kind) == before
        on.commit()
        assert settings(on, db.kind) == before


def test_the_guard_after_renewals(locks: Locks, strict: Engine, facts: Facts) -> None:
    """Renewals since the snapshot do not disturb it, where rows are locked and not the file."""
    with locks.lease("order", ttl=LONG) as lease:
        lease.renew()
        with borrowed(strict, "session") as on:
            begin(on, locks, facts)
            lease.renew()
            lease.renew()
            try:
                with lease.guard(on):
                    facts.add(on, 1)
            except Conflict as conflict:
                assert locks._database.dialect.traits.one_writer
                told_to_retry(conflict)
                on.rollback()
                with lease.guard(on):
                    facts.add(on, 1)
            on.commit()
    assert facts.ids() == {0, 1}


def test_the_guard_of_a_lease_newer_than_the_snapshot(
    locks: Locks, strict: Engine, facts: Facts
) -> None:
    """It is held, so that it would be wrong to call it lost."""
    lease = locks.lease("order", ttl=LONG)
    with lease:
        pass
    with borrowed(strict, "session") as on:
        begin(on, locks, facts)
        with lease:
            try:
                with lease.guard(on):
                    facts.add(on, 1)
            except Conflict as conflict:
                assert sees_only_its_snapshot(locks)
                told_to_retry(conflict)
                lease.check()
                on.rollback()
                with lease.guard(on):
                    facts.add(on, 1)
            on.commit()
    assert facts.ids() == {0, 1}
