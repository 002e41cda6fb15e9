"""A grant on MariaDB or MySQL decides once, whatever becomes of the user lock meanwhile (promise
2)."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from dblock.dialects import MariaDB
from tests.servers import execute
from tests.support import SECONDS, Threads, eventually
from tests.waiting.conftest import NAME, lease
from tests.waiting.user_lock import WatchedUserLock
from tests.worlds.portal import WORLDS

HELD_OPEN = "LEFT(CONCAT('the look/', DATABASE()), 64)"


@pytest.mark.parametrize("world", WORLDS, indirect=True)
def test_who_lets_the_user_lock_go_while_it_is_looked_at(
    user_lock: WatchedUserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grant that looked again would find the name free for some of its columns only."""
    user_lock.times.update(grace=SECONDS)  # a free name is kept for who has its user lock
    first, second = lease(user_lock.locks()), lease(user_lock.locks())
    with first:
        fence = first.fence
    looked = MariaDB.taken_elsewhere.fget  # type: ignore[attr-defined]
    then_wait = f"0 * GET_LOCK({HELD_OPEN}, {SECONDS})"
    monkeypatch.setattr(
        MariaDB, "taken_elsewhere", property(lambda self: f"({looked(self)} + {then_wait})")
    )
    with user_lock.session() as holding:
        holding.exec_driver_sql(f"DO GET_LOCK({HELD_OPEN}, {SECONDS})")
        with user_lock.taken():
            user_lock.give_back(0)
            trying = threads.start(second.acquire, blocking=False)
            user_lock.wait_until_waited_for()  # it has seen that somebody has it
    assert not trying.result(SECONDS)
    monkeypatch.undo()
    assert second.acquire(blocking=False)
    assert second.fence == fence + 1


def test_no_fence_is_given_twice(user_lock: WatchedUserLock, threads: Threads) -> None:
    """One waits in the server again and again, others try without waiting; by chance."""
    fences: list[int] = []
    enough, done = 400, threading.Event()

    def take(wait: float) -> None:
        locks = user_lock.locks()
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
def test_a_name_with_one_of_its_two_rows(
    user_lock: WatchedUserLock, missing: str, wait: float
) -> None:
    """It was created by somebody who died then, or before there were guards."""
    execute(user_lock.db.url, f"DELETE FROM {missing} WHERE lock_name = '{NAME}'")
    mine = lease(user_lock.locks(), wait)
    assert mine.acquire()
    assert not lease(user_lock.locks()).acquire(blocking=False)
    mine.release()


@pytest.mark.parametrize("moment", ["BEFORE", "AFTER"])
def test_what_a_trigger_of_the_users_tells_is_no_fence(
    user_lock: WatchedUserLock, moment: str
) -> None:
    mine = lease(user_lock.locks())
    with mine:
        fence = mine.fence
    with user_lock.session() as user:
        user.exec_driver_sql(
            f"CREATE TRIGGER telling {moment} UPDATE ON dblock_lock FOR EACH ROW "
            "SET @told = LAST_INSERT_ID(9999)"
        )
        try:
            assert mine.acquire()
            assert mine.fence == fence + 1
            mine.release()
        finally:
            user.exec_driver_sql("DROP TRIGGER telling")


@pytest.mark.parametrize("moment", ["BEFORE", "AFTER"])
def test_what_a_trigger_of_the_users_tells_is_no_fence_of_a_slot(
    user_lock: WatchedUserLock, moment: str
) -> None:
    locks = user_lock.locks()
    semaphore = locks.semaphore("api", 2)
    with semaphore, semaphore:
        pass  # both have a row
    with semaphore as slot:
        name, fence = slot.name, slot.fence
    with user_lock.session() as user:
        user.exec_driver_sql(
            f"CREATE TRIGGER telling {moment} UPDATE ON dblock_lock FOR EACH ROW "
            "SET @told = LAST_INSERT_ID(9999)"
        )
        try:
            with semaphore as slot:
                assert (slot.name, slot.fence) == (name, fence + 1)
                assert [state.name for state in locks.list()] == [name]
        finally:
            user.exec_driver_sql("DROP TRIGGER telling")
