"""A hold is handed to another process: the same hold goes on there, and nowhere else."""

from __future__ import annotations

import threading
from concurrent.futures import wait

import pytest
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, LockLost, Locks, NotAcquired, NotHeld
from dblock.events import Kind, LockEvent, listen
from tests.contract.conftest import NewLocks
from tests.support import (
    LONG,
    MOMENT,
    SECONDS,
    SHORT,
    Facts,
    Threads,
    borrowed,
    eventually,
    expire,
    lock_row,
)

NAMES = ["report", "a.b.c", "1.2.", "ü 😀 \n \\ ' %s", "x" * 255]


def lost(locks: Locks, text: str) -> LockLost:
    with pytest.raises(LockLost) as raised:
        locks.attach(text).acquire()
    return raised.value


@pytest.mark.parametrize("name", NAMES)
def test_the_same_hold_goes_on(locks: Locks, others: Locks, new_locks: NewLocks, name: str) -> None:
    third = new_locks()
    lease = locks.lease(name, ttl=LONG)
    assert lease.acquire()
    fence, text = lease.fence, lease.detach()
    assert not third.lease(name).acquire(blocking=False)
    taken = others.attach(text, ttl=LONG, label="the task")
    assert taken.name == name
    assert not taken.held
    assert taken.acquire()
    assert taken.held
    assert taken.fence == fence
    assert "the task" in (third.show(name).owner or "")
    with pytest.raises(NotAcquired):
        third.lease(name, wait=0).__enter__()
    taken.check()
    taken.renew()
    taken.release()
    with third.lease(name, ttl=LONG, wait=0) as later:
        assert later.fence == fence + 1


def test_who_detached_it_is_powerless(locks: Locks, others: Locks, engine: Engine) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    token, text = lease.token, lease.detach()
    for use in (lease.release, lease.renew, lease.check, lease.detach, lambda: lease.fence):
        with pytest.raises(NotHeld):
            use()
    assert not lease.held
    assert not lease.lost.is_set()
    taken = others.attach(text, ttl=LONG)
    assert taken.acquire()
    row = lock_row(engine, locks, "report")
    assert row.token == taken.token != token
    taken.release()


def test_it_is_renewed_where_it_is_attached_alone(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    with locks.lease("report", ttl=5 * SHORT) as lease:
        text = lease.detach(LONG)
        expires = lock_row(engine, locks, "report").expires_at
        threading.Event().wait(5 * SHORT)
        assert lock_row(engine, locks, "report").expires_at == expires
    with others.attach(text, ttl=10 * SHORT):
        first = lock_row(engine, locks, "report").expires_at
        eventually(lambda: lock_row(engine, locks, "report").expires_at != first)


def test_the_end_of_with_is_quiet(locks: Locks, others: Locks) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    with others.attach(text, ttl=LONG), pytest.raises(NotHeld):
        lease.release()
    texts = []

    def failing() -> None:
        with lease:
            texts.append(lease.detach())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    (text,) = texts
    with others.attach(text, ttl=LONG):
        pass
    for _ in range(2):  # used again, it is given back again
        with lease:
            pass
        assert lease.acquire(blocking=False)
        with others.attach(lease.detach(), ttl=LONG):
            pass
    with locks.lease("report", wait=0):
        pass


def test_the_end_of_with_leaves_the_next_hold(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    """That of another thread, through the same handle."""
    lease, taken = locks.lease("report", ttl=LONG), threading.Event()
    done = threading.Event()

    def later() -> None:
        with lease:
            taken.set()
            assert done.wait(SECONDS)
            assert lease.held

    with lease:
        with others.attach(lease.detach(), ttl=LONG):
            pass
        holding = threads.start(later)
        assert taken.wait(SECONDS)
    done.set()
    holding.result(SECONDS)


def test_several_as_one(locks: Locks, others: Locks) -> None:
    one, two = locks.lease("a", ttl=LONG), locks.lease("b", ttl=LONG)
    with locks.all(one, two):
        text = one.detach()
    with others.attach(text, ttl=LONG), others.lease("b", ttl=LONG, wait=0):
        pass


def test_attached_twice(locks: Locks, others: Locks, new_locks: NewLocks, engine: Engine) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    with others.attach(text, ttl=LONG) as taken:
        assert lost(new_locks(), text).reason == "attached"
        assert lost(others, text).reason == "attached"
        taken.check()
    assert lost(locks, text).reason == "released"
    with locks.lease("report", ttl=LONG):
        assert lost(others, text).reason == "taken over"


def test_two_at_the_same_time(locks: Locks, others: Locks, threads: Threads) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    together = threading.Barrier(2)

    def attach(mine: Locks) -> str | None:
        taken = mine.attach(text, ttl=LONG)
        together.wait(SECONDS)
        try:
            taken.acquire()
        except LockLost as loss:
            return loss.reason
        return None

    outcomes = [threads.attempt(attach, mine) for mine in (locks, others)]
    wait(outcomes, SECONDS)
    assert {one.result(SECONDS) for one in outcomes} == {None, "attached"}


def test_run_out(locks: Locks, others: Locks, engine: Engine) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    expire(engine, locks, "report")
    assert lost(others, text).reason == "expired"
    with locks.lease("report", ttl=LONG, wait=0):
        assert lost(others, text).reason == "taken over"


def test_run_out_where_it_was_attached(
    locks: Locks, others: Locks, new_locks: NewLocks, engine: Engine
) -> None:
    """As when that process was killed, and the message comes again: nobody has the name."""
    with locks.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    taken = others.attach(text, ttl=LONG, label="the first delivery")
    assert taken.acquire()
    expire(engine, locks, "report")
    third = new_locks()
    loss = lost(third, text)
    assert loss.reason == "expired"
    assert "the first delivery" in str(loss)
    assert "The name is free" in str(loss)
    with third.lease("report", ttl=LONG, wait=0):
        assert lost(others, text).reason == "taken over"


def test_who_had_it_before_is_told_that_it_ran_out_elsewhere(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    assert others.attach(f"{lease.token}.{lease.fence}.report", ttl=LONG).acquire()
    expire(engine, locks, "report")
    with pytest.raises(LockLost) as raised:
        lease.renew()
    assert raised.value.reason == "expired"


def test_freed_by_force(locks: Locks, others: Locks) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    assert locks.release("report", force=True)
    assert lost(others, text).reason == "released"


def test_unknown_here(locks: Locks) -> None:
    """As the text of another database is."""
    assert lost(locks, f"{'0' * 32}.7.report").reason == "unknown"


def test_who_has_its_text_takes_it(locks: Locks, others: Locks) -> None:
    """Then whoever had it before is told."""
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    with others.attach(f"{lease.token}.{lease.fence}.report", ttl=LONG) as taken:
        with pytest.raises(LockLost) as raised:
            lease.renew()
        assert raised.value.reason == "attached"
        taken.check()


def test_the_ttl_is_the_time_to_attach_it(locks: Locks, others: Locks) -> None:
    for ttl, least, most in ((None, 0.0, LONG), (10 * LONG, LONG, 10 * LONG), (5.0, 0.0, 5.0)):
        with locks.lease("report", ttl=LONG) as lease:
            text = lease.detach(ttl)
        remaining = locks.show("report").remaining
        assert remaining is not None
        assert least < remaining < most + 0.01  # SQLite's clock has milliseconds
        with others.attach(text, ttl=2 * LONG):
            remaining = locks.show("report").remaining
            assert remaining is not None
            assert LONG < remaining < 2 * LONG + 0.01


def test_back_and_forth(locks: Locks, others: Locks) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        fence, text = lease.fence, lease.detach()
    for mine in (others, locks, locks):
        with mine.attach(text, ttl=LONG) as taken:
            assert taken.fence == fence
            text = taken.detach()
    with others.attach(text, ttl=LONG):
        pass
    with locks.lease("report", ttl=LONG, wait=0) as lease:
        assert lease.fence == fence + 1


def test_what_was_lost(locks: Locks) -> None:
    lease = locks.lease("report", ttl=LONG)
    with pytest.raises(NotHeld):
        lease.detach()
    assert lease.acquire()
    locks.release("report", force=True)
    with pytest.raises(LockLost):
        lease.detach()
    assert lease.lost.is_set()


def test_counted(locks: Locks, others: Locks) -> None:
    lease = locks.lease("report", ttl=LONG, reentrant=True)
    with lease:
        with lease:
            with pytest.raises(RuntimeError, match="taken 2 times: detach it when"):
                lease.detach()
            assert lease.held
        text = lease.detach()
    with others.attach(text, ttl=LONG):
        pass


def test_it_is_lost_where_it_was_attached(locks: Locks, others: Locks) -> None:
    told: list[LockLost] = []
    with locks.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    taken = others.attach(text, ttl=LONG, on_lost=told.append)
    assert taken.acquire()
    locks.release("report", force=True)
    with pytest.raises(LockLost):
        taken.renew()
    assert taken.lost.is_set()
    assert [loss.reason for loss in told] == ["forced"]


def test_max_hold(locks: Locks, others: Locks) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        text = lease.detach()
    taken = others.attach(text, ttl=LONG, max_hold=SHORT)
    assert taken.acquire()
    eventually(taken.lost.is_set)
    assert locks.lease("report", ttl=LONG).acquire(timeout=SECONDS)


def test_a_guard_ends_before_another_goes_on(
    locks: Locks, others: Locks, engine: Engine, facts: Facts, threads: Threads
) -> None:
    lease = locks.lease("report", ttl=LONG)
    assert lease.acquire()
    with borrowed(engine, "session") as on:
        with lease.guard(on):
            facts.add(on, 1)
        if locks._database.dialect.traits.one_writer:
            with pytest.raises(DeadlockDetected):
                lease.detach()
            on.commit()
            with others.attach(lease.detach(), ttl=LONG):
                return
        taken = others.attach(lease.detach(), ttl=LONG)
        attaching = threads.start(taken.acquire)
        assert not wait([attaching], MOMENT).done
        on.commit()
    assert attaching.result(SECONDS)
    with borrowed(engine, "session") as on:
        with taken.guard(on):
            facts.add(on, 2)
        on.commit()
    assert facts.ids() == {0, 1, 2}
    taken.release()


def test_events(locks: Locks, others: Locks) -> None:
    seen: list[LockEvent] = []
    stop = listen(seen.append)
    try:
        with locks.lease("report", ttl=LONG) as lease:
            text = lease.detach()
        with others.attach(text, ttl=LONG):
            lost(locks, text)
    finally:
        stop()
    assert [event.kind for event in seen] == [
        Kind.ACQUIRED, Kind.RELEASED, Kind.ACQUIRED, Kind.FAILED, Kind.RELEASED,
    ]  # fmt: skip


TOKEN = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "text",
    [
        "", "report", TOKEN, f"{TOKEN}.1", f"{TOKEN}.1.", f"{TOKEN}.0.report", f"{TOKEN}.-1.report",
        f"{TOKEN}.01.report", f"{TOKEN}.1.5.x"[1:], f"{TOKEN.upper()}.1.report", f" {TOKEN}.1.x",
        f"{TOKEN}.9223372036854775808.report", f"{TOKEN}.1.{'x' * 256}", f"{TOKEN}.1.a\0b",
    ],
)  # fmt: skip
def test_bad_texts(locks: Locks, text: str) -> None:
    with pytest.raises(ValueError, match=r"attach what|name") as raised:
        locks.attach(text)
    assert TOKEN not in str(raised.value)


def test_bad_arguments(locks: Locks) -> None:
    given: list[object] = [None, b"text", 7]
    for text in given:
        with pytest.raises(TypeError, match=r"lease\.detach"):
            locks.attach(text)  # type: ignore[arg-type]
    text = f"{TOKEN}.1.report"
    with pytest.raises(ValueError, match="at least"):
        locks.attach(text, ttl=0)
    with pytest.raises(ValueError, match="at least"):
        locks.attach(text, max_hold=0)
    with pytest.raises(TypeError, match="on_lost"):
        locks.attach(text, on_lost="loud")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="label"):
        locks.attach(text, label=7)  # type: ignore[arg-type]
    lease = locks.lease("report", ttl=LONG)
    with lease, pytest.raises(ValueError, match="at least"):
        lease.detach(0)
    assert TOKEN not in repr(locks.attach(text))
