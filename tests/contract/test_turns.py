"""Who waits for one of dblock's connections, where many share them (promise 10)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dblock import Locks, Timeouts, Unavailable
from dblock.dialects.query import Query
from dblock.holding.database import CONNECTIONS
from dblock.io.connecting import OwnConnection
from tests.contract.conftest import NewLocks
from tests.support import LONG, MOMENT, SECONDS, Threads, eventually
from tests.worlds.surface import Surface

ONE: Query[int] = Query("SELECT 1", {})
#: A test outlasts it, and it is long for one statement.
PATIENCE = Timeouts(connect=5.0, query=2.0, socket=3.0)


def do(locks: Locks, function: Callable[..., Any], *args: Any) -> Any:
    """Do something in the world of some Locks."""
    return locks.run(function, *args) if isinstance(locks, Surface) else function(*args)


@contextmanager
def all_taken(locks: Locks) -> Iterator[list[OwnConnection]]:
    """Let others have all connections that those have who only ask."""
    connections = locks._database.connections
    taken = [do(locks, connections.take) for _ in range(CONNECTIONS)]
    try:
        yield taken
    finally:
        for connection in taken:
            do(locks, connections.give, connection)


def test_what_ends_a_hold_goes_before_those_who_ask(locks: Locks, threads: Threads) -> None:
    lease, reader = locks.lease("a", ttl=LONG), locks.shared("b", ttl=LONG)
    assert lease.acquire()
    assert reader.acquire()
    with all_taken(locks):
        asking = threads.start(locks.lease("c", ttl=LONG).acquire)
        lease.renew()
        lease.release()
        reader.release()
        assert not asking.done()
    assert asking.result(SECONDS)


def test_who_waits_for_a_turn_goes_on_while_the_server_answers(
    new_locks: NewLocks, threads: Threads
) -> None:
    """It is those before it that it waits for, and not the database."""
    locks = new_locks(timeouts=PATIENCE)
    connections = locks._database.connections
    with all_taken(locks) as taken:
        asking = threads.start(locks.lease("a", ttl=LONG).acquire)
        until = time.monotonic() + 2 * PATIENCE.socket
        while time.monotonic() < until:
            do(locks, connections.execute, taken[0], ONE)
            time.sleep(MOMENT / 5)
        assert not asking.done()
    assert asking.result(SECONDS)


def test_who_waits_for_a_turn_is_told_when_the_server_answers_nobody(
    new_locks: NewLocks, threads: Threads
) -> None:
    locks = new_locks(timeouts=PATIENCE)
    with all_taken(locks):
        asking = threads.attempt(locks.lease("a", ttl=LONG).acquire)
        eventually(asking.done)
    with pytest.raises(Unavailable, match="are busy, and the server answers none"):
        asking.result()


def test_a_wait_lasts_until_its_end_though_others_have_all_connections(
    new_locks: NewLocks, threads: Threads
) -> None:
    """Far more threads or tasks than connections, which all look: none hears of a lack of those."""
    locks, others = new_locks(timeouts=PATIENCE), new_locks()
    names = [f"name {number}" for number in range(3 * CONNECTIONS)]
    held = [others.lease(name, ttl=LONG) for name in names]
    assert all(one.acquire() for one in held)
    waiting = [threads.start(locks.lease(name, ttl=LONG, wait=SECONDS).acquire) for name in names]
    eventually(lambda: all(others.show(name).waiters for name in names))
    with all_taken(locks) as taken:
        until = time.monotonic() + 2 * PATIENCE.socket
        while time.monotonic() < until:
            do(locks, locks._database.connections.execute, taken[0], ONE)
            time.sleep(MOMENT / 5)
    for one in held:
        one.release()
    assert all(one.result(SECONDS) for one in waiting)
