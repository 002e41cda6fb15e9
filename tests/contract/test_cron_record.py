"""The record of runs says what is true, whoever comes late and whatever was lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, delete, insert, update
from sqlalchemy.engine import Engine
from sqlalchemy.schema import MetaData

from dblock import DBLockError, LockLost, Locks, RunState
from dblock.protocol.commands import BeginRun, Command, ForgetRun
from dblock.schema.tables import tables
from tests.contract.conftest import NewLocks
from tests.lending import Database
from tests.support import LONG, TABLE, Threads

RUN = tables(MetaData())["run"]


@pytest.fixture
def below(db: Database) -> Iterator[Engine]:
    """The database without dblock, and without the world's event loop."""
    made = create_engine(db.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    yield made
    made.dispose()


def begin(locks: Locks, below: Engine, slot: str, fence: int) -> None:
    """What is sent when a run begins, and now only is run by the server."""
    query = locks._database.dialect.query(BeginRun("a", slot, fence, "late"))
    with below.connect() as connection:
        for step in query.steps():
            connection.exec_driver_sql(step.sql, step.params)


def last(locks: Locks) -> RunState:
    found = locks.last_run("a")
    assert found is not None
    return found


@pytest.mark.parametrize("slot", ["slot", None])
@pytest.mark.parametrize("failed", [False, True])
def test_a_run_that_begins_late_does_not_touch_the_next(
    locks: Locks, others: Locks, threads: Threads, below: Engine, slot: str | None, failed: bool
) -> None:
    """Its statement arrives when the hold is lost and the next one's run is over."""

    @locks.cron("a", once_for=slot, ttl=LONG)
    def first() -> None:
        fence = first.lease.fence
        locks.release("a", force=True)
        if failed:
            with pytest.raises(KeyError):
                threads.run(second)
        else:
            assert threads.run(second) == "done"
        record = last(others)
        begin(locks, below, slot or "", fence)
        assert last(others) == record

    @others.cron("a", once_for=slot, ttl=LONG)
    def second() -> str:
        if failed:
            raise KeyError("it failed")
        return "done"

    with pytest.raises(LockLost):
        first()
    assert last(locks).exit_status == int(failed)


@pytest.mark.parametrize("failed", [False, True])
def test_a_run_that_begins_twice(locks: Locks, below: Engine, failed: bool) -> None:
    """The second time it is late, and the run is over."""
    fences: list[int] = []

    @locks.cron("a", ttl=LONG)
    def job() -> None:
        record = last(locks)
        fences.append(job.lease.fence)
        begin(locks, below, "", fences[0])
        assert last(locks) == record
        if failed:
            raise KeyError("it failed")

    if failed:
        with pytest.raises(KeyError):
            job()
    else:
        job()
    record = last(locks)
    assert record.exit_status == int(failed)
    begin(locks, below, "", fences[0])
    assert last(locks) == record


@pytest.mark.parametrize("granted", [True, False])
def test_a_run_that_another_is_ahead_of_does_not_begin(
    locks: Locks, below: Engine, monkeypatch: pytest.MonkeyPatch, granted: bool
) -> None:
    """Of a later hold, or of a lock table whose rows were deleted since."""
    query, key = locks._database.dialect.query, locks._database.dialect.key("a")

    def overtaken(command: Command[Any]) -> object:
        if not isinstance(command, BeginRun):
            return query(command)
        fence = command.fence
        with below.connect() as connection:
            values = {"lock_name": key, "slot": key, "fence": fence + 1, "owner": "other"}
            clock = TABLE.c.acquired_at
            moment = connection.execute(TABLE.select().with_only_columns(clock)).scalar_one()
            connection.execute(insert(RUN).values(values | {"started_at": moment}))
            if granted:
                connection.execute(update(TABLE).values(fence=fence + 1))
        return query(command)

    monkeypatch.setattr(locks._database.dialect, "query", overtaken)
    count: list[int] = []
    job = locks.cron("a", once_for="a")(lambda: count.append(1))
    with pytest.raises(LockLost if granted else DBLockError, match="fence"):
        job()
    assert count == []
    assert last(locks).owner == "other"


def test_what_reopens_a_slot_late_does_not_touch_the_next_run(locks: Locks, below: Engine) -> None:
    job = locks.cron("a", once_for="slot")(lambda: "done")
    assert job() == "done"
    query = locks._database.dialect.query(ForgetRun("a", "slot", last(locks).fence))
    assert locks.reopen("a", "slot")
    assert job() == "done"
    record = last(locks)
    with below.connect() as connection:
        for step in query.steps():
            connection.exec_driver_sql(step.sql, step.params)
    assert last(locks) == record
    assert job() is None


def test_the_end_of_a_run_that_is_not_on_record(locks: Locks, below: Engine) -> None:
    @locks.cron("a", once_for="slot", ttl=LONG)
    def job() -> None:
        with below.connect() as connection:
            connection.execute(delete(RUN))

    with pytest.raises(DBLockError, match="not on record"):
        job()
    assert not job.lease.held
    assert not locks.show("a").held


def test_a_run_that_lost_its_lease_is_no_success(
    locks: Locks, new_locks: NewLocks, threads: Threads
) -> None:
    """Also where nobody else has run since."""

    @locks.cron("a", once_for="slot", ttl=LONG)
    def job() -> None:
        locks.release("a", force=True)

    with pytest.raises(LockLost):
        job()
    assert last(locks).exit_status == 1
    assert new_locks().cron("a", once_for="slot")(lambda: "ran")() == "ran"
