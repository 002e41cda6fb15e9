"""However a hold that has a gate ends on MariaDB, the gate goes with it."""

from __future__ import annotations

import gc

import pytest

from dblock import LockLost
from tests.support import LONG, SECONDS, Threads
from tests.waiting.conftest import NAME, lease
from tests.waiting.gates_mariadb import TABLE, UserLock, has
from tests.worlds.portal import WORLDS


@pytest.fixture
def gate(user_lock: UserLock) -> UserLock:
    return user_lock


def test_a_renewal_lets_it_go(gate: UserLock) -> None:
    held = has(gate, gate.quick().lease(NAME, ttl=LONG, renew=False))
    held.renew()
    gate.wait_until_let_go()
    held.release()
    assert gate.ask("SELECT token FROM dblock_lock") == [None]


@pytest.mark.parametrize("world", WORLDS, indirect=True)
def test_the_keepers_renewal_lets_it_go(gate: UserLock) -> None:
    held = has(gate, gate.quick().lease(NAME, ttl=6.0))
    gate.wait_until_let_go()
    held.check()
    held.release()
    assert gate.ask("SELECT token FROM dblock_lock") == [None]


def test_a_release_that_finds_its_row_in_use_lets_it_go(gate: UserLock, threads: Threads) -> None:
    held = has(gate, lease(gate.quick()))
    with gate.session() as session:
        session.exec_driver_sql("BEGIN")
        session.exec_driver_sql(f"SELECT 1 FROM {TABLE} WHERE lock_name = '{NAME}' FOR UPDATE")
        releasing = threads.start(held.release)
        gate.wait_until_let_go()
        session.exec_driver_sql("ROLLBACK")
    releasing.result(SECONDS)
    assert gate.ask("SELECT token FROM dblock_lock") == [None]


def test_it_is_let_go_with_a_lease_that_was_lost(gate: UserLock) -> None:
    held = has(gate, gate.quick().lease(NAME, ttl=LONG))
    assert gate.locks().release(NAME, force=True)
    with pytest.raises(LockLost, match="by force"):
        held.release()
    assert gate.had_by() == []


def test_the_loss_itself_lets_it_go(gate: UserLock) -> None:
    held = has(gate, gate.quick().lease(NAME, ttl=3.0, renew=False))
    assert held.lost.wait(SECONDS)
    gate.wait_until_let_go()
    with pytest.raises(LockLost):
        held.release()


def test_a_name_that_is_left_to_run_out_has_no_gate(gate: UserLock) -> None:
    held = has(gate, gate.quick().lease(NAME, ttl=LONG))
    held.release(after=LONG)
    gate.wait_until_let_go()
    assert not lease(gate.locks()).acquire(blocking=False)


def test_a_handle_that_is_dropped_has_no_gate(gate: UserLock) -> None:
    assert len(has(gate, gate.quick().lease(NAME, ttl=LONG)).token) > 1
    gc.collect()
    gate.wait_until_let_go()
