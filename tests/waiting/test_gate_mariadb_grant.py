"""A grant on MariaDB decides once, whoever comes to the gate or goes meanwhile (promise 2)."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from dblock.dialects import MariaDB
from tests.support import SECONDS, Threads, eventually
from tests.waiting.conftest import NAME, lease
from tests.waiting.gates_mariadb import UserLock
from tests.worlds.portal import WORLDS

HELD_OPEN = "SHA1(CONCAT('the look at the gate/', DATABASE()))"


@pytest.fixture
def gate(user_lock: UserLock) -> UserLock:
    return user_lock


@pytest.mark.parametrize("world", WORLDS, indirect=True)
def test_who_leaves_the_gate_while_it_is_looked_at(
    gate: UserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grant that looked again would find the name free for some of its columns only."""
    gate.times.update(grace=SECONDS)  # a free name is kept for who is at its gate
    first, second = lease(gate.locks()), lease(gate.locks())
    with first:
        fence = first.fence
    looked = MariaDB.taken_elsewhere.fget  # type: ignore[attr-defined]
    then_wait = f"0 * GET_LOCK({HELD_OPEN}, {SECONDS})"
    monkeypatch.setattr(
        MariaDB, "taken_elsewhere", property(lambda self: f"({looked(self)} + {then_wait})")
    )
    with gate.session() as holding:
        holding.exec_driver_sql(f"DO GET_LOCK({HELD_OPEN}, {SECONDS})")
        with gate.shut():
            gate.give_back(0)
            trying = threads.start(second.acquire, blocking=False)
            gate.wait_until_waited_for()  # it has seen that somebody is at the gate
    assert not trying.result(SECONDS)
    monkeypatch.undo()
    assert second.acquire(blocking=False)
    assert second.fence == fence + 1


def test_no_fence_is_given_twice(gate: UserLock, threads: Threads) -> None:
    """One is at the gate again and again, others try without waiting; by chance."""
    fences: list[int] = []
    enough, done = 400, threading.Event()

    def take(wait: float) -> None:
        locks = gate.locks()
        while not done.is_set():
            mine = lease(locks, wait)
            if mine.acquire():
                fences.append(mine.fence)
                mine.release()

    threads.start(take, SECONDS)
    for _ in range(4):
        threads.start(take, 0)
    eventually(lambda: len(fences) >= enough)
    done.set()
    threads.join()
    assert all(earlier < later for earlier, later in pairwise(fences))


@pytest.mark.parametrize("missing", ["dblock_guard", "dblock_lock"])
@pytest.mark.parametrize("wait", [0, SECONDS])
def test_a_name_with_one_of_its_two_rows(gate: UserLock, missing: str, wait: float) -> None:
    """It was created by somebody who died then, or before there were guards."""
    gate.ask(f"DELETE FROM {missing} WHERE lock_name = '{NAME}' RETURNING 1")
    mine = lease(gate.locks(), wait)
    assert mine.acquire()
    assert not lease(gate.locks()).acquire(blocking=False)
    mine.release()
