"""Rate limits: what a call costs, and what becomes of its place when replies are lost."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import make_url

from dblock import Locks, OutcomeUnknown, Unavailable
from tests.conftest import Database, NewDatabase
from tests.faults.conftest import Net
from tests.faults.proxy import Lose
from tests.faults.test_round_trips import counting
from tests.patience import SECONDS
from tests.servers import execute
from tests.support import Threads, eventually

HOUR = 3600.0
TAKE = b"LEAST("


def test_a_call_is_one_statement(db: Database) -> None:
    with counting(db) as counter:
        with counter.locks.lease("report"):  # makes the connection
            pass
        rate = counter.locks.rate("api", 2, per=HOUR)
        assert [counter.of(rate.acquire) for _ in range(4)] == [1] * 4
        assert counter.of(rate.release) == 0


def test_a_call_that_waits_asks_once(db: Database) -> None:
    with counting(db) as counter:
        rate = counter.locks.rate("api", 1, per=0.1, wait=SECONDS)
        assert rate.acquire()
        for _ in range(3):
            assert counter.of(rate.acquire) == 1


@pytest.mark.parametrize("how", [Lose.REQUEST, Lose.REPLY])
def test_a_lost_reply_uses_one_place_up(net: Net, how: Lose) -> None:
    """The call asks again, and finds the place that it has."""
    rate = net.locks.rate("api", 2, per=HOUR)
    assert rate.acquire()
    lost = net.proxy.lose(how, TAKE)
    assert rate.acquire()
    assert lost.done.wait(SECONDS)
    assert not net.direct.rate("api", 2, per=HOUR).acquire()
    twice = net.direct.rate("api", 4, per=2 * HOUR)  # its places are as long as those
    assert [twice.acquire() for _ in range(3)] == [True, True, False]


def test_a_place_that_may_be_taken_is_told_as_unknown(net: Net) -> None:
    rate = net.locks.rate("api", 2, per=HOUR)
    assert rate.acquire()
    net.proxy.lose(Lose.REPLY, TAKE, net.proxy.refuse)
    with pytest.raises(OutcomeUnknown):
        rate.acquire()
    with pytest.raises(Unavailable):
        rate.acquire()
    assert not net.direct.rate("api", 2, per=HOUR).acquire()


def test_a_place_that_another_takes_meanwhile(new_database: NewDatabase, threads: Threads) -> None:
    """A call has seen a place, and waits for the row of another call, which takes it."""
    db = new_database("postgresql", migrated=True)
    url = make_url(db.url).set(drivername="postgresql").render_as_string(False)
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with Locks(db.url) as locks, psycopg.connect(url) as another:
        rate = locks.rate("api", 2, per=HOUR)
        assert rate.acquire()
        another.execute("UPDATE dblock_value SET fence = fence - 1800000000, value = 'another'")
        calling = threads.start(rate.acquire)
        eventually(lambda: execute(db.url, waits) == [(1,)])
        another.commit()
        assert calling.result(SECONDS) is False
