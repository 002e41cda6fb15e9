"""The limit of a semaphore: all its callers give the same one, and an operator changes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import pytest
from sqlalchemy.engine import Engine

from dblock import (
    LimitMismatch,
    Locks,
)
from tests.contract.test_semaphore import NAME, waits
from tests.support import (
    LONG,
    SECONDS,
    Threads,
    eventually,
    lock_row,
)


def test_another_limit_is_refused(locks: Locks, others: Locks) -> None:
    with locks.semaphore(NAME, 2, ttl=LONG), locks.semaphore(NAME, 2, ttl=LONG):
        pass  # both slots have a row
    with locks.semaphore(NAME, 2, ttl=LONG):
        for wait in (0, SECONDS):
            another = others.semaphore(NAME, 3, ttl=LONG, wait=wait)
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
    semaphore = locks.semaphore(NAME, 1, ttl=LONG)
    with semaphore:
        assert semaphore.resize(2) == 0
        assert semaphore.limit == 2
        with semaphore, pytest.raises(LimitMismatch):
            others.semaphore(NAME, 1).acquire(timeout=SECONDS)
        with others.semaphore(NAME, 2, ttl=LONG, wait=0):
            assert not semaphore.acquire(blocking=False)


def test_a_limit_shrinks(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 3, ttl=LONG)
    with ExitStack() as stack:
        slots = [stack.enter_context(semaphore) for _ in range(3)]
        new = others.semaphore(NAME, 3, ttl=LONG)
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
    semaphore = locks.semaphore(NAME, 2, ttl=LONG)
    with semaphore as kept:
        with semaphore as slot:
            text = slot.detach(LONG)
        assert kept.held
        kept.check()
        assert not others.semaphore(NAME, 2, ttl=LONG).acquire(blocking=False)
        with others.attach(text, ttl=LONG) as attached:
            assert attached.held
    assert [state for state in others.list() if state.held] == []


def test_who_waits_is_told_that_the_limit_is_another(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    semaphore = locks.semaphore(NAME, 1, ttl=LONG)
    with semaphore:
        waiting = threads.attempt(others.semaphore(NAME, 1, ttl=LONG).acquire)
        eventually(lambda: waits(locks))
        semaphore.resize(2)
        with pytest.raises(LimitMismatch):
            waiting.result(SECONDS)
        eventually(lambda: not waits(locks))


def test_slots_that_were_retired_come_back(locks: Locks, engine: Engine) -> None:
    semaphore = locks.semaphore(NAME, 2, ttl=LONG)
    with semaphore:
        pass
    with engine.begin() as connection:
        for table in ("dblock_lock", "dblock_value"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    with semaphore as slot, semaphore as another:
        assert {slot.name, another.name} == {"api#1", "api#2"}


def test_fences_grow_from_hold_to_hold(locks: Locks, engine: Engine) -> None:
    semaphore, fences = locks.semaphore(NAME, 1, ttl=LONG), []
    for _ in range(3):
        with semaphore as slot:
            fences.append(slot.fence)
            assert lock_row(engine, locks, "api#1").fence == slot.fence
    assert fences == sorted(set(fences))


def test_names_with_anything_in_them(locks: Locks) -> None:
    for name in ("Ünïcode #1", "a%s", "a'\"\\", "x" * 250, "api#1"):
        with (
            locks.semaphore(name, 2, ttl=LONG) as one,
            locks.semaphore(name, 2, ttl=LONG, wait=0) as two,
        ):
            assert {one.name, two.name} == {f"{name}#1", f"{name}#2"}


def test_a_large_limit(locks: Locks, others: Locks) -> None:
    semaphore = locks.semaphore(NAME, 1000, ttl=LONG, wait=0)
    with semaphore as slot, others.semaphore(NAME, 1000, ttl=LONG, wait=0) as another:
        assert slot.name != another.name
    with semaphore:
        pass


def test_the_name_of_a_rate_limit(locks: Locks) -> None:
    """No semaphore and no election is made under it; the error says what has the name."""
    locks.rate("api", 5, per=LONG).acquire()
    attempts: tuple[Callable[[], object], ...] = (
        locks.semaphore("api", 2, wait=0).acquire,
        lambda: locks.semaphore("api", 2).resize(3),
    )
    for attempt in attempts:
        with pytest.raises(ValueError, match="is no semaphore: a rate limit has this name"):
            attempt()
    assert locks.show("api").slots is None
    with pytest.raises(ValueError, match="is the name of a rate limit"):
        locks.election("api").campaign()
