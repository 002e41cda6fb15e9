"""A lease that was lost: whoever held it is told, and can do the later hold no harm."""

from __future__ import annotations

import time

import pytest
from sqlalchemy.engine import Engine

from dblock import LockLost, Locks, NotHeld, StaleFence
from dblock.protocol import release, renew
from dblock.protocol.lease import Held, ReleaseRequest
from dblock.protocol.renew import Asked
from dblock.protocol.state import Renewal
from dblock.protocol.term import Term
from dblock.system import clock
from tests.support import LONG, SECONDS, SHORT, Threads, eventually, expire, lock_row
from tests.worlds.behind import run


def test_run_out(locks: Locks) -> None:
    told: list[LockLost] = []
    lease = locks.lease("report", ttl=SHORT, renew=False, on_lost=told.append)
    assert lease.acquire()
    lost = lease.lost
    eventually(lambda: not lease.held)
    with pytest.raises(LockLost, match="expired") as caught:
        lease.check()
    assert (caught.value.name, caught.value.reason) == ("report", "expired")
    assert lost.is_set()
    for use in (lease.check, lease.renew, lease.release):
        with pytest.raises(LockLost) as again:
            use()
        assert again.value is caught.value
    eventually(lambda: told == [caught.value])  # once
    with pytest.raises(NotHeld):
        lease.release()


def test_release_after_it_ran_out(locks: Locks) -> None:
    told: list[LockLost] = []
    lease = locks.lease("report", ttl=SHORT, renew=False, on_lost=told.append)
    with pytest.raises(LockLost) as caught, lease:
        eventually(lambda: not lease.held)
    assert caught.value.reason == "expired"
    eventually(lambda: told == [caught.value])


def test_taken_over(locks: Locks, others: Locks, engine: Engine) -> None:
    told: list[LockLost] = []
    first = locks.lease("report", ttl=LONG, on_lost=told.append)
    second = others.lease("report", ttl=LONG)
    assert first.acquire()
    expire(engine, locks, "report")
    assert second.acquire(blocking=False)
    row = lock_row(engine, locks, "report")
    with pytest.raises(LockLost, match="clock was set forward") as caught:
        first.renew()
    assert caught.value.reason == "forced"
    assert f"fence {first.fence} was followed by {second.fence}" in str(caught.value)
    with pytest.raises(LockLost) as again:
        first.release()
    assert again.value is caught.value
    assert told == [caught.value]
    assert lock_row(engine, locks, "report") == row  # the later hold is as it was
    second.check()
    second.renew()
    second.release()


def test_release_never_touches_the_later_hold(locks: Locks, others: Locks, engine: Engine) -> None:
    first, second = locks.lease("report", ttl=LONG), others.lease("report", ttl=LONG)
    assert first.acquire()
    expire(engine, locks, "report")
    assert second.acquire(blocking=False)
    row = lock_row(engine, locks, "report")
    with pytest.raises(LockLost):
        first.release()
    assert lock_row(engine, locks, "report") == row
    second.release()


def test_released_by_force(locks: Locks, others: Locks) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert others.release("report", force=True) is False
    assert lease.acquire()
    lost = lease.lost
    assert others.release("report", force=True) is True
    assert others.release("report", force=True) is False
    assert not others.lease("report").locked()
    with pytest.raises(LockLost, match="released by force") as caught:
        lease.renew()
    assert caught.value.reason == "forced"
    assert lost.is_set()
    assert not lease.held
    with pytest.raises(LockLost) as again:
        lease.release()
    assert again.value.reason == "forced"


def test_released_by_force_only_with_the_fence_that_was_seen(locks: Locks, others: Locks) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert others.release("report", force=True, fence=1) is False
    assert lease.acquire()
    seen = lease.fence
    lease.release()
    assert others.release("report", force=True, fence=seen) is False
    assert lease.acquire()
    with pytest.raises(StaleFence, match=f"fence {seen} is over.*now held by") as caught:
        others.release("report", force=True, fence=seen)
    assert (caught.value.name, caught.value.fence, caught.value.newest) == (
        "report",
        seen,
        lease.fence,
    )
    lease.renew()
    assert others.release("report", force=True, fence=lease.fence) is True
    with pytest.raises(LockLost, match="released by force"):
        lease.renew()


@pytest.mark.parametrize("action", ["renew", "release"])
def test_released_by_force_and_taken_by_who_waits(
    locks: Locks, others: Locks, threads: Threads, action: str
) -> None:
    """It did not expire, so nobody says so."""
    first, second = locks.lease("report", ttl=LONG), others.lease("report", ttl=LONG)
    assert first.acquire()
    fence = first.fence
    waiting = threads.start(second.acquire, timeout=SECONDS)
    locks.release("report", force=True)
    assert waiting.result(SECONDS)
    with pytest.raises(LockLost, match="released by force") as caught:
        getattr(first, action)()
    assert caught.value.reason == "forced"
    assert f"fence {fence} was followed by {second.fence}" in str(caught.value)


def test_taken_over_after_it_ran_out(locks: Locks, others: Locks) -> None:
    """Whether another had it before its time was over tells when that one's hold began."""
    lease, later = locks.lease("report", ttl=SHORT, renew=False), others.lease("report", ttl=LONG)
    start = clock.now()
    assert lease.acquire()
    held, token = Held(lease.fence, Term(start, SHORT)), lease.token
    assert later.acquire()
    exchange = locks._database.exchange("report", timeout=0.0)
    late = release.release(exchange, ReleaseRequest("report", token, held))
    with pytest.raises(LockLost, match="taken over after it expired") as caught:
        run(locks, late)
    assert caught.value.reason == "taken over"


def test_force_has_to_be_meant(locks: Locks) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        with pytest.raises(ValueError, match="force=True"):
            locks.release("report", force=False)
        lease.renew()


def test_another_token_neither_releases_nor_renews(locks: Locks, engine: Engine) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        row = lock_row(engine, locks, "report")
        assert row.token == lease.token
        dialect, now = locks._database.dialect, time.monotonic()
        strange = "f" * 32
        held = Held(lease.fence, Term(now, LONG))
        exchange = locks._database.exchange("report", timeout=0.0)
        with pytest.raises(LockLost):
            run(locks, release.release(exchange, ReleaseRequest("report", strange, held)))
        asked = Asked(Renewal("report", strange, 2 * LONG), held)
        with pytest.raises(LockLost):
            run(locks, renew.renew(dialect, asked, now))
        assert lock_row(engine, locks, "report") == row


def test_every_hold_has_its_own_token(locks: Locks) -> None:
    lease, tokens = locks.lease("report", ttl=LONG), set()
    for _ in range(5):
        with lease:
            tokens.add(lease.token)
    assert len(tokens) == 5
    assert {len(token) for token in tokens} == {32}


def test_what_has_expired_is_not_renewed(locks: Locks, engine: Engine) -> None:
    """Nobody took it, and still: between its expiry and now somebody could have."""
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    expire(engine, locks, "report")
    row = lock_row(engine, locks, "report")
    with pytest.raises(LockLost) as caught:
        lease.renew()
    assert caught.value.reason == "expired"
    assert lock_row(engine, locks, "report") == row
    assert not locks.show("report").held
    assert not lease.held
    with pytest.raises(LockLost):
        lease.release()


def test_what_its_holder_believes_over_is_not_renewed(locks: Locks) -> None:
    lease = locks.lease("report", ttl=SHORT, renew=False)
    assert lease.acquire()
    eventually(lambda: not lease.held)
    with pytest.raises(LockLost) as caught:
        lease.renew(ttl=LONG)
    assert caught.value.reason == "expired"
    eventually(lambda: not lease.locked())


def test_the_body_fails_and_the_lease_is_lost(locks: Locks, others: Locks) -> None:
    @locks.lease("report", ttl=LONG)
    def work() -> None:
        others.release("report", force=True)
        raise KeyError("of the body")

    with pytest.raises(KeyError) as caught:
        work()
    (note,) = caught.value.__notes__
    assert note.startswith("LockLost at the end of ")
    assert "released by force" in note


def test_the_body_succeeds_and_the_lease_is_lost(locks: Locks, others: Locks) -> None:
    with pytest.raises(LockLost), locks.lease("report", ttl=LONG):
        others.release("report", force=True)


def test_lost_is_of_one_hold(locks: Locks, others: Locks) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    first = lease.lost
    others.release("report", force=True)
    with pytest.raises(LockLost):
        lease.release()
    assert first.is_set()
    with lease:
        assert lease.lost is not first
        assert not lease.lost.is_set()
