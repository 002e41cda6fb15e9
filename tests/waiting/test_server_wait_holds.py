"""However a hold that has a user lock ends on MariaDB or MySQL, that goes with it."""

from __future__ import annotations

import gc

import pytest

from dblock import LockLost
from tests.support import LONG, SECONDS, Threads
from tests.waiting.conftest import NAME, lease
from tests.waiting.user_lock import TABLE, WatchedUserLock, has
from tests.worlds.portal import WORLDS


def test_a_renewal_lets_it_go(user_lock: WatchedUserLock) -> None:
    held = has(user_lock, user_lock.hot().lease(NAME, ttl=LONG, renew=False))
    held.renew()
    user_lock.wait_until_let_go()
    held.release()
    assert user_lock.ask("SELECT token FROM dblock_lock") == [None]


@pytest.mark.parametrize("world", WORLDS, indirect=True)
def test_the_keepers_renewal_lets_it_go(user_lock: WatchedUserLock) -> None:
    held = has(user_lock, user_lock.hot().lease(NAME, ttl=6.0))
    user_lock.wait_until_let_go()
    held.check()
    held.release()
    assert user_lock.ask("SELECT token FROM dblock_lock") == [None]


def test_a_release_that_finds_its_row_in_use_lets_it_go(
    user_lock: WatchedUserLock, threads: Threads
) -> None:
    held = has(user_lock, lease(user_lock.hot()))
    with user_lock.session() as session:
        session.exec_driver_sql("BEGIN")
        session.exec_driver_sql(f"SELECT 1 FROM {TABLE} WHERE lock_name = '{NAME}' FOR UPDATE")
        releasing = threads.start(held.release)
        user_lock.wait_until_let_go()
        session.exec_driver_sql("ROLLBACK")
    releasing.result(SECONDS)
    assert user_lock.ask("SELECT token FROM dblock_lock") == [None]


def test_it_is_let_go_with_a_lease_that_was_lost(user_lock: WatchedUserLock) -> None:
    held = has(user_lock, user_lock.hot().lease(NAME, ttl=LONG))
    assert user_lock.locks().release(NAME, force=True)
    with pytest.raises(LockLost, match="by force"):
        held.release()
    assert user_lock.had_by() == []


def test_the_loss_itself_lets_it_go(user_lock: WatchedUserLock) -> None:
    held = has(user_lock, user_lock.hot().lease(NAME, ttl=3.0, renew=False))
    assert held.lost.wait(SECONDS)
    user_lock.wait_until_let_go()
    with pytest.raises(LockLost):
        held.release()


def test_a_name_that_is_left_to_run_out_has_no_user_lock(user_lock: WatchedUserLock) -> None:
    held = has(user_lock, user_lock.hot().lease(NAME, ttl=LONG))
    held.release(after=LONG)
    user_lock.wait_until_let_go()
    assert not lease(user_lock.locks()).acquire(blocking=False)


def test_a_handle_that_is_dropped_has_no_user_lock(user_lock: WatchedUserLock) -> None:
    assert len(has(user_lock, user_lock.hot().lease(NAME, ttl=LONG)).token) > 1
    gc.collect()
    user_lock.wait_until_let_go()
