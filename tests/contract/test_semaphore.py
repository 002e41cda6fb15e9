"""A semaphore: never more than so many, in the order of arrival, each with a lease of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

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
    lock_row,
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
    with locks.semaphore(NAME, 2, LONG) as first, others.semaphore(NAME, 2, LONG) as second:
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
            stack.enter_context(new_locks(label=f"n{number}").semaphore(NAME, 3, LONG, 0))
        with pytest.raises(NotAcquired, match="all 3 were held") as caught:
            stack.enter_context(new_locks().semaphore(NAME, 3, LONG, 0))
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
        semaphore = locks.semaphore(NAME, 1, LONG, SECONDS, retry=EAGER)
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
        shared = new_locks().semaphore(NAME, 3, LONG, SECONDS, retry=EAGER)
        for _ in range(2):
            threads.start(work, shared)
    threads.join()
    assert (inside.most, inside.all) == (3, 6)


def test_who_waits_gets_the_slot_that_is_given_back(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    held = [locks.semaphore(NAME, 2, LONG) for _ in range(2)]
    for semaphore in held:
        assert semaphore.acquire()
    name = held[1].slot.name

    def wait() -> str:
        with others.semaphore(NAME, 2, LONG, SECONDS) as slot:
            return slot.name

    waiting = threads.start(wait)
    eventually(lambda: waits(locks))
    held[1].release()
    assert waiting.result(SECONDS) == name
    eventually(lambda: not waits(locks))


def test_who_waits_is_not_overtaken(new_locks: NewLocks, threads: Threads) -> None:
    locks, others = new_locks(), new_locks()
    semaphore = locks.semaphore(NAME, 1, LONG)
    semaphore.acquire()
    order: list[str] = []

    def wait(name: str) -> None:
        with others.semaphore(NAME, 1, LONG, SECONDS):
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
        with locks.semaphore(NAME, 2, LONG, SECONDS, fair=True):
            order.append(number)

    held = [locks.semaphore(NAME, 2, LONG) for _ in range(2)]
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
    one, two = (new_locks().semaphore(NAME, 2, LONG, SECONDS) for _ in range(2))

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
    with locks.semaphore(NAME, 1, LONG):
        before = time.monotonic()
        with (
            pytest.raises(NotAcquired, match="all 1 were held"),
            others.semaphore(NAME, 1, LONG, SHORT),
        ):
            raise AssertionError("not reached")
        assert time.monotonic() - before >= SHORT
        assert [state.name for state in locks.list()] == ["api#1"]
    assert others.semaphore(NAME, 1).acquire(blocking=False)


def test_the_turnstile_is_a_name(locks: Locks, others: Locks) -> None:
    """Whoever holds the semaphore's own name lets nobody in."""
    semaphore = others.semaphore(NAME, 2, LONG, 0)
    with semaphore:
        pass  # its slot has a row, and is free
    with (
        locks.lease(NAME, LONG),
        pytest.raises(NotAcquired, match=TURNSTILE) as caught,
        semaphore,
    ):
        raise AssertionError("not reached")
    assert caught.value.holder is not None
    assert caught.value.holder.name == NAME
    with semaphore:
        pass


def test_a_slot_is_a_name(locks: Locks, others: Locks) -> None:
    with locks.lease("api#1", LONG), locks.semaphore(NAME, 2, LONG, 0) as slot:
        assert slot.name == "api#2"
        assert not others.semaphore(NAME, 2).acquire(blocking=False)
        with pytest.raises(NotAcquired), others.lease("api#2", LONG, 0):
            raise AssertionError("not reached")


def test_a_dead_holders_slot_runs_out(locks: Locks, others: Locks, engine: Engine) -> None:
    semaphore = locks.semaphore(NAME, 1, LONG)
    semaphore.acquire()
    slot = semaphore.slot
    fence = slot.fence
    expire(engine, locks, "api#1")
    with others.semaphore(NAME, 1, LONG, SECONDS) as another:
        assert another.fence == fence + 1
        with pytest.raises(LockLost):
            semaphore.release()
    with pytest.raises(NotHeld):
        semaphore.release()


def test_a_slot_that_runs_out_is_taken_then(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 1, SHORT, renew=False)
    semaphore.acquire()
    with others.semaphore(NAME, 1, LONG, SECONDS):
        eventually(semaphore.slot.lost.is_set)  # the keeper tells a moment later
        assert not semaphore.slot.held
    with pytest.raises(LockLost):
        semaphore.release()


def test_a_dead_waiter_holds_up_nobody_for_long(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    turnstile = locks.lease(NAME, LONG, renew=False)
    turnstile.acquire()
    assert not others.semaphore(NAME, 1).acquire(blocking=False)
    turnstile.renew(4 * SHORT)
    with others.semaphore(NAME, 1, LONG, SECONDS):
        pass
    with pytest.raises(LockLost):
        turnstile.release()


def test_a_slot_is_guarded(locks: Locks, others: Locks, engine: Engine) -> None:
    semaphore = locks.semaphore(NAME, 1, LONG)
    semaphore.acquire()
    with engine.connect() as connection, semaphore.slot.guard(connection) as fence:
        assert fence == semaphore.slot.fence
    expire(engine, locks, "api#1")
    with (
        others.semaphore(NAME, 1, LONG, SECONDS),
        engine.connect() as connection,
        pytest.raises(LockLost),
        semaphore.slot.guard(connection),
    ):
        raise AssertionError("not reached")


def test_a_slot_under_a_guard_is_not_taken(
    locks: Locks, others: Locks, new_locks: NewLocks, engine: Engine
) -> None:
    """Its holder may have expired: it may commit yet, so another slot is taken, or none."""
    if locks.dialect.one_writer:
        return  # there a guard keeps out whoever writes
    semaphore = locks.semaphore(NAME, 2, LONG)
    semaphore.acquire()
    guarded = semaphore.slot.name
    with engine.connect() as connection, semaphore.slot.guard(connection):
        expire(engine, locks, guarded)
        for _ in range(6):  # each begins to look at one or the other
            with new_locks().semaphore(NAME, 2, LONG, 0) as slot:
                assert slot.name != guarded
                assert not others.semaphore(NAME, 2).acquire(blocking=False)
    assert others.semaphore(NAME, 2).acquire(blocking=False)


# --- the slot that a process had last ------------------------------------------------------------


def used(locks: Locks, limit: int = 2) -> str:
    """Have all slots at once, so that each has a row; return the one that is asked for next."""
    semaphore = locks.semaphore(NAME, limit, LONG, 0)
    with ExitStack() as stack:
        for _ in range(limit):
            stack.enter_context(semaphore)
    with semaphore as slot:
        return slot.name


def test_the_slot_of_before_is_had_again(locks: Locks) -> None:
    before = used(locks, 9)
    for _ in range(3):
        with locks.semaphore(NAME, 9, LONG) as slot:
            assert slot.name == before


def test_a_slot_of_before_that_another_has(locks: Locks, others: Locks) -> None:
    with others.lease(used(locks), LONG) as held:
        for _ in range(2):
            with locks.semaphore(NAME, 2, LONG, 0) as slot:
                assert slot.name != held.name


def test_a_slot_of_before_is_not_above_the_limit(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 2, LONG)
    used(locks)
    others.semaphore(NAME, 2).resize(1)
    for wait in (0, SECONDS):
        with pytest.raises(LimitMismatch):
            semaphore.acquire(timeout=wait)
    assert locks.list() == []


def test_a_slot_of_before_may_be_no_slot_any_more(locks: Locks, others: Locks) -> None:
    handles = [locks.semaphore(NAME, 2, LONG) for _ in range(2)]
    for semaphore in handles:
        semaphore.acquire()
    for semaphore in sorted(handles, key=lambda one: one.slot.name):
        semaphore.release()
    assert others.semaphore(NAME, 2).resize(1) == 0
    with locks.semaphore(NAME, 1, LONG) as slot:
        assert slot.name == "api#1"


def test_a_slot_of_before_is_not_taken_from_who_waits(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 2, LONG, 0)
    used(locks)
    with others.lease(NAME, LONG), pytest.raises(NotAcquired, match=TURNSTILE):
        semaphore.__enter__()
    used(locks)
    assert semaphore.acquire()


def test_a_slot_of_before_under_a_guard_is_not_taken(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    if locks.dialect.one_writer:
        return  # there a guard keeps out whoever writes
    held = others.lease(used(locks), LONG)
    held.acquire()
    with engine.connect() as connection, held.guard(connection):
        expire(engine, locks, held.name)
        with locks.semaphore(NAME, 2, LONG, 0) as slot:
            assert slot.name != held.name


# --- who holds what ------------------------------------------------------------------------------


def test_a_thread_may_hold_several(locks: Locks) -> None:
    semaphore = locks.semaphore(NAME, 3, LONG)
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
    semaphore = locks.semaphore(NAME, 3, LONG)
    semaphore.acquire()
    mine = semaphore.slot
    threads.run(semaphore.acquire)
    assert semaphore.slot.name == mine.name
    semaphore.release()
    assert not mine.held
    semaphore.release()  # the other thread's, as with threading.Semaphore
    assert locks.list() == []


def test_a_slot_that_was_released_by_itself(locks: Locks) -> None:
    semaphore = locks.semaphore(NAME, 2, LONG)
    semaphore.acquire()
    semaphore.slot.release()
    with pytest.raises(NotHeld):
        semaphore.release()


def test_as_a_decorator(locks: Locks, others: Locks) -> None:
    @locks.semaphore(NAME, 1, LONG)
    def work(a: int) -> tuple[int, bool]:
        return a, others.semaphore(NAME, 1).acquire(blocking=False)

    assert work(2) == (2, False)
    assert others.semaphore(NAME, 1).acquire(blocking=False)


def test_waiting_for_oneself(locks: Locks) -> None:
    semaphore = locks.semaphore(NAME, 2, LONG)
    with semaphore, semaphore:
        assert not semaphore.acquire(blocking=False)
        for wait in (None, SECONDS):
            again = locks.semaphore(NAME, 2, LONG, wait)
            with pytest.raises(DeadlockDetected, match="all 2 slots"):
                again.acquire()


def test_a_cycle_over_a_limit_of_one(locks: Locks, others: Locks, threads: Threads) -> None:
    with locks.semaphore(NAME, 1, LONG):

        def other() -> None:
            with others.lease("report", LONG), others.semaphore(NAME, 1, LONG, SECONDS):
                pass

        waiting = threads.attempt(other)
        eventually(lambda: waits(locks))
        cycles = 0
        try:
            with locks.lease("report", LONG, SECONDS):
                pass
        except DeadlockDetected:
            cycles += 1
    try:
        waiting.result(SECONDS)
    except DeadlockDetected:
        cycles += 1
    assert cycles == 1


# --- the limit -----------------------------------------------------------------------------------


def test_another_limit_is_refused(locks: Locks, others: Locks) -> None:
    with locks.semaphore(NAME, 2, LONG), locks.semaphore(NAME, 2, LONG):
        pass  # both slots have a row
    with locks.semaphore(NAME, 2, LONG):
        for wait in (0, SECONDS):
            another = others.semaphore(NAME, 3, LONG, wait)
            with pytest.raises(LimitMismatch, match="has 2 slots, and limit=3") as caught:
                another.acquire()
            assert (caught.value.limit, caught.value.stored) == (3, 2)
            assert isinstance(caught.value, ValueError)
    with pytest.raises(LimitMismatch):
        others.semaphore(NAME, 1).acquire()
    assert others.list() == []


def test_a_name_with_another_value(locks: Locks, engine: Engine) -> None:
    locks.semaphore(NAME, 2).resize(2)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE dblock_value SET value = '\"leader\"'")
    with pytest.raises(LimitMismatch, match="is no semaphore") as caught:
        locks.semaphore(NAME, 2).acquire()
    assert caught.value.stored is None


@pytest.mark.parametrize("value", [None, 2, 5, "five"])
@pytest.mark.parametrize("over", [False, True], ids=["leading", "over"])
def test_the_name_of_an_election(locks: Locks, others: Locks, value: object, over: bool) -> None:
    """What a leader proclaims is no limit, even if it looks like one; and no limit replaces it."""
    for number in (1, 2):
        with locks.lease(f"{NAME}#{number}"):
            pass
    with ExitStack() as stack:
        term = stack.enter_context(locks.election(NAME).campaign())
        term.proclaim(value)
        if over:
            stack.close()
        semaphore = others.semaphore(NAME, 2)
        for attempt in (
            partial(semaphore.acquire, blocking=False),
            partial(semaphore.acquire, timeout=SECONDS),
            partial(semaphore.resize, 2),
        ):
            with pytest.raises(LimitMismatch, match="is no semaphore: an election") as caught:
                attempt()
            assert caught.value.stored is None
        leader = others.election(NAME).leader()
        assert (leader is None) if over else (leader is not None and leader.value == value)
    assert [state.name for state in others.list()] == []


def test_no_election_under_the_name_of_a_semaphore(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 1)
    semaphore.resize(1)
    with pytest.raises(ValueError, match="is the name of a semaphore"):
        others.election(NAME).campaign()
    with semaphore:
        assert not others.semaphore(NAME, 1).acquire(blocking=False)
    assert others.list() == []


def test_a_limit_grows(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 1, LONG)
    with semaphore:
        assert semaphore.resize(2) == 0
        assert semaphore.limit == 2
        with semaphore, pytest.raises(LimitMismatch):
            others.semaphore(NAME, 1).acquire(timeout=SECONDS)
        with others.semaphore(NAME, 2, LONG, 0):
            assert not semaphore.acquire(blocking=False)


def test_a_limit_shrinks(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 3, LONG)
    with ExitStack() as stack:
        slots = [stack.enter_context(semaphore) for _ in range(3)]
        new = others.semaphore(NAME, 3, LONG)
        assert new.resize(1) == 2
        for slot in slots:
            slot.renew()
        assert not new.acquire(blocking=False)
    assert new.acquire(blocking=False)
    assert new.slot.name == "api#1"
    assert new.resize(2) == 0
    assert new.acquire(blocking=False)


def test_a_slot_that_was_detached(locks: Locks, others: Locks) -> None:
    """The end of its block gives nothing back, neither it nor another slot of the same handle."""
    semaphore = locks.semaphore(NAME, 2, LONG)
    with semaphore as kept:
        with semaphore as slot:
            text = slot.detach(LONG)
        assert kept.held
        kept.check()
        assert not others.semaphore(NAME, 2, LONG).acquire(blocking=False)
        with others.attach(text, ttl=LONG) as attached:
            assert attached.held
    assert [state for state in others.list() if state.held] == []


def test_who_waits_is_told_that_the_limit_is_another(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    semaphore = locks.semaphore(NAME, 1, LONG)
    with semaphore:
        waiting = threads.attempt(others.semaphore(NAME, 1, LONG).acquire)
        eventually(lambda: waits(locks))
        semaphore.resize(2)
        with pytest.raises(LimitMismatch):
            waiting.result(SECONDS)
        eventually(lambda: not waits(locks))


def test_slots_that_were_retired_come_back(locks: Locks, engine: Engine) -> None:
    semaphore = locks.semaphore(NAME, 2, LONG)
    with semaphore:
        pass
    with engine.begin() as connection:
        for table in ("dblock_lock", "dblock_value"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    with semaphore as slot, semaphore as another:
        assert {slot.name, another.name} == {"api#1", "api#2"}


def test_fences_grow_from_hold_to_hold(locks: Locks, engine: Engine) -> None:
    semaphore, fences = locks.semaphore(NAME, 1, LONG), []
    for _ in range(3):
        with semaphore as slot:
            fences.append(slot.fence)
            assert lock_row(engine, locks, "api#1").fence == slot.fence
    assert fences == sorted(set(fences))


def test_names_with_anything_in_them(locks: Locks) -> None:
    for name in ("Ünïcode #1", "a%s", "a'\"\\", "x" * 250, "api#1"):
        with locks.semaphore(name, 2, LONG) as one, locks.semaphore(name, 2, LONG, 0) as two:
            assert {one.name, two.name} == {f"{name}#1", f"{name}#2"}


def test_a_large_limit(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 1000, LONG, 0)
    with semaphore as slot, others.semaphore(NAME, 1000, LONG, 0) as another:
        assert slot.name != another.name
    with semaphore:
        pass
