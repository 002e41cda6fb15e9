"""Whose a hold of a shared handle is: the handle's, as with threading.Lock, or, with
``reentrant=True``, that of the thread or task which took it, as with threading.RLock."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, LockLost, Locks, NotHeld
from tests.support import EAGER, LONG, SECONDS, SHORT, Threads, borrowed, eventually
from tests.worlds.behind import held_up_once

STEPS = 4
KINDS = ("lease", "reentrant", "row")


class Flow:
    """A thread, which has a task of its own in the world of asyncio."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self._pool.submit(function, *args, **options).result(SECONDS)

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture
def flows() -> Iterator[tuple[Flow, Flow]]:
    made = Flow(), Flow()
    yield made
    for flow in made:
        flow.close()


def make(locks: Locks, kind: str) -> Any:
    if kind == "row":
        return locks.row("report", retry=EAGER)
    return locks.lease("report", ttl=LONG, reentrant=kind == "reentrant", retry=EAGER)


def take(lock: Any) -> str:
    return str(lock.acquire(blocking=False))


def give_back(lock: Any) -> str:
    try:
        lock.release()
    except RuntimeError:
        return "not held"
    return "released"


def held(lock: Any) -> bool:
    """What it says of itself to whoever asks."""
    if isinstance(lock, type(threading.Lock())):
        return lock.locked()
    if isinstance(lock, type(threading.RLock())):
        return lock._is_owned()  # type: ignore[attr-defined,no-any-return]
    return bool(lock.held)


def script(lock: Any, flows: tuple[Flow, Flow], steps: Any) -> list[Any]:
    """What comes of each step, and what both are told then; everything is given back."""
    seen: list[Any] = []
    for number, do in steps:
        said = flows[number](do, lock)
        seen.append((number, do.__name__, said, [flow(held, lock) for flow in flows]))
    for flow in flows:
        while flow(held, lock):
            flow(lock.release)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_as_threadings_own_locks(locks: Locks, flows: tuple[Flow, Flow], kind: str) -> None:
    """Two who share one: whatever they do, it comes to what it comes to with Python's own."""
    lock = make(locks, kind)
    model = threading.RLock() if kind == "reentrant" else threading.Lock()
    for steps in itertools.product(itertools.product((0, 1), (take, give_back)), repeat=STEPS):
        # By symmetry the first step is the first one's; released first, it was never held.
        if steps[0] == (0, take):
            assert script(lock, flows, steps) == script(model, flows, steps)
    with pytest.raises(NotHeld):
        lock.release()


def test_what_the_handle_holds_is_there_for_all(
    locks: Locks, engine: Engine, flows: tuple[Flow, Flow]
) -> None:
    lease = locks.lease("report", ttl=LONG)
    one, another = flows

    def work() -> tuple[int, str]:
        assert lease.remaining > 0
        lease.check()
        lease.renew()
        with borrowed(engine, "session") as on, lease.guard(on):
            on.rollback()
        assert not lease.lost.is_set()
        return lease.fence, lease.token

    another(lease.acquire)
    another(lease.release)  # so it has had one of its own
    one(lease.acquire)
    assert one(work) == another(work)
    another(lease.release)
    assert not one(held, lease)


def test_a_reentrant_hold_is_there_for_its_holder_alone(
    locks: Locks, engine: Engine, flows: tuple[Flow, Flow]
) -> None:
    lease = locks.lease("report", ttl=LONG, reentrant=True)
    one, another = flows

    def guard() -> None:
        with borrowed(engine, "session") as on, lease.guard(on):
            raise AssertionError("not reached")

    def look() -> None:
        asked = (lease.release, lease.check, lease.renew, guard)
        for ask in (*asked, lambda: lease.fence, lambda: lease.token):
            with pytest.raises(NotHeld, match=r"is not held by this (thread|task)"):
                ask()
        assert lease.remaining == 0.0
        assert not lease.lost.is_set()

    one(lease.acquire)
    another(look)
    one(lease.check)
    assert one(lambda: lease.fence) == 1
    one(lease.release)


@pytest.mark.parametrize("kind", KINDS)
def test_who_holds_it_is_told_not_to_wait_for_it(
    locks: Locks, flows: tuple[Flow, Flow], kind: str
) -> None:
    lock = make(locks, kind)
    one, another = flows
    one(lock.acquire)
    if kind == "reentrant":
        assert one(lock.acquire)
        one(lock.release)
    else:
        with pytest.raises(DeadlockDetected):
            one(lock.acquire)
    waiting = threading.Thread(target=another, args=(lock.acquire,))
    waiting.start()
    one(lock.release)
    waiting.join(SECONDS)
    assert another(held, lock)
    another(lock.release)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_loss_is_for_who_had_the_hold(
    locks: Locks, flows: tuple[Flow, Flow], reentrant: bool
) -> None:
    lease = locks.lease("report", ttl=SHORT, renew=False, reentrant=reentrant)
    one, another = flows
    one(lease.acquire)
    eventually(lambda: not one(held, lease))
    assert another(lease.acquire, timeout=LONG)
    another(lease.renew, LONG)
    assert not one(held, lease)
    for ask in (lease.check, lease.renew, lease.release):
        with pytest.raises(LockLost):
            one(ask)
    another(lease.check)
    assert one(held, lease) is not reentrant  # from now on the handle has one hold only
    another(lease.release)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hold_is_released_through_its_own_handle(locks: Locks, kind: str) -> None:
    with make(locks, kind) as lock:
        other = make(locks, kind)
        assert not other.held
        with pytest.raises(NotHeld):
            other.release()
        assert lock.held


@pytest.mark.parametrize("kind", ["lease", "row"])
def test_of_two_who_release_at_once_one_has_done_it(
    locks: Locks, threads: Threads, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the other is not told of a loss that there was not."""
    lock = make(locks, kind)
    assert lock.acquire()
    begun, go_on = held_up_once(monkeypatch)
    first = threads.start(lock.release)
    assert begun.wait(SECONDS)
    with pytest.raises(NotHeld):
        threads.run(lock.release)
    assert not lock.held
    go_on.set()
    first.result(SECONDS)
    with make(locks, kind):
        pass
