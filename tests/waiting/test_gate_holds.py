"""However a hold that has a gate ends, on PostgreSQL and on MariaDB, the gate goes with it."""

from __future__ import annotations

import gc

import pytest

from dblock import LockLost
from tests.support import LONG, SECONDS
from tests.waiting.conftest import NAME, lease
from tests.waiting.gates import Gate, has
from tests.worlds.portal import WORLDS
from tests.worlds.world import World


@pytest.fixture(params=["gate", "user_lock"], ids=["postgresql", "mariadb"])
def either(request: pytest.FixtureRequest, world: World) -> Gate:
    made: Gate = request.getfixturevalue(request.param)
    return made


def test_a_renewal_lets_it_go(either: Gate) -> None:
    held = has(either, either.quick().lease(NAME, ttl=LONG, renew=False))
    held.renew()
    either.wait_until_let_go()
    held.release()
    assert either.ask("SELECT token FROM dblock_lock") == [None]


@pytest.mark.parametrize("world", WORLDS, indirect=True)
def test_the_keepers_renewal_lets_it_go(either: Gate) -> None:
    held = has(either, either.quick().lease(NAME, ttl=6.0))
    either.wait_until_let_go()
    held.check()
    held.release()
    assert either.ask("SELECT token FROM dblock_lock") == [None]


def test_it_is_let_go_with_a_lease_that_was_lost(either: Gate) -> None:
    held = has(either, either.quick().lease(NAME, ttl=LONG))
    assert either.locks().release(NAME, force=True)
    with pytest.raises(LockLost, match="by force"):
        held.release()
    assert either.had_by() == []


def test_the_loss_itself_lets_it_go(either: Gate) -> None:
    held = has(either, either.quick().lease(NAME, ttl=3.0, renew=False))
    assert held.lost.wait(SECONDS)
    either.wait_until_let_go()
    with pytest.raises(LockLost):
        held.release()


def test_a_name_that_is_left_to_run_out_has_no_gate(either: Gate) -> None:
    held = has(either, either.quick().lease(NAME, ttl=LONG))
    held.release(after=LONG)
    either.wait_until_let_go()
    assert not lease(either.locks()).acquire(blocking=False)


def test_a_handle_that_is_dropped_has_no_gate(either: Gate) -> None:
    assert len(has(either, either.quick().lease(NAME, ttl=LONG)).token) > 1
    gc.collect()
    either.wait_until_let_go()
