"""What is believed is told at the moment, each time once, to whoever observes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import LockLost, Locks
from dblock.dialects.query import Query
from dblock.locks import Locks as SyncLocks
from dblock.protocol.commands import Command, Release
from dblock.protocol.observer import Belief, Change
from tests.conftest import Database
from tests.contract.sessions import end_sessions
from tests.support import LONG, eventually

TTL = 1.0


class Told(list[tuple[Change, Belief]]):
    """What was told, in order."""

    def __call__(self, belief: Belief, change: Change) -> None:
        self.append((change, belief))

    @property
    def changes(self) -> list[Change]:
        return [change for change, _ in self]

    @property
    def last(self) -> Belief:
        return self[-1][1]


@pytest.fixture
def told(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> Told:
    observer = Told()
    monkeypatch.setattr(locks._database.runtime, "observer", observer)
    return observer


def test_from_a_grant_to_a_release(locks: Locks, told: Told) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    (granted,) = told
    assert granted == (Change.GRANTED, told.last)
    belief = told.last
    assert belief[:4] == ("lease", "report", lease.token, lease.fence)
    assert belief.term is not None
    assert belief.term.ttl == LONG
    assert belief.term.remaining(belief.term.start) >= lease.remaining
    lease.renew(2 * LONG)
    renewed = told.last
    assert renewed.term is not None
    assert renewed.term.ttl == 2 * LONG
    lease.release()
    assert told.changes == [Change.GRANTED, Change.RENEWED, Change.RELEASED]
    assert told.last == renewed


def test_before_the_statement_that_gives_it_back(
    locks: Locks, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[list[Change]] = []
    query = locks._database.dialect.query

    def releasing(command: Command[Any]) -> Query[Any]:
        if isinstance(command, Release):
            known.append(told.changes)
        return query(command)

    monkeypatch.setattr(locks._database.dialect, "query", releasing)
    with locks.lease("report"):
        pass
    assert known
    assert all(changes == [Change.GRANTED, Change.RELEASED] for changes in known)


def test_renewed_by_the_keeper(locks: Locks, told: Told) -> None:
    with locks.lease("report", ttl=TTL):
        first = told.last.term
        eventually(lambda: Change.RENEWED in told.changes)
        assert first is not None
        assert told.last.term is not None
        assert told.last.term.deadline > first.deadline


def test_an_earlier_end_is_believed_before_it_is_asked_for(locks: Locks, told: Told) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        lease.renew(LONG / 2)
        assert told.changes == [Change.GRANTED, Change.RENEWED, Change.RENEWED]
        assert [belief.term.ttl for _, belief in told if belief.term] == [LONG, LONG / 2, LONG / 2]


def test_lost_once(locks: Locks, others: Locks, told: Told) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    assert others.release("report", force=True)
    for _ in range(2):
        with pytest.raises(LockLost):
            lease.renew()
    with pytest.raises(LockLost):
        lease.release()
    assert told.changes == [Change.GRANTED, Change.LOST]


def test_a_loss_that_a_release_finds_out_was_believed_no_more(
    locks: Locks, others: Locks, told: Told
) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    assert others.release("report", force=True)
    with pytest.raises(LockLost):
        lease.release()
    assert told.changes == [Change.GRANTED, Change.RELEASED]


@pytest.mark.parametrize("kind", ["lease", "row"])
def test_what_is_granted_to_an_interrupted_call_is_abandoned(
    locks: Locks, told: Told, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr(SyncLocks._classes.lease, "_tell", interrupt)
    monkeypatch.setattr(SyncLocks._classes.row, "_tell", interrupt)
    lock = locks.lease("report") if kind == "lease" else locks.row("report")
    with pytest.raises(Interrupted):
        lock.acquire()
    assert told.changes == [Change.GRANTED, Change.ABANDONED]


def test_a_row_lock(locks: Locks, told: Told) -> None:
    with locks.row("order"):
        assert told == [(Change.GRANTED, Belief("row", "order"))]
    assert told.changes == [Change.GRANTED, Change.RELEASED]


def test_a_row_lock_in_the_users_transaction(locks: Locks, engine: Engine, told: Told) -> None:
    with engine.begin() as connection:
        assert locks.row("order", on=connection).acquire()
    assert told == [(Change.GRANTED, Belief("row", "order"))]  # the rest is the user's to know


def test_a_row_lock_that_is_lost(locks: Locks, db: Database, told: Told) -> None:
    row = locks.row("order")
    assert row.acquire()
    if end_sessions(db):  # a file's lock ends with its process alone
        with pytest.raises(LockLost):
            row.check()
    with contextlib.suppress(LockLost):
        row.release()
    assert told.changes in ([Change.GRANTED, Change.LOST], [Change.GRANTED, Change.RELEASED])
    assert (Change.LOST in told.changes) is (not locks._database.dialect.traits.one_writer)


def test_nobody_needs_to_observe(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: object) -> None:
        raise AssertionError("a belief is made for nobody")

    assert locks._database.runtime.observer is None
    monkeypatch.setattr(Belief, "__new__", made)
    with locks.lease("report"):
        pass


def test_before_anybody_can_act_on_it(
    locks: Locks, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = locks.lease("report")
    held: list[bool] = []
    monkeypatch.setattr(
        locks._database.runtime, "observer", lambda belief, change: held.append(lease.held)
    )
    with lease:
        pass
    assert held == [False, False]
