"""What becomes of a take, renewal or release by token whose request or reply is lost."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import create_engine

from dblock import LockLost, Locks, NotAcquired, OutcomeUnknown, Unavailable
from dblock.handles.detached import HAND_OVER
from tests.conftest import Database
from tests.faults.conftest import GRANT, RELEASE, RENEW, Net
from tests.faults.database import forget
from tests.faults.proxy import SECONDS, Lose
from tests.faults.test_handover import ATTACH
from tests.faults.test_shared import JOIN, LEAVE
from tests.servers import execute
from tests.support import LONG, Threads, eventually, lock_row

TOKEN = "0123456789abcdef" * 2
LOST = pytest.mark.parametrize("what", [Lose.REQUEST, Lose.REPLY])


def token_of(locks: Locks, url: str) -> str | None:
    engine = create_engine(url)
    try:
        return lock_row(engine, locks, "report").token
    finally:
        engine.dispose()


@LOST
def test_a_take_that_is_lost(net: Net, what: Lose) -> None:
    detached = net.locks.detached("report", TOKEN)
    lost = net.proxy.lose(what, GRANT)
    taken = detached.take(LONG)
    assert lost.done.wait(SECONDS)
    assert taken.fence == 1
    with pytest.raises(NotAcquired):
        net.direct.detached("report").take(LONG)
    assert net.direct.detached("report", TOKEN).renew(LONG).fence == 1
    detached.release()
    with net.direct.lease("report", wait=0) as later:
        assert later.fence == 2


def test_nobody_knows_and_the_token_finds_out(net: Net) -> None:
    detached = net.locks.detached("report", TOKEN)
    net.proxy.lose(Lose.REPLY, GRANT, hook=net.proxy.refuse)
    with pytest.raises(OutcomeUnknown):
        detached.take(LONG)
    elsewhere = net.direct.detached("report", TOKEN).take(LONG)
    assert (elsewhere.fence, elsewhere.repeated) == (1, True)
    net.proxy.restore()
    again = detached.take(LONG)
    assert (again.fence, again.repeated) == (1, True)


def test_a_grant_that_is_told_too_late_is_not_released(net: Net) -> None:
    """Another call with the token may have been told by then that it has the name."""
    ttl, detached = 1.0, net.locks.detached("report", TOKEN)
    with net.locks.lease("report"):
        pass  # the connection is there
    net.proxy.lose(Lose.NOTHING, GRANT, hook=lambda: time.sleep(ttl))
    with pytest.raises(OutcomeUnknown, match="with the same token"):
        detached.take(ttl)
    assert token_of(net.direct, net.db.url) == TOKEN
    assert detached.take(LONG).fence >= 2


@LOST
def test_a_renewal_that_is_lost(net: Net, what: Lose) -> None:
    detached = net.locks.detached("report", TOKEN)
    fence = detached.take(LONG).fence
    lost = net.proxy.lose(what, RENEW)
    assert detached.renew(2 * LONG).fence == fence
    assert lost.done.wait(SECONDS)
    state = net.direct.show("report")
    assert state.remaining is not None
    assert state.remaining > LONG


@LOST
def test_a_release_that_is_lost(net: Net, what: Lose) -> None:
    detached = net.locks.detached("report", TOKEN)
    detached.take(LONG)
    lost = net.proxy.lose(what, RELEASE)
    detached.release()
    assert lost.done.wait(SECONDS)
    with pytest.raises(LockLost):
        detached.release()
    with net.direct.lease("report", wait=0):
        pass


def test_a_database_that_is_away(net: Net) -> None:
    detached = net.locks.detached("report", TOKEN)
    fence = detached.take(LONG).fence
    net.proxy.refuse()
    for call in (detached.renew, detached.release, detached.take):
        with pytest.raises(Unavailable):
            call()
    net.proxy.restore()
    assert detached.renew(LONG).fence == fence


@LOST
def test_what_was_waited_for_is_lost_when_it_gets_the_token(
    net: Net, threads: Threads, what: Lose
) -> None:
    first = net.direct.detached("report")
    first.take(LONG)
    detached = net.locks.detached("report", TOKEN)
    lost = net.proxy.lose(what, ATTACH[net.db.kind])
    running = threads.start(lambda: detached.take(LONG, wait=SECONDS))
    eventually(lambda: bool(net.direct.show("report").waiters))
    first.release()
    taken = running.result(SECONDS)
    assert lost.done.wait(SECONDS)
    assert taken.fence == 2
    assert net.direct.detached("report", TOKEN).renew(LONG).fence == 2


def test_nobody_knows_whether_it_got_the_token(net: Net, threads: Threads) -> None:
    first = net.direct.detached("report")
    first.take(LONG)
    detached = net.locks.detached("report", TOKEN)
    net.proxy.lose(Lose.REPLY, ATTACH[net.db.kind], hook=net.proxy.refuse)

    def take() -> None:
        with pytest.raises(OutcomeUnknown):
            detached.take(LONG, wait=SECONDS)

    running = threads.start(take)
    eventually(lambda: bool(net.direct.show("report").waiters))
    first.release()
    running.result(SECONDS)
    assert net.direct.detached("report", TOKEN).take(LONG).repeated


def test_what_was_waited_for_is_soon_free_if_it_does_not_get_the_token(
    net: Net, threads: Threads
) -> None:
    first = net.direct.detached("report")
    first.take(LONG)
    detached = net.locks.detached("report", TOKEN)
    net.proxy.lose(Lose.REQUEST, ATTACH[net.db.kind], hook=net.proxy.refuse)

    def take() -> None:
        with pytest.raises(OutcomeUnknown):
            detached.take(3600, wait=SECONDS)

    running = threads.start(take)
    eventually(lambda: bool(net.direct.show("report").waiters))
    first.release()
    running.result(SECONDS)
    remaining = net.direct.show("report").remaining
    assert remaining is None or remaining <= HAND_OVER


# --- epochs ------------------------------------------------------------------------------------


def test_another_epoch(unused: Database) -> None:
    with Locks(unused.url) as locks:
        detached = locks.detached("report", TOKEN)
        detached.take(LONG)
        execute(unused.url, "UPDATE dblock_epoch SET server = 'another'")
        execute(unused.url, "TRUNCATE dblock_witness")
        for _ in range(2):
            with pytest.raises(LockLost) as raised:
                detached.renew(LONG)
            assert raised.value.reason == "failover"
        with pytest.raises(NotAcquired):  # nothing is granted until its lease is over for certain
            detached.take(LONG)


def test_forgotten(volatile: Database) -> None:
    with Locks(volatile.url) as locks:
        detached = locks.detached("report", TOKEN)
        detached.take(LONG)
        forget(volatile.url)
        with pytest.raises(LockLost):
            detached.renew(LONG)
        with pytest.raises(NotAcquired, match="crashed or failed over"):
            detached.take(LONG)


# --- slots and shares ----------------------------------------------------------------------------


@LOST
def test_a_slot_that_is_lost(net: Net, what: Lose) -> None:
    with net.direct.semaphore("api", 1):
        pass  # its limit and its slot are there
    lost = net.proxy.lose(what, GRANT)
    slot = net.locks.detached_semaphore("api", 1, TOKEN).take(LONG)
    assert lost.done.wait(SECONDS)
    assert slot.fence == 2
    assert net.direct.detached(slot.name, TOKEN).renew(LONG).fence == 2
    with pytest.raises(NotAcquired):
        net.direct.detached_semaphore("api", 1).take(LONG)


@LOST
def test_a_share_that_is_joined_is_lost(net: Net, what: Lose) -> None:
    with net.direct.shared("report", ttl=LONG) as reader:
        lost = net.proxy.lose(what, JOIN)
        detached = net.locks.detached("report", TOKEN, shared=True)
        assert detached.take(LONG).fence == reader.fence
        assert lost.done.wait(SECONDS)
        assert net.direct.show("report").readers == 2
        lost = net.proxy.lose(what, LEAVE)
        detached.release()
        assert lost.done.wait(SECONDS)
        assert net.direct.show("report").readers == 1
        with pytest.raises(LockLost):
            detached.release()
