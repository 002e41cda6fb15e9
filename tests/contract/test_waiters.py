"""Who has waited for a name for a moment can be seen, and since when."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import NoReturn

import pytest
from sqlalchemy.engine import Engine
from tenacity import wait_fixed

from dblock import Attempt, Lease, Locks, RetryPolicy, RowLock
from dblock.lock_state import LockState
from dblock.protocol import commands
from dblock.protocol.steps import Execute
from dblock.protocol.waiters import Waiter
from tests.contract.conftest import NewLocks
from tests.support import LONG, SECONDS, Threads, blocked, eventually, waiters
from tests.worlds.behind import run, timed

BRISK = RetryPolicy(wait=wait_fixed(0.02))


SOON = 0.05


@pytest.fixture
def times() -> dict[str, float]:
    return {"visible_after": SOON, "look_max": 2 * SOON, "poll": SOON, "server_wait": SOON}


class Enough(BaseException):
    """Raised in the middle of a wait, as a cancellation or Ctrl-C is."""


def lock_of(
    locks: Locks, strategy: str, name: str = "report", retry: RetryPolicy = BRISK
) -> Lease | RowLock:
    if strategy == "lease":
        return locks.lease(name, ttl=LONG, wait=SECONDS, retry=retry)
    return locks.row(name, wait=SECONDS, retry=retry)


def take(lock: Lease | RowLock) -> None:
    with lock:
        pass


strategies = pytest.mark.parametrize("strategy", ["lease", "row"])


@strategies
def test_who_waits_is_shown(
    new_locks: NewLocks, others: Locks, threads: Threads, strategy: str
) -> None:
    with others.lease("report", ttl=LONG), others.lease("another", ttl=LONG):
        threads.start(take, lock_of(new_locks(label="nightly"), strategy))
        eventually(lambda: bool(others.show("report").waiters))
        state = others.show("report")
        assert state.held
        (waiter,) = state.waiters
        assert waiter.owner.endswith("nightly")
        assert "pid" in waiter.owner
        assert waiter.strategy == strategy
        assert waiter.waited > 0
        assert state.acquired_at is not None
        assert waiter.since > state.acquired_at
        threads.start(take, lock_of(new_locks(label="later"), strategy))
        eventually(lambda: len(others.show("report").waiters) == 2)
        found = {
            state.name: [one.owner.split()[-1] for one in state.waiters] for state in others.list()
        }
        assert found == {"another": [], "report": ["nightly", "later"]}
    threads.join()
    assert others.show("report").waiters == ()


def test_who_waits_for_a_row_lock(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    """The name is listed although the lock table knows no holder."""

    def listed() -> list[LockState]:
        return others.list()

    take(others.row("report"))
    with blocked(engine, locks, "report"):
        if locks._database.dialect.traits.one_writer:
            return  # nobody can write there that it waits
        threads.start(take, lock_of(locks, "row"))
        eventually(lambda: any(state.waiters for state in listed()))
        (state,) = listed()
        assert (state.name, state.held, len(state.waiters)) == ("report", False, 1)
    threads.join()
    assert listed() == []


@strategies
def test_one_of_a_program_is_shown_after_the_other(
    locks: Locks, others: Locks, engine: Engine, threads: Threads, strategy: str
) -> None:
    """Until none of them waits."""
    enough = threading.Event()
    until_then = RetryPolicy(BRISK.wait, stop=lambda _: enough.is_set())
    with others.lease("report", ttl=LONG):
        given_up = threads.start(lock_of(locks, strategy, retry=until_then).acquire)
        eventually(lambda: waiters(engine) == 1)
        rest = [threads.start(take, lock_of(locks, strategy)) for _ in range(4)]
        enough.set()
        assert given_up.result(SECONDS) is False
        eventually(lambda: waiters(engine) == 1)
        time.sleep(3 * SOON)  # by now the others would be there too
        assert waiters(engine) == 1
        assert not any(one.done() for one in rest)
    threads.join()
    assert waiters(engine) == 0


@strategies
def test_an_interrupted_wait_leaves_no_trace(
    locks: Locks, others: Locks, engine: Engine, strategy: str
) -> None:
    def stop(attempt: Attempt) -> None:
        if others.show("report").waiters:
            raise Enough

    with others.lease("report", ttl=LONG):
        with pytest.raises(Enough):
            lock_of(locks, strategy, retry=RetryPolicy(BRISK.wait, before_sleep=stop)).acquire()
        eventually(lambda: waiters(engine) == 0)


@strategies
def test_a_short_wait_writes_nothing(
    locks: Locks, others: Locks, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    def write(*_: object) -> NoReturn:
        raise AssertionError("nobody has waited for long")

    monkeypatch.setattr(Waiter, "_write", write)
    timed(locks, visible_after=LONG)
    with others.lease("report", ttl=LONG):
        assert not lock_of(locks, strategy).acquire(timeout=0.3)


def test_what_the_killed_left_goes_with_time(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    def write(lasts: float) -> None:
        command = commands.Register(
            "0" * 32, "report", strategy="lease", owner="x", waited=60, lasts=lasts, holds={}
        )
        run(others, (step for step in (Execute(command),)))

    write(LONG)
    assert len(others.show("report").waiters) == 1
    write(-1)
    assert others.show("report").waiters == ()
    assert waiters(engine) == 1
    with others.lease("report", ttl=LONG):
        threads.start(take, lock_of(locks, "lease"))
        eventually(partial(_only_the_living, others, engine))
    threads.join()


def _only_the_living(locks: Locks, engine: Engine) -> bool:
    return (len(locks.show("report").waiters), waiters(engine)) == (1, 1)
