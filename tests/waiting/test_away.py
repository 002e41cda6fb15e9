"""Waiting when the database, or what would be called on, is away (promises 8 and 10)."""

from __future__ import annotations

import time

import pytest

from dblock import Locks, OutcomeUnknown, RetryPolicy, Timeouts, Unavailable, events
from dblock.io.local_queue import LocalQueue
from dblock.protocol import release
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.steps import ANY_SERVER
from tests.faults.proxy import Proxy
from tests.servers import execute
from tests.support import LONG, SECONDS, Threads, eventually
from tests.waiting.conftest import NAME, Queue, lease
from tests.waiting.test_leaving import Enough

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ^@ 'LISTEN'"
)


def test_an_outage_is_told_to_all_who_wait(queue: Queue, threads: Threads) -> None:
    """And not to one after the other, each after the seconds for which it looks for the server."""
    told: list[float] = []

    def wait(locks: Locks) -> None:
        try:
            locks.lease(NAME).acquire()
        except Unavailable:
            told.append(time.monotonic())
        except OutcomeUnknown:
            pass  # its try was under way: it asks for longer what became of that

    patience = Timeouts(connect=1, query=0.5, socket=1)
    holder, proxy = lease(queue.locks()), Proxy(queue.db.url)
    with holder, proxy, Locks(proxy.url, timeouts=patience) as locks:
        for _ in range(6):
            threads.start(wait, locks)
        eventually(lambda: locks._database.contenders.local_queue.lengths() == [6])
        proxy.refuse()
        proxy.cut()
        threads.join()
    assert len(told) > 2
    assert told[-1] - told[0] < (len(told) - 1) * patience.socket / 2


def test_who_cannot_listen_does_not_try_again_at_once(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, tries = queue.locks(), list[int]()

    def take() -> None:
        tries.append(1)
        raise StatementError(Fault.UNREACHABLE, "too many clients already")

    monkeypatch.setattr(locks._database.holders, "take", take)
    with lease(queue.locks()):
        assert not locks.lease(NAME, wait=2.0).acquire()
    assert len(tries) == 1


@pytest.mark.usefixtures("only_calls")
def test_a_listener_of_another_server_is_not_listened_to(queue: Queue) -> None:
    """After a failover the old primary may still be there, and would never call."""
    locks = queue.locks()
    notifier = locks._database.contenders.local_queue.notifier
    listener = notifier.listener
    with lease(queue.locks()):  # the connection that listens is made in a wait
        eventually(lambda: not locks.lease(NAME, wait=0.2).acquire() and listener.listens)
    (connection,) = listener._open
    server = connection.session.server
    assert server is not None
    assert notifier.ticket(server) is not None
    assert notifier.ticket("another") is None
    assert not listener.listens
    assert notifier.ticket(server) is None  # for a while


@pytest.mark.usefixtures("only_calls")
def test_a_connection_that_is_gone_is_hung_up_again(queue: Queue) -> None:
    """By a caller that comes before the reader has found the end of the data."""
    locks = queue.locks()
    notifier = locks._database.contenders.local_queue.notifier
    with lease(queue.locks()):
        eventually(lambda: not locks.lease(NAME, wait=0.2).acquire() and notifier.listener.listens)
    assert execute(queue.db.url, LISTENERS)
    reader = notifier.ticket(notifier.listener.server)
    assert reader is not None
    notifier._reader = reader
    notifier.disconnect()
    eventually(lambda: not execute(queue.db.url, LISTENERS))
    notifier.disconnect()
    assert notifier.wait(reader, 10.0) == (True, None)
    assert not notifier.listener.listens
    notifier.forget(reader)


def test_a_hot_name_is_waited_for_by_the_listener_of_its_own_server(queue: Queue) -> None:
    """Which is known only when the first statement is answered."""
    locks = queue.locks()
    with lease(queue.locks()):
        eventually(
            lambda: (
                not locks.lease(NAME, wait=0.2).acquire()
                and locks._database.contenders.local_queue.notifier.listener.listens
            )
        )
    waiter = locks._database.contenders.local_queue.waiter("line")
    ticket, told = waiter.ticket(ANY_SERVER, look=False)
    assert told
    assert waiter.ticket("another", look=False)[0] != ticket
    waiter.leave()


def test_no_right_to_be_seen_is_no_refusal(queue: Queue) -> None:
    execute(queue.db.url, "DROP TABLE dblock_waiter")
    with lease(queue.locks()):
        assert not queue.locks().lease(NAME, wait=1.0).acquire()


def test_interrupted_in_an_outage_another_can_be_seen(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = queue.locks()

    def away(*args: object) -> None:
        raise Unavailable("nobody answers")

    def enough(attempt: object) -> None:
        if locks._database.contenders.seen:
            raise Enough

    with lease(queue.locks()), monkeypatch.context() as patch:
        patch.setattr(release, "abandon", away)
        with pytest.raises(Enough):
            locks.lease(NAME, retry=RetryPolicy(before_sleep=enough)).acquire()
    assert locks._database.contenders.seen == {}


@pytest.mark.parametrize("strategy", ["lease", "row"])
def test_a_hook_that_raises_leaves_no_lock(queue: Queue, strategy: str) -> None:
    locks = queue.locks()
    lock = locks.lease(NAME, ttl=LONG) if strategy == "lease" else locks.row(NAME)

    def interrupted(event: events.LockEvent) -> None:
        if event.kind is events.Kind.ACQUIRED:
            raise KeyboardInterrupt

    end = events.listen(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
    finally:
        end()
    assert not lock.held
    with queue.locks().row(NAME, wait=SECONDS):
        pass


def test_a_place_that_was_never_left_is_not_waited_for(queue: Queue) -> None:
    local_queue: LocalQueue = queue.locks()._database.contenders.local_queue
    first, second = local_queue.waiter("line"), local_queue.waiter("line")
    assert first.stand(0.0) == (True, False)
    assert second.stand(0.0) == (False, False)
    del first  # its thread was interrupted once more while it left
    assert second.stand(0.0) == (True, False)
