"""What happens to locks is told to hooks and to the log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest
from sqlalchemy.engine import Engine

from dblock import (
    Conflict,
    DeadlockDetected,
    LockLost,
    Locks,
    NotAcquired,
    OutcomeUnknown,
    Unavailable,
)
from dblock.events import Kind, LockEvent, listen, outcome
from tests.support import LONG, SHORT, blocked, eventually


class Told(list[LockEvent]):
    def kinds(self) -> list[Kind]:
        return [event.kind for event in self]


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()
    end = listen(made.append)
    yield made
    end()
    end()


def test_a_lease_and_a_row_lock(locks: Locks, others: Locks, told: Told) -> None:
    with locks.lease("a", ttl=LONG):
        refused = others.lease("a", wait=0)
        assert not refused.acquire()
    with locks.row("b", wait=5):
        pass
    assert [(event.kind, event.strategy, event.name) for event in told] == [
        (Kind.ACQUIRED, "lease", "a"),
        (Kind.REFUSED, "lease", "a"),
        (Kind.RELEASED, "lease", "a"),
        (Kind.ACQUIRED, "row", "b"),
        (Kind.RELEASED, "row", "b"),
    ]
    acquired, refusal, released = told[:3]
    assert isinstance(refusal.error, NotAcquired)
    assert acquired.error is released.error is None
    assert 0 < refusal.seconds <= released.seconds < LONG


def test_taking_it_again_is_no_event(locks: Locks, told: Told) -> None:
    lease = locks.lease("a", ttl=LONG, reentrant=True)
    with lease, lease:
        pass
    assert told.kinds() == [Kind.ACQUIRED, Kind.RELEASED]


def test_in_the_users_transaction(locks: Locks, engine: Engine, told: Told) -> None:
    """Its end is not seen."""
    with engine.connect() as connection, locks.row("a", on=connection):
        assert told.kinds() == [Kind.ACQUIRED]


def test_a_loss_is_told_once(locks: Locks, told: Told) -> None:
    lease = locks.lease("a", ttl=LONG)
    lease.acquire()
    locks.release("a", force=True)
    with pytest.raises(LockLost) as loss:
        lease.renew()
    with pytest.raises(LockLost):
        lease.release()
    assert told.kinds() == [Kind.ACQUIRED, Kind.LOST]
    assert told[1].error is loss.value


def test_renewals(locks: Locks, told: Told) -> None:
    while Kind.RENEWED not in told.kinds():  # a busy machine may lose it before
        told.clear()
        with contextlib.suppress(LockLost), locks.lease("a", ttl=SHORT):
            eventually(lambda: bool({Kind.RENEWED, Kind.LOST} & {*told.kinds()}))
    renewed = told[told.kinds().index(Kind.RENEWED)]
    assert (renewed.strategy, renewed.name, renewed.error) == ("lease", "a", None)
    assert renewed.seconds >= 0


def test_renewals_that_fail(locks: Locks, engine: Engine, told: Told) -> None:
    while Kind.MISSED not in told.kinds():
        told.clear()
        lease = locks.lease("a", ttl=SHORT, wait=LONG)
        lease.acquire()
        with blocked(engine, locks, "a"):
            eventually(lambda: Kind.LOST in told.kinds())
    kinds = told.kinds()
    lost = kinds.index(Kind.LOST)
    assert max(kinds.index(Kind.MISSED), kinds.index(Kind.ENDANGERED)) < lost
    assert kinds.count(Kind.LOST) == 1
    assert str(told[kinds.index(Kind.MISSED)].error)
    assert isinstance(told[lost].error, LockLost)


def test_the_log(locks: Locks, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "dblock.events"):
        lease = locks.lease("a", ttl=LONG)
        lease.acquire()
        locks.release("a", force=True)
        with pytest.raises(LockLost):
            lease.renew()
    said = [(record.levelname, record.message) for record in caplog.records]
    assert said[0][0] == "DEBUG"
    assert said[0][1].startswith("acquired lease 'a' (")
    assert said[-1][0] == "ERROR"
    assert said[-1][1].endswith("was released by force")


def test_who_is_refused_again_and_again_is_told_once(
    locks: Locks, others: Locks, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that stands by, and tries each second for days."""
    waiting = locks.lease("report")
    with caplog.at_level(logging.DEBUG, "dblock.events"):
        for _ in range(2):
            with others.lease("report", ttl=LONG):
                for wait in (0, 0.01, 0):
                    assert not waiting.acquire(timeout=wait)
    assert told.kinds().count(Kind.REFUSED) == 6
    levels = [one.levelname for one in caplog.records if one.message.startswith("refused")]
    assert levels == ["INFO", "DEBUG", "DEBUG"] * 2


def test_a_hook_that_fails_harms_nobody(locks: Locks, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: LockEvent) -> None:
        raise KeyError("of the hook")

    end = listen(fail)
    try:
        with locks.lease("a", ttl=LONG):
            pass
    finally:
        end()
    assert caplog.text.count("a hook failed") == 2
    assert "of the hook" in caplog.text


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutcomeUnknown(), Kind.UNKNOWN),
        (Conflict(), Kind.CONFLICT),
        (DeadlockDetected(), Kind.CONFLICT),
        (Unavailable(), Kind.FAILED),
        (NotAcquired(), Kind.REFUSED),
    ],
)
def test_what_an_attempt_came_to(error: Exception, kind: Kind) -> None:
    assert outcome(error) is kind  # type: ignore[arg-type]


def test_an_attempt_that_fails(locks: Locks, told: Told) -> None:
    lease = locks.lease("a", ttl=LONG)
    lease.acquire()
    with pytest.raises(DeadlockDetected):
        locks.lease("a").acquire()
    assert told.kinds() == [Kind.ACQUIRED, Kind.CONFLICT]
