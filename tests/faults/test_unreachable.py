"""What a holder is told while its database is not to be had (promise 8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dblock import Danger, LockLost, Locks, Timeouts
from tests.conftest import NewDatabase, OwnServers
from tests.faults.conftest import RENEW, Net
from tests.faults.proxy import Lose
from tests.servers import OWN, OwnServer
from tests.support import LONG, SECONDS, eventually

QUICK = Timeouts(connect=1, query=0.5, socket=1)


@pytest.mark.parametrize("make", OWN.values())
def test_a_server_that_is_stopped(
    make: Callable[[], OwnServer], own_server: OwnServers, new_database: NewDatabase
) -> None:
    """It answers nothing and refuses nothing. The holder is told in time all the same."""
    server = own_server(make)
    db = new_database(server.kind, migrated=True, server=server)
    told: list[Danger | LockLost] = []
    seen: list[bool] = []

    def on_danger(danger: Danger) -> None:
        seen.append(lease.held)
        told.append(danger)

    with Locks(db.url, timeouts=QUICK) as locks:
        lease = locks.lease("report", ttl=2, on_danger=on_danger, on_lost=told.append)
        assert lease.acquire()
        lost = lease.lost
        server.pause()
        try:
            assert lost.wait(SECONDS)
            eventually(lambda: len(told) == 2)
        finally:
            server.resume()
        danger, loss = told
        assert isinstance(danger, Danger)
        assert isinstance(loss, LockLost)
        assert seen == [True]
        assert danger.cause is not None
        assert loss.reason == "unreachable"
        with pytest.raises(LockLost):
            lease.check()
        with locks.lease("report", ttl=LONG, wait=SECONDS) as later:
            later.check()
    assert not lease.held


def test_a_renewal_whose_reply_is_lost(net: Net) -> None:
    told: list[LockLost] = []
    lease = net.locks.lease("report", ttl=3, on_lost=told.append)
    assert lease.acquire()
    before = net.direct.show("report")
    lost = net.proxy.lose(Lose.REPLY, RENEW)
    assert lost.done.wait(SECONDS)
    first = net.direct.show("report")
    assert first.expires_at != before.expires_at
    eventually(lambda: net.direct.show("report").expires_at != first.expires_at)
    lease.release()
    assert told == []


def test_a_database_that_refuses_connections(net: Net) -> None:
    told: list[Danger | LockLost] = []
    lease = net.locks.lease("report", ttl=1, on_danger=told.append, on_lost=told.append)
    assert lease.acquire()
    net.proxy.lose(Lose.REQUEST, RENEW, hook=net.proxy.refuse)
    assert lease.lost.wait(SECONDS)
    eventually(lambda: len(told) == 2)
    danger, loss = told
    assert isinstance(danger, Danger)
    assert danger.cause
    assert isinstance(loss, LockLost)
    assert loss.reason == "unreachable"
