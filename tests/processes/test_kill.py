"""A holder is killed with SIGKILL: its locks end as promised, nobody else's do."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from dblock import Locks
from tests.conftest import Database
from tests.processes.workers import SECONDS, Process, hold, want

LONG = 600.0
SHORT = 2.0
SLACK = 30.0  # for a busy machine; what is asserted with it is "some time", not "soon"


def test_a_killed_holder_frees_its_row_at_once(db: Database) -> None:
    with Locks(db.url) as locks:
        others_rows = [] if locks._database.dialect.traits.one_writer else ["other row"]
        # One after the other: on a database with one writer a row lock keeps all others out.
        with ExitStack() as stack:
            other = stack.enter_context(Process(hold, db.url, {"other lease": LONG}, others_rows))
            assert other.message() == "held"
            victim = stack.enter_context(Process(hold, db.url, {"lease": LONG}, ["row"]))
            assert victim.message() == "held"
            waiter = stack.enter_context(Process(want, db.url, "row"))
            assert waiter.message() == "waiting"
            if not locks._database.dialect.traits.one_writer:
                assert not locks.row("row").acquire(blocking=False)
            victim.kill()
            start = time.monotonic()
            assert waiter.message() == "locked"
            assert time.monotonic() - start < SLACK
            # By the yardstick of the victim's own lease, that took no time.
            state = locks.show("lease")
            assert state.held
            assert state.remaining is not None
            assert state.remaining > LONG - SECONDS
            for name in others_rows:
                assert not locks.row(name).acquire(blocking=False)
            other.go_on()
            assert other.message() == [True] * (1 + len(others_rows))


def test_a_killed_holders_lease_is_free_at_its_expiry_and_not_before(db: Database) -> None:
    with (
        Locks(db.url) as locks,
        Process(hold, db.url, {"other lease": LONG}, []) as other,
        Process(hold, db.url, {"lease": SHORT}, []) as victim,
    ):
        assert other.message() == "held"
        assert victim.message() == "held"
        victim.kill()
        left = locks.show("lease")
        assert left.expires_at is not None
        successor = locks.lease("lease", ttl=LONG, wait=SECONDS)
        assert successor.acquire()
        state = locks.show("lease")
        assert state.acquired_at is not None
        # Both by the database's clock, which SQLite tells to the millisecond.
        assert state.acquired_at >= left.expires_at
        assert (state.acquired_at - left.expires_at).total_seconds() < SLACK
        assert successor.fence == left.fence + 1
        successor.release()
        other.go_on()
        assert other.message() == [True]


@pytest.mark.parametrize("strategy", ["lease", "row"])
def test_a_killed_waiter_leaves_nothing_behind(db: Database, strategy: str) -> None:
    with Locks(db.url) as locks, Process(want, db.url, "name") as waiter:
        holder = getattr(locks, strategy)("name")
        if not holder.acquire(timeout=SECONDS):
            pytest.fail("the waiter was faster, and has kept it")
        waiter.kill()
        holder.check()
        holder.release()
        with locks.row("name", wait=SECONDS), Locks(db.url) as others:
            assert not others.lease("name").acquire(blocking=False)
