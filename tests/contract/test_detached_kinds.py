"""Slots, shares and terms by their token alone."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Engine

from dblock import LimitMismatch, LockLost, Locks, NotAcquired
from tests.contract.conftest import NewLocks
from tests.contract.test_detached import ANOTHER, TOKEN, lost, waiting
from tests.support import LONG, MOMENT, SECONDS, Threads, eventually, lock_row, waiters

# --- slots -------------------------------------------------------------------------------------


def test_a_slot(locks: Locks, others: Locks, engine: Engine) -> None:
    with others.semaphore("api", 2), others.semaphore("api", 2):
        pass  # both have a row, and could be taken
    slot = locks.detached_semaphore("api", 2, TOKEN, owner="worker 7").take(LONG)
    assert slot.name in ("api#1", "api#2")
    assert (slot.fence, slot.repeated) == (2, False)
    again = others.detached_semaphore("api", 2, TOKEN).take(2 * LONG)
    assert (again.name, again.fence, again.repeated) == (slot.name, 2, True)
    other = others.semaphore("api", 2, LONG, wait=0)
    with other as another:
        assert {slot.name, another.name} == {"api#1", "api#2"}
        with pytest.raises(NotAcquired, match="all 2 were held") as raised:
            locks.detached_semaphore("api", 2).take(LONG)
        assert raised.value.holder is not None
        assert locks.detached_semaphore("api", 2, TOKEN).take(LONG).repeated
    assert locks.show(slot.name).owner == "worker 7"
    assert lock_row(engine, locks, slot.name).token == TOKEN
    held = others.detached(slot.name, TOKEN)
    assert held.renew(LONG).fence == 2
    held.release()
    assert lost(held.release) == "released"


def test_waiting_for_a_slot(locks: Locks, others: Locks, engine: Engine, threads: Threads) -> None:
    first = locks.detached_semaphore("api", 1, ANOTHER).take(LONG)
    with pytest.raises(NotAcquired):
        others.detached_semaphore("api", 1, TOKEN).take(LONG, wait=MOMENT)
    second = others.detached_semaphore("api", 1, TOKEN, owner="worker 7")
    result = waiting(threads, engine, lambda: second.take(LONG, wait=SECONDS))
    locks.detached(first.name, ANOTHER).release()
    slot = result()
    assert (slot.name, slot.fence, slot.repeated) == ("api#1", 2, False)
    assert locks.show("api#1").owner == "worker 7"
    assert second.take(LONG).repeated
    eventually(lambda: waiters(engine) == 0)


def test_another_limit(locks: Locks) -> None:
    locks.detached_semaphore("api", 2, ANOTHER).take(LONG)
    for _ in range(2):
        with pytest.raises(LimitMismatch):
            locks.detached_semaphore("api", 3, TOKEN).take(LONG)
    with pytest.raises(ValueError, match="limit"):
        locks.detached_semaphore("api", 0)


# --- shares ------------------------------------------------------------------------------------


def test_a_share(locks: Locks, others: Locks) -> None:
    first, second = (locks.detached("doc", token, shared=True) for token in (TOKEN, ANOTHER))
    assert first.take(LONG).fence == second.take(LONG).fence == 1
    again = others.detached("doc", TOKEN, shared=True)
    assert again.take(LONG).repeated
    assert again.renew(2 * LONG).fence == 1
    assert locks.show("doc").readers == 2
    with others.shared("doc", LONG, wait=0) as reader:
        assert reader.fence == 1
        with pytest.raises(NotAcquired):
            others.detached("doc").take(LONG)
        assert lost(locks.detached("doc", TOKEN).renew) == "taken over"  # it is no lease
    first.release()
    for call in (first.release, first.renew):
        with pytest.raises(LockLost):
            call()
    second.renew(LONG)
    second.release()
    with locks.lease("doc", wait=0) as writer:
        assert writer.fence == 2
        with pytest.raises(NotAcquired):
            first.take(LONG)


def test_readers_wait_for_a_writer(
    locks: Locks, new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    writer = locks.detached("doc")
    writer.take(LONG)
    readers = [new_locks().detached("doc", token, shared=True) for token in (TOKEN, ANOTHER)]
    results = [
        waiting(threads, engine, lambda reader=reader: reader.take(LONG, SECONDS))  # type: ignore[misc]
        for reader in readers
    ]
    writer.release()
    assert {result().fence for result in results} == {2}
    eventually(lambda: locks.show("doc").readers == 2)  # those that have waited left
    for reader in readers:
        assert reader.take(LONG).repeated
        reader.release()
    assert not locks.show("doc").held


def test_a_waiting_writer_comes_before_later_readers(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    first = locks.detached("doc", shared=True)
    first.take(LONG)
    writer = others.detached("doc", TOKEN)
    result = waiting(threads, engine, lambda: writer.take(LONG, SECONDS))
    with pytest.raises(NotAcquired):
        locks.detached("doc", shared=True).take(LONG)
    assert first.take(LONG).repeated  # one that reads already goes on
    first.release()
    assert result().fence == 2


# --- terms -------------------------------------------------------------------------------------


def test_a_leader(locks: Locks, others: Locks) -> None:
    term = locks.detached("leader", TOKEN, owner="worker 7")
    with pytest.raises(LockLost):
        term.proclaim("nobody leads")
    fence = term.take(LONG).fence
    others.detached("leader", TOKEN).proclaim({"address": "10.0.0.7"})
    leader = others.election("leader").leader()
    assert leader is not None
    assert (leader.fence, leader.owner) == (fence, "worker 7")
    assert leader.value == {"address": "10.0.0.7"}
    assert lost(lambda: others.detached("leader", ANOTHER).proclaim(1)) == "taken over"
    term.release()
    assert others.election("leader").leader() is None


def test_what_cannot_be_proclaimed(locks: Locks) -> None:
    with pytest.raises(ValueError, match="at most"):
        locks.detached("leader").proclaim("x" * 10_000)
    with pytest.raises(TypeError, match="leader"):
        locks.detached("leader", shared=True).proclaim(1)
    slot = locks.detached_semaphore("api", 1, TOKEN).take(LONG)
    locks.detached("api", ANOTHER).take(LONG)
    with pytest.raises(ValueError, match="semaphore"):
        locks.detached("api", ANOTHER).proclaim(1)
    locks.detached(slot.name, TOKEN).release()
