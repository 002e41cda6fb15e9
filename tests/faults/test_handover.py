"""What becomes of a handover whose request or reply is lost (promise 7)."""

from __future__ import annotations

import pytest

from dblock import LockLost, Locks, OutcomeUnknown
from tests.conftest import Database
from tests.faults.conftest import RENEW, Net
from tests.faults.database import forget
from tests.faults.proxy import Lose
from tests.servers import FAMILY, execute
from tests.support import LONG, SECONDS

# Bytes that occur in that statement only.
ATTACH = {
    "postgresql": b"AS l SET token = ",
    **dict.fromkeys(FAMILY, b"LAST_INSERT_ID(fence),"),
}


def detached(net: Net, ttl: float = 60.0) -> tuple[int, str]:
    with net.direct.lease("report", ttl=ttl) as lease:
        return lease.fence, lease.detach()


@pytest.mark.parametrize("what", [Lose.REQUEST, Lose.REPLY])
def test_an_attach_that_is_lost(net: Net, what: Lose) -> None:
    fence, text = detached(net)
    lost = net.proxy.lose(what, ATTACH[net.db.kind])
    with net.locks.attach(text, ttl=60) as lease:
        assert lost.done.wait(SECONDS)
        assert lease.fence == fence
        lease.check()
        with pytest.raises(LockLost) as raised:
            net.direct.attach(text).acquire()
        assert raised.value.reason == "attached"
    with net.direct.lease("report", wait=0) as later:
        assert later.fence == fence + 1


def test_nobody_knows(net: Net) -> None:
    _, text = detached(net)
    net.proxy.lose(Lose.REPLY, ATTACH[net.db.kind], hook=net.proxy.refuse)
    with pytest.raises(OutcomeUnknown):
        net.locks.attach(text, ttl=60).acquire()
    net.proxy.restore()
    with pytest.raises(LockLost) as raised:
        net.locks.attach(text).acquire()
    assert raised.value.reason == "attached"
    assert net.direct.show("report").held


def test_a_detach_whose_reply_is_lost(net: Net) -> None:
    lease = net.locks.lease("report", ttl=60)
    assert lease.acquire()
    fence = lease.fence
    lost = net.proxy.lose(Lose.REPLY, RENEW)
    text = lease.detach()
    assert lost.done.wait(SECONDS)
    with net.direct.attach(text) as taken:
        assert taken.fence == fence


def test_another_epoch(unused: Database) -> None:
    """Of before a failover: what it is of may be older than what others were told."""
    with Locks(unused.url) as locks:
        with locks.lease("report", ttl=LONG) as lease:
            text = lease.detach()
        execute(unused.url, "UPDATE dblock_epoch SET server = 'another'")
        execute(unused.url, "TRUNCATE dblock_witness")
        for _ in range(2):
            with pytest.raises(LockLost) as raised:
                locks.attach(text).acquire()
            assert raised.value.reason == "failover"


def test_forgotten(volatile: Database) -> None:
    with Locks(volatile.url) as locks:
        with locks.lease("report", ttl=LONG) as lease:
            text = lease.detach()
        forget(volatile.url)
        with pytest.raises(LockLost) as raised:
            locks.attach(text).acquire()
        assert raised.value.reason == "crash"


def test_a_ttl_that_nobody_has_asked_for_yet(unused: Database) -> None:
    with Locks(unused.url) as locks:
        with locks.lease("report", ttl=10) as lease:
            text = lease.detach(LONG)
        with locks.attach(text, ttl=100 * LONG) as taken:
            assert taken.remaining > 50 * LONG
