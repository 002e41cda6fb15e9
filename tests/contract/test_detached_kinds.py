"""Slots, shares and terms by their token alone."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Engine

from dblock import DetachedHold, LimitMismatch, LockLost, Locks, NotAcquired
from tests.contract.conftest import NewLocks
from tests.contract.test_detached import ANOTHER, TOKEN, lost, waiting
from tests.support import (
    LONG,
    MOMENT,
    SECONDS,
    Threads,
    eventually,
    expire,
    lock_row,
    queues,
    waiters,
)

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


def test_two_calls_wait_for_a_slot_with_one_token(
    locks: Locks, new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    first = locks.detached_semaphore("api", 2, ANOTHER).take(LONG)
    with locks.semaphore("api", 2, LONG, wait=0):

        def take() -> DetachedHold:
            return new_locks().detached_semaphore("api", 2, TOKEN).take(20 * LONG, SECONDS)

        running = [threads.start(take) for _ in range(2)]
        eventually(lambda: waiters(engine) > 0)  # one of them looks for a slot, the other waits
        locks.detached(first.name, ANOTHER).release()
        eventually(lambda: lock_row(engine, locks, first.name).token == TOKEN)
    slots = [one.result(SECONDS) for one in running]  # the second is offered the other slot
    assert {slot.name for slot in slots} == {first.name}
    assert sorted(slot.repeated for slot in slots) == [False, True]
    with locks.semaphore("api", 2, LONG, wait=SECONDS) as other:
        assert other.name != first.name


def test_a_slot_is_found_beside_one_that_has_expired(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    with others.semaphore("api", 2), others.semaphore("api", 2):
        pass
    token = locks.detached("api#1", TOKEN)
    token.take(LONG)
    expire(engine, locks, "api#1")
    fence = locks.detached("api#2", TOKEN).take(LONG).fence
    slot = others.detached_semaphore("api", 2, TOKEN).take(LONG)
    assert (slot.name, slot.fence, slot.repeated) == ("api#2", fence, True)


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


def test_a_reader_that_comes_back_brings_nobody_back(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    """Of those who shared the name with it before a writer had it."""
    first, second = (locks.detached("doc", token, shared=True) for token in (TOKEN, ANOTHER))
    first.take(LONG)
    second.take(LONG)
    expire(engine, locks, "doc")
    with others.lease("doc", wait=0) as writer:
        assert writer.fence == 2
    assert first.take(LONG).fence == 3
    assert locks.show("doc").readers == 1
    with pytest.raises(LockLost):
        second.renew(LONG)


def test_a_reader_that_comes_back_is_a_reader(locks: Locks, others: Locks) -> None:
    first, second = (locks.detached("doc", token, shared=True) for token in (TOKEN, ANOTHER))
    first.take(LONG)
    second.take(LONG)
    second.release()
    first.release()
    fence = first.take(LONG).fence
    second.take(LONG)
    second.release()
    assert first.renew(LONG).fence == fence
    assert not others.lease("doc").acquire(blocking=False)


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


@pytest.mark.usefixtures("patient_readers")
def test_a_waiting_writer_comes_before_later_readers(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    first = locks.detached("doc", shared=True)
    first.take(LONG)
    writer = others.detached("doc", TOKEN)
    result = waiting(threads, engine, lambda: writer.take(LONG, SECONDS))
    eventually(lambda: queues(engine, locks, "doc"))  # it is seen before it stands in the queue
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
    deep: object = 1
    for _ in range(101):
        deep = [deep]
    with pytest.raises(ValueError, match="100 deep"):
        locks.detached("leader").proclaim({"a": deep})
    with pytest.raises(TypeError, match="leader"):
        locks.detached("leader", shared=True).proclaim(1)
    slot = locks.detached_semaphore("api", 1, TOKEN).take(LONG)
    locks.detached("api", ANOTHER).take(LONG)
    with pytest.raises(ValueError, match="semaphore"):
        locks.detached("api", ANOTHER).proclaim(1)
    locks.detached(slot.name, TOKEN).release()
