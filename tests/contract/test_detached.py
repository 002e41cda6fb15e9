"""A lease by its token alone: any process that knows the token takes, renews and releases it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

import pytest
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, DetachedHold, LockLost, Locks, NotAcquired
from dblock.events import Kind, LockEvent, listen
from tests.contract.conftest import NewLocks
from tests.support import (
    LONG,
    MOMENT,
    SECONDS,
    Threads,
    borrowed,
    eventually,
    expire,
    lock_row,
    waiters,
)

NAMES = ["report", "a.b.c", "ü 😀 \n \\ ' %s", "x" * 255]
TOKEN, ANOTHER = "0123456789abcdef" * 2, "f" * 32


def lost(call: Callable[[], object]) -> str:
    with pytest.raises(LockLost) as raised:
        call()
    return raised.value.reason


@pytest.mark.parametrize("name", NAMES)
def test_the_token_is_the_hold(locks: Locks, others: Locks, engine: Engine, name: str) -> None:
    taken = locks.detached(name, TOKEN, owner="worker 7").take(LONG)
    assert (taken.name, taken.fence, taken.repeated) == (name, 1, False)
    elsewhere = others.detached(name, TOKEN)
    again = elsewhere.take(2 * LONG)
    assert (again.fence, again.repeated) == (1, True)
    assert again.expires_in > taken.expires_in
    renewed = elsewhere.renew(LONG)
    assert (renewed.name, renewed.fence) == (name, 1)
    state, row = locks.show(name), lock_row(engine, locks, name)
    assert state.owner == "worker 7"
    assert row.token == TOKEN
    elsewhere.release()
    assert locks.detached(name, ANOTHER).take(LONG).fence == 2


def test_it_excludes_leases_and_they_exclude_it(locks: Locks, others: Locks) -> None:
    detached = locks.detached("report")
    with others.lease("report", ttl=LONG) as lease:
        for _ in range(2):  # the second looks first
            with pytest.raises(NotAcquired) as raised:
                detached.take(LONG)
            assert raised.value.holder is not None
            assert raised.value.holder.fence == lease.fence
        assert lost(detached.renew) == "taken over"
        assert lost(detached.release) == "taken over"
        lease.check()
    detached.take(LONG)
    assert not others.lease("report").acquire(blocking=False)
    detached.release()
    with others.lease("report", ttl=LONG, wait=0) as lease:
        assert lease.fence == 3


def test_what_is_no_hold(locks: Locks, others: Locks, engine: Engine) -> None:
    detached = locks.detached("report", TOKEN)
    assert lost(detached.renew) == lost(detached.release) == "unknown"
    detached.take(LONG)
    other = others.detached("report", ANOTHER)
    assert lost(other.renew) == lost(other.release) == "taken over"
    expire(engine, locks, "report")
    assert lost(detached.renew) == "expired"
    other.take(LONG)
    assert lost(detached.renew) == lost(detached.release) == "taken over"
    other.release()
    assert lost(other.renew) == lost(other.release) == "released"
    other.take(LONG)
    assert locks.release("report", force=True)
    assert lost(other.renew) == lost(other.release) == "released"


def test_a_repeat_brings_the_expiry_forward(locks: Locks, engine: Engine) -> None:
    detached = locks.detached("report")
    detached.take(2 * LONG)
    assert detached.take(LONG).expires_in < LONG
    remaining = locks.show("report").remaining
    assert remaining is not None
    assert remaining <= LONG


def test_a_longer_ttl_than_any_before(locks: Locks) -> None:
    detached = locks.detached("report")
    detached.take(LONG)
    assert detached.renew(10_000).expires_in > 9_000
    assert detached.take(20_000).expires_in > 19_000


# --- waiting -----------------------------------------------------------------------------------


def waiting(
    threads: Threads, engine: Engine, take: Callable[[], DetachedHold]
) -> Callable[[], DetachedHold]:
    """Begin a take that waits; return what waits for its result."""
    before = waiters(engine)
    running = threads.start(take)
    eventually(lambda: waiters(engine) > before)
    return lambda: running.result(SECONDS)


def test_waiting(locks: Locks, others: Locks, engine: Engine, threads: Threads) -> None:
    first = locks.detached("report")
    fence = first.take(LONG).fence
    second = others.detached("report", TOKEN, owner="worker 7")
    result = waiting(threads, engine, lambda: second.take(LONG, wait=SECONDS))
    (waiter,) = locks.show("report").waiters
    assert waiter.owner == "worker 7"
    first.release()
    taken = result()
    assert (taken.fence, taken.repeated) == (fence + 1, False)
    assert taken.expires_in > 0.9 * LONG - MOMENT
    assert lock_row(engine, locks, "report").token == TOKEN
    assert locks.show("report").owner == "worker 7"
    assert locks.detached("report", TOKEN).take(LONG).repeated
    second.release()


def test_the_time_of_the_wait_is_counted(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    """The client counts from before the call, however long that waited."""
    first = locks.detached("report")
    first.take(LONG)
    second, ttl = others.detached("report"), 8 * MOMENT
    result = waiting(threads, engine, lambda: second.take(ttl, wait=SECONDS))
    threading.Event().wait(3 * MOMENT)  # longer than the margin, a tenth of the TTL
    first.release()
    assert result().expires_in > ttl


def test_waiting_in_vain(locks: Locks, others: Locks, engine: Engine) -> None:
    with locks.lease("report", ttl=LONG) as lease:
        with pytest.raises(NotAcquired) as raised:
            others.detached("report").take(LONG, wait=MOMENT)
        assert raised.value.holder is not None
        assert raised.value.holder.fence == lease.fence
        assert waiters(engine) == 0
    with locks.lease("report", wait=0):
        pass


def test_two_calls_wait_with_one_token(
    locks: Locks, new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    """As after a request that was cut off: one hold, of which both are told."""
    first = locks.detached("report")
    fence = first.take(LONG).fence
    results = [
        waiting(
            threads, engine, lambda: new_locks().detached("report", TOKEN).take(20 * LONG, LONG)
        )
        for _ in range(2)
    ]
    first.release()
    eventually(lambda: locks.show("report").fence == fence + 1)
    holds = [result() for result in results]
    assert {hold.fence for hold in holds} <= {fence + 1, fence + 2}
    assert sorted(hold.repeated for hold in holds) == [False, True]


# --- the text of a hold that was detached --------------------------------------------------------


def test_the_text_of_a_detached_hold(locks: Locks, others: Locks) -> None:
    with locks.lease("a.b", ttl=LONG) as lease:
        fence, text = lease.fence, lease.detach()
    detached = others.detached_from(text)
    assert detached.name == "a.b"
    assert detached.renew(LONG).fence == fence
    with locks.attach(text, ttl=LONG) as attached:
        assert attached.fence == fence
        assert lost(detached.renew) == lost(detached.release) == "taken over"
    with locks.lease("a.b", ttl=LONG) as lease:
        text = lease.detach()
    others.detached_from(text).release()
    with locks.lease("a.b", wait=0):
        pass


def test_a_release_by_its_text_passes_nothing_on_under_a_guard(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    """The transaction of the process that has detached it may be open yet."""
    if locks._database.dialect.traits.one_writer:
        return  # nobody releases anything while it is open
    lease = locks.lease("report", ttl=LONG)
    with borrowed(engine, "connection") as on:
        with lease, lease.guard(on):
            text = lease.detach()
        next_one = others.detached("report", TOKEN)
        result = waiting(threads, engine, lambda: next_one.take(LONG, wait=SECONDS))
        others.detached_from(text).release()
        threading.Event().wait(MOMENT)
        assert lock_row(engine, locks, "report").token is None
        on.rollback()
        assert result().fence == 2


# --- what else there is ------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "F" * 32, "f" * 31, "f" * 33, "g" * 32, "f" * 32 + "\n"])
def test_what_is_no_token(locks: Locks, token: str) -> None:
    with pytest.raises(ValueError, match="32 hexadecimal digits") as raised:
        locks.detached("report", token)
    assert not token or token not in str(raised.value)


def test_bad_input(locks: Locks) -> None:
    wrong: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: locks.detached("report", b"f" * 32), TypeError),  # type: ignore[arg-type]
        (lambda: locks.detached("", TOKEN), ValueError),
        (lambda: locks.detached("report", owner="\0"), ValueError),
        (lambda: locks.detached_from("report"), ValueError),
        (lambda: locks.detached("report").take(0), ValueError),
        (lambda: locks.detached("report").take("1"), TypeError),  # type: ignore[arg-type]
        (lambda: locks.detached("report").take(1, -1), ValueError),
        (lambda: locks.detached("report").renew(-1), ValueError),
    ]
    for call, error in wrong:
        with pytest.raises(error):
            call()


def test_the_token_is_secret(locks: Locks) -> None:
    detached = locks.detached("report", TOKEN)
    assert TOKEN not in repr(detached)
    assert TOKEN not in repr(detached.take(LONG))
    assert locks.detached("report").token != locks.detached("report").token


def test_it_stays_in_its_process(locks: Locks) -> None:
    with pytest.raises(TypeError, match="send the name and the token"):
        pickle.dumps(locks.detached("report"))


def test_events(locks: Locks, others: Locks) -> None:
    seen: list[LockEvent] = []
    stop = listen(seen.append)
    try:
        locks.detached("report", TOKEN).take(LONG)
        with pytest.raises(NotAcquired):
            others.detached("report", ANOTHER).take(LONG)
        with pytest.raises(NotAcquired):
            others.detached("report", ANOTHER).take(LONG, wait=MOMENT)
    finally:
        stop()
    assert [event.kind for event in seen] == [Kind.ACQUIRED, Kind.REFUSED, Kind.REFUSED]


def test_in_a_transaction_that_is_the_files_one_writer(locks: Locks, engine: Engine) -> None:
    if not locks._database.dialect.traits.one_writer:
        return
    detached = locks.detached("report")
    with borrowed(engine, "connection") as on, locks.row("other", on=on):
        for call in (detached.take, detached.renew, detached.release):
            with pytest.raises(DeadlockDetected):
                call()
