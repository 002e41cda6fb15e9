"""A semaphore: never more than so many, in the order of arrival, each with a lease of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from sqlalchemy.engine import Engine

from dblock import (
    DeadlockDetected,
    LimitMismatch,
    LockLost,
    Locks,
    NotAcquired,
    NotHeld,
    Semaphore,
)
from tests.contract.conftest import NewLocks
from tests.support import (
    EAGER,
    LONG,
    MOMENT,
    SECONDS,
    SHORT,
    Threads,
    eventually,
    expire,
    queue_length,
)

NAME = "api"
TURNSTILE = r"the name itself is held by .*: by a lease of this name, or by the first waiter"


class Inside:
    """How many are in at once, and have ever been."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = self.all = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.all += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1


def waits(locks: Locks, name: str = NAME) -> bool:
    """Whether anybody has the turnstile."""
    return locks.lease(name).locked()


def test_with_gives_a_slot(locks: Locks, others: Locks) -> None:
    with locks.semaphore(NAME, 2, ttl=LONG) as first, others.semaphore(NAME, 2, ttl=LONG) as second:
        assert {first.name, second.name} == {"api#1", "api#2"}
        for slot in (first, second):
            assert slot.held
            assert slot.fence >= 1
            assert slot.ttl == LONG
            slot.check()
            slot.renew()
            assert not slot.lost.is_set()
        assert {state.name for state in locks.list()} == {"api#1", "api#2"}
    assert not first.held
    assert locks.list() == []


def test_no_more_than_the_limit(new_locks: NewLocks) -> None:
    with ExitStack() as stack:
        for number in range(3):
            stack.enter_context(new_locks(label=f"n{number}").semaphore(NAME, 3, ttl=LONG, wait=0))
        with pytest.raises(NotAcquired, match="all 3 were held") as caught:
            stack.enter_context(new_locks().semaphore(NAME, 3, ttl=LONG, wait=0))
        assert caught.value.name == NAME
        assert caught.value.holder is not None
        assert caught.value.holder.name.startswith("api#")
        assert not new_locks().semaphore(NAME, 3).acquire(timeout=MOMENT)
    assert new_locks().semaphore(NAME, 3).acquire(blocking=False)


def test_a_limit_of_one_runs_one_at_once(new_locks: NewLocks, threads: Threads) -> None:
    """pgqueuer issue 761: with a limit of 1 two jobs ran at once, each having counted the other's
    before that was there."""
    inside, begin = Inside(), threading.Barrier(6)

    def work(locks: Locks) -> None:
        semaphore = locks.semaphore(NAME, 1, ttl=LONG, wait=SECONDS, retry=EAGER)
        begin.wait(SECONDS)
        for _ in range(3):
            with semaphore, inside.one():
                time.sleep(0.001)

    for _ in range(6):
        threads.start(work, new_locks())
    threads.join()
    assert (inside.most, inside.all) == (1, 18)


def test_as_many_as_the_limit_at_once(new_locks: NewLocks, threads: Threads) -> None:
    inside, full = Inside(), threading.Barrier(3)

    def work(semaphore: Semaphore) -> None:
        with semaphore, inside.one():
            full.wait(SECONDS)

    for _ in range(3):
        shared = new_locks().semaphore(NAME, 3, ttl=LONG, wait=SECONDS, retry=EAGER)
        for _ in range(2):
            threads.start(work, shared)
    threads.join()
    assert (inside.most, inside.all) == (3, 6)


def test_who_waits_gets_the_slot_that_is_given_back(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    held = [locks.semaphore(NAME, 2, ttl=LONG) for _ in range(2)]
    for semaphore in held:
        assert semaphore.acquire()
    name = held[1].slot.name

    def wait() -> str:
        with others.semaphore(NAME, 2, ttl=LONG, wait=SECONDS) as slot:
            return slot.name

    waiting = threads.start(wait)
    eventually(lambda: waits(locks))
    held[1].release()
    assert waiting.result(SECONDS) == name
    eventually(lambda: not waits(locks))


def test_who_waits_is_not_overtaken(new_locks: NewLocks, threads: Threads) -> None:
    locks, others = new_locks(), new_locks()
    semaphore = locks.semaphore(NAME, 1, ttl=LONG)
    semaphore.acquire()
    order: list[str] = []

    def wait(name: str) -> None:
        with others.semaphore(NAME, 1, ttl=LONG, wait=SECONDS):
            order.append(name)

    waiting = threads.start(wait, "first")
    eventually(lambda: waits(locks))
    semaphore.release()
    # The slot is free now, for who waits: nobody else gets it before.
    if semaphore.acquire(blocking=False):
        assert order == ["first"]
        semaphore.release()
    waiting.result(SECONDS)
    assert order == ["first"]


@pytest.mark.usefixtures("kept_for_ever")
def test_fair_waiters_get_slots_in_the_order_of_arrival(
    new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    """Those of other programs: one waits for a slot, and the others stand in the name's queue."""
    locks, order = new_locks(), list[int]()

    def wait(locks: Locks, number: int) -> None:
        with locks.semaphore(NAME, 2, ttl=LONG, wait=SECONDS, fair=True):
            order.append(number)

    held = [locks.semaphore(NAME, 2, ttl=LONG) for _ in range(2)]
    assert all(one.acquire() for one in held)
    for number in range(4):
        threads.start(wait, new_locks(), number)
        eventually(lambda: waits(locks))
        eventually(lambda number=number: queue_length(engine, locks, NAME) == number)  # type: ignore[misc]
    held[0].release()
    threads.join()
    held[1].release()
    assert order == [0, 1, 2, 3]


def test_many_wait_in_turn(new_locks: NewLocks, threads: Threads) -> None:
    inside = Inside()
    one, two = (new_locks().semaphore(NAME, 2, ttl=LONG, wait=SECONDS) for _ in range(2))

    def work(semaphore: Semaphore) -> None:
        with semaphore, inside.one():
            time.sleep(0.002)

    for _ in range(5):
        threads.start(work, one)
        threads.start(work, two)
    threads.join()
    assert (inside.all, inside.now) == (10, 0)
    assert inside.most <= 2
    assert new_locks().list() == []


def test_a_wait_that_ends_leaves_nothing(locks: Locks, others: Locks) -> None:
    with locks.semaphore(NAME, 1, ttl=LONG):
        before = time.monotonic()
        with (
            pytest.raises(NotAcquired, match="all 1 were held"),
            others.semaphore(NAME, 1, ttl=LONG, wait=SHORT),
        ):
            raise AssertionError("not reached")
        assert time.monotonic() - before >= SHORT
        assert [state.name for state in locks.list()] == ["api#1"]
    assert others.semaphore(NAME, 1).acquire(blocking=False)


def test_the_turnstile_is_a_name(locks: Locks, others: Locks) -> None:
    """Whoever holds the semaphore's own name lets nobody in."""
    semaphore = others.semaphore(NAME, 2, ttl=LONG, wait=0)
    with semaphore:
        pass  # its slot has a row, and is free
    with (
        locks.lease(NAME, ttl=LONG),
        pytest.raises(NotAcquired, match=TURNSTILE) as caught,
        semaphore,
    ):
        raise AssertionError("not reached")
    assert caught.value.holder is not None
    assert caught.value.holder.name == NAME
    with semaphore:
        pass


def test_a_slot_is_a_name(locks: Locks, others: Locks) -> None:
    with locks.lease("api#1", ttl=LONG), locks.semaphore(NAME, 2, ttl=LONG, wait=0) as slot:
        assert slot.name == "api#2"
        assert not others.semaphore(NAME, 2).acquire(blocking=False)
        with pytest.raises(NotAcquired), others.lease("api#2", ttl=LONG, wait=0):
            raise AssertionError("not reached")


def test_a_dead_holders_slot_runs_out(locks: Locks, others: Locks, engine: Engine) -> None:
    semaphore = locks.semaphore(NAME, 1, ttl=LONG)
    semaphore.acquire()
    slot = semaphore.slot
    fence = slot.fence
    expire(engine, locks, "api#1")
    with others.semaphore(NAME, 1, ttl=LONG, wait=SECONDS) as another:
        assert another.fence == fence + 1
        with pytest.raises(LockLost):
            semaphore.release()
    with pytest.raises(NotHeld):
        semaphore.release()


def test_a_slot_that_runs_out_is_taken_then(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 1, ttl=SHORT, renew=False)
    semaphore.acquire()
    with others.semaphore(NAME, 1, ttl=LONG, wait=SECONDS):
        eventually(semaphore.slot.lost.is_set)  # the keeper tells a moment later
        assert not semaphore.slot.held
    with pytest.raises(LockLost):
        semaphore.release()


def test_a_dead_waiter_holds_up_nobody_for_long(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    turnstile = locks.lease(NAME, ttl=LONG, renew=False)
    turnstile.acquire()
    assert not others.semaphore(NAME, 1).acquire(blocking=False)
    turnstile.renew(4 * SHORT)
    with others.semaphore(NAME, 1, ttl=LONG, wait=SECONDS):
        pass
    with pytest.raises(LockLost):
        turnstile.release()


def test_a_slot_is_guarded(locks: Locks, others: Locks, engine: Engine) -> None:
    semaphore = locks.semaphore(NAME, 1, ttl=LONG)
    semaphore.acquire()
    with engine.connect() as connection, semaphore.slot.guard(connection) as fence:
        assert fence == semaphore.slot.fence
    expire(engine, locks, "api#1")
    with (
        others.semaphore(NAME, 1, ttl=LONG, wait=SECONDS),
        engine.connect() as connection,
        pytest.raises(LockLost),
        semaphore.slot.guard(connection),
    ):
        raise AssertionError("not reached")


def test_a_slot_under_a_guard_is_not_taken(
    locks: Locks, others: Locks, new_locks: NewLocks, engine: Engine
) -> None:
    """Its holder may have expired: it may commit yet, so another slot is taken, or none."""
    if locks._database.dialect.traits.one_writer:
        return  # there a guard keeps out whoever writes
    semaphore = locks.semaphore(NAME, 2, ttl=LONG)
    semaphore.acquire()
    guarded = semaphore.slot.name
    with engine.connect() as connection, semaphore.slot.guard(connection):
        expire(engine, locks, guarded)
        for _ in range(6):  # each begins to look at one or the other
            with new_locks().semaphore(NAME, 2, ttl=LONG, wait=0) as slot:
                assert slot.name != guarded
                assert not others.semaphore(NAME, 2).acquire(blocking=False)
    assert others.semaphore(NAME, 2).acquire(blocking=False)


# --- the slot that a process had last ------------------------------------------------------------


def used(locks: Locks, limit: int = 2) -> str:
    """Have all slots at once, so that each has a row; return the one that is asked for next."""
    semaphore = locks.semaphore(NAME, limit, ttl=LONG, wait=0)
    with ExitStack() as stack:
        for _ in range(limit):
            stack.enter_context(semaphore)
    with semaphore as slot:
        return slot.name


def test_the_slot_of_before_is_had_again(locks: Locks) -> None:
    before = used(locks, 9)
    for _ in range(3):
        with locks.semaphore(NAME, 9, ttl=LONG) as slot:
            assert slot.name == before


def test_a_slot_of_before_that_another_has(locks: Locks, others: Locks) -> None:
    with others.lease(used(locks), ttl=LONG) as held:
        for _ in range(2):
            with locks.semaphore(NAME, 2, ttl=LONG, wait=0) as slot:
                assert slot.name != held.name


def test_a_slot_of_before_is_not_above_the_limit(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 2, ttl=LONG)
    used(locks)
    others.semaphore(NAME, 2).resize(1)
    for wait in (0, SECONDS):
        with pytest.raises(LimitMismatch):
            semaphore.acquire(timeout=wait)
    assert locks.list() == []


def test_a_slot_of_before_may_be_no_slot_any_more(locks: Locks, others: Locks) -> None:
    handles = [locks.semaphore(NAME, 2, ttl=LONG) for _ in range(2)]
    for semaphore in handles:
        semaphore.acquire()
    for semaphore in sorted(handles, key=lambda one: one.slot.name):
        semaphore.release()
    assert others.semaphore(NAME, 2).resize(1) == 0
    with locks.semaphore(NAME, 1, ttl=LONG) as slot:
        assert slot.name == "api#1"


def test_a_slot_of_before_is_not_taken_from_who_waits(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 2, ttl=LONG, wait=0)
    used(locks)
    with others.lease(NAME, ttl=LONG), pytest.raises(NotAcquired, match=TURNSTILE):
        semaphore.__enter__()
    used(locks)
    assert semaphore.acquire()


def test_a_slot_of_before_under_a_guard_is_not_taken(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    if locks._database.dialect.traits.one_writer:
        return  # there a guard keeps out whoever writes
    held = others.lease(used(locks), ttl=LONG)
    held.acquire()
    with engine.connect() as connection, held.guard(connection):
        expire(engine, locks, held.name)
        with locks.semaphore(NAME, 2, ttl=LONG, wait=0) as slot:
            assert slot.name != held.name


# --- who holds what ------------------------------------------------------------------------------


def test_a_thread_may_hold_several(locks: Locks) -> None:
    semaphore = locks.semaphore(NAME, 3, ttl=LONG)
    with semaphore as first:
        with semaphore as second:
            assert semaphore.slot.name == second.name
            assert first.name != second.name
        assert not second.held
        assert first.held
        assert semaphore.slot.name == first.name
    with pytest.raises(NotHeld, match="no slot"):
        semaphore.release()
    with pytest.raises(NotHeld, match="no slot"):
        _ = semaphore.slot


def test_a_release_ends_the_threads_own(locks: Locks, threads: Threads) -> None:
    semaphore = locks.semaphore(NAME, 3, ttl=LONG)
    semaphore.acquire()
    mine = semaphore.slot
    threads.run(semaphore.acquire)
    assert semaphore.slot.name == mine.name
    semaphore.release()
    assert not mine.held
    semaphore.release()  # the other thread's, as with threading.Semaphore
    assert locks.list() == []


def test_a_slot_that_was_released_by_itself(locks: Locks) -> None:
    semaphore = locks.semaphore(NAME, 2, ttl=LONG)
    semaphore.acquire()
    semaphore.slot.release()
    with pytest.raises(NotHeld):
        semaphore.release()


def test_as_a_decorator(locks: Locks, others: Locks) -> None:
    @locks.semaphore(NAME, 1, ttl=LONG)
    def work(a: int) -> tuple[int, bool]:
        return a, others.semaphore(NAME, 1).acquire(blocking=False)

    assert work(2) == (2, False)
    assert others.semaphore(NAME, 1).acquire(blocking=False)


def test_waiting_for_oneself(locks: Locks) -> None:
    semaphore = locks.semaphore(NAME, 2, ttl=LONG)
    with semaphore, semaphore:
        assert not semaphore.acquire(blocking=False)
        for wait in (None, SECONDS):
            again = locks.semaphore(NAME, 2, ttl=LONG, wait=wait)
            with pytest.raises(DeadlockDetected, match="all 2 slots"):
                again.acquire()


def test_a_cycle_over_a_limit_of_one(locks: Locks, others: Locks, threads: Threads) -> None:
    with locks.semaphore(NAME, 1, ttl=LONG):

        def other() -> None:
            with (
                others.lease("report", ttl=LONG),
                others.semaphore(NAME, 1, ttl=LONG, wait=SECONDS),
            ):
                pass

        waiting = threads.attempt(other)
        eventually(lambda: waits(locks))
        cycles = 0
        try:
            with locks.lease("report", ttl=LONG, wait=SECONDS):
                pass
        except DeadlockDetected:
            cycles += 1
    try:
        waiting.result(SECONDS)
    except DeadlockDetected:
        cycles += 1
    assert cycles == 1
