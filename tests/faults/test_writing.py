"""A write whose reply was lost is told to be unknown, and comes after no later one (promise 7)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from dblock import OutcomeUnknown, Timeouts, Unavailable
from dblock.aio import AsyncLocks
from tests.aio.support import async_url
from tests.faults.conftest import RELEASE, Net, refuse_set_up
from tests.faults.proxy import SECONDS, Lose
from tests.faults.test_settling import end_nothing

QUICK = Timeouts(connect=1, query=0.5, socket=1)
VALUE, LIMIT = b"fence BETWEEN 1 AND", b"written_at)\n            VALUES"
SLOTS = b"CASE WHEN fence = 0"


def test_a_value_that_arrives_late_replaces_no_newer_one(net: Net) -> None:
    with net.new_locks(QUICK) as locks:
        term = locks.election("leader", ttl=60).campaign()
        away = partial(net.proxy.refuse, cut=False)
        late = net.proxy.lose(Lose.TIMELINESS, VALUE, hook=away)
        with pytest.raises(OutcomeUnknown):
            term.proclaim("old")
        net.proxy.restore()
        term.proclaim("new")
        late.deliver()
        leader = net.direct.election("leader").leader()
        assert leader is not None
        assert leader.value == "new"


def test_a_late_value_replaces_no_newer_one_after_a_refused_set_up(net: Net) -> None:
    """dblock refuses the connection on which it would end the lost session, and does so later."""
    undo: list[Callable[[], None]] = []
    with net.new_locks(QUICK) as locks:
        term = locks.election("leader", ttl=60).campaign()
        refuse = partial(refuse_set_up, net.db.url, locks)
        late = net.proxy.lose(Lose.TIMELINESS, VALUE, hook=lambda: undo.append(refuse()))
        try:
            with pytest.raises(OutcomeUnknown):
                term.proclaim("old")
        finally:
            undo[0]()
        term.proclaim("new")
        late.deliver()
        leader = net.direct.election("leader").leader()
        assert leader is not None
        assert leader.value == "new"


def test_a_limit_that_arrives_late_replaces_no_newer_one(net: Net) -> None:
    with net.new_locks(QUICK) as locks:
        semaphore = locks.semaphore("api", 2)
        away = partial(net.proxy.refuse, cut=False)
        late = net.proxy.lose(Lose.TIMELINESS, LIMIT, hook=away)
        with pytest.raises(OutcomeUnknown):
            semaphore.resize(3)
        net.proxy.restore()
        semaphore.resize(5)
        late.deliver()
        slots = net.direct.show("api").slots
        assert slots is not None
        assert slots.limit == 5


def test_a_limit_whose_slots_cannot_be_looked_at(net: Net) -> None:
    """It was written, so it is not told that nothing was."""
    with net.new_locks(QUICK) as locks:
        semaphore = locks.semaphore("api", 2)
        semaphore.resize(2)
        net.proxy.lose(Lose.REQUEST, SLOTS, hook=partial(net.proxy.refuse, cut=False))
        with pytest.raises(OutcomeUnknown):
            semaphore.resize(3)
        net.proxy.restore()
        slots = net.direct.show("api").slots
        assert slots is not None
        assert slots.limit == 3


@pytest.mark.parametrize("world", ["asyncio"], indirect=True)
def test_a_value_whose_writing_was_cancelled_replaces_no_newer_one(net: Net) -> None:
    begun, late = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        late.wait(SECONDS)

    async def main() -> None:
        async with AsyncLocks(async_url(net.proxy.url)) as locks:
            term = await locks.election("leader", ttl=60).campaign()
            lost = net.proxy.lose(Lose.TIMELINESS, VALUE, hook=wait)
            writing = asyncio.create_task(term.proclaim("old"))
            assert await asyncio.to_thread(begun.wait, SECONDS)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            await term.proclaim("new")
            late.set()
            assert await asyncio.to_thread(lost.done.wait, SECONDS)
            await asyncio.to_thread(lost.deliver)
            leader = net.direct.election("leader").leader()
            assert leader is not None
            assert leader.value == "new"

    asyncio.run(main())


@pytest.mark.parametrize("lose", [Lose.REQUEST, Lose.REPLY])
def test_a_lost_value_is_written_again(net: Net, lose: Lose) -> None:
    term = net.locks.election("leader", ttl=60).campaign()
    for value in ("first", "second"):
        lost = net.proxy.lose(lose, VALUE)
        term.proclaim(value)
        assert lost.done.wait(SECONDS)
        leader = net.direct.election("leader").leader()
        assert leader is not None
        assert leader.value == value


def test_what_was_not_sent_is_known_not_to_be_written(net: Net) -> None:
    with net.new_locks(QUICK) as locks:
        term = locks.election("leader", ttl=60).campaign()
        net.proxy.refuse()
        with pytest.raises(OutcomeUnknown):  # its connection was there
            term.proclaim("old")
        with pytest.raises(Unavailable):
            term.proclaim("new")
        net.proxy.restore()
        leader = net.direct.election("leader").leader()
        assert leader is not None
        assert leader.value is None


@pytest.mark.parametrize("can_end", [True, False], ids=["can be ended", "cannot be ended"])
def test_a_release_after_one_that_is_in_doubt(
    net: Net, monkeypatch: pytest.MonkeyPatch, can_end: bool
) -> None:
    """It finds the name free, and that is the first one's doing, not a stranger's."""
    if not can_end:
        end_nothing(net, monkeypatch)
    with net.new_locks(QUICK) as locks:
        lease = locks.lease("report", ttl=60)
        assert lease.acquire()
        net.proxy.lose(Lose.REPLY, RELEASE, hook=partial(net.proxy.refuse, cut=False))
        with pytest.raises(OutcomeUnknown):
            lease.release()
        assert not lease.held
        net.proxy.restore()
        assert net.direct.list() == []
        lease.release()
