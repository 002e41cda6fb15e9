"""``fair=True`` keeps the order of arrival where nobody can be called, too (promise 10)."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from sqlalchemy import create_engine, text
from tenacity import wait_fixed

from dblock import RetryPolicy
from dblock.dialects.tickets import TICKET
from tests.servers import FAMILY
from tests.support import Threads, eventually
from tests.waiting.conftest import Queue, lease, take_turn

GHOST = "0" * TICKET  # of one who died while it waited


@pytest.mark.usefixtures("kept_for_ever")
def test_in_the_order_of_arrival(uncalled: Queue, threads: Threads) -> None:
    turns: list[int] = []
    with lease(uncalled.locks()):
        for number in range(4):
            threads.start(take_turn, uncalled.locks(), turns, number, fair=True)
            uncalled.wait_for(number + 1)
    threads.join()
    assert turns == [0, 1, 2, 3]
    assert uncalled.tickets == []


@pytest.mark.usefixtures("kept_for_ever")
def test_nobody_overtakes_and_nobody_stays(uncalled: Queue) -> None:
    """Not who tries once, nor who waits without standing in the queue, nor behind the first."""
    holder = lease(uncalled.locks())
    with holder:
        uncalled.put(GHOST)
    passer_by = uncalled.locks()
    assert not lease(passer_by).acquire(blocking=False)
    assert not lease(passer_by).acquire(timeout=0.2)
    assert not lease(passer_by, fair=True).acquire(timeout=0.2)
    assert uncalled.tickets == [GHOST]


def test_who_died_is_passed_over(uncalled: Queue, threads: Threads) -> None:
    holder = lease(uncalled.locks())
    assert holder.acquire()
    uncalled.put(GHOST)
    taken: Future[bool] = threads.start(lease(uncalled.locks(), fair=True).acquire)
    uncalled.wait_for(2)
    holder.release()
    assert taken.result()
    assert uncalled.tickets == []


@pytest.mark.parametrize("uncalled", ["pgbouncer", *FAMILY], indirect=True)  # no one writer
def test_who_joins_disturbs_no_guard(uncalled: Queue, threads: Threads) -> None:
    holder, turns = lease(uncalled.locks()), list[int]()
    assert holder.acquire()
    engine = create_engine(uncalled.db.url)
    with engine.connect() as connection:
        with holder.guard(connection):
            threads.start(take_turn, uncalled.locks(), turns, 1, fair=True)
            uncalled.wait_for(1)
            connection.execute(text("SELECT 1"))
        connection.commit()
    engine.dispose()
    holder.release()
    threads.join()
    assert turns == [1]


def test_nobody_stands_in_the_queue_who_says_how_long_to_sleep(
    uncalled: Queue, threads: Threads
) -> None:
    other, turns = uncalled.locks(), list[int]()
    said = RetryPolicy(wait=wait_fixed(0.05))
    with lease(uncalled.locks()):
        threads.start(take_turn, other, turns, 1, retry=said)
        eventually(lambda: other._database.contenders.local_queue.lengths() == [1])
        assert not lease(uncalled.locks(), retry=said).acquire(timeout=0.2)
        assert uncalled.tickets == []
    threads.join()
    assert turns == [1]


@pytest.mark.usefixtures("kept_for_ever")
@pytest.mark.parametrize("uncalled", ["pgbouncer", "sqlite"], indirect=True)  # without user locks
def test_who_has_waited_for_a_moment_stands_in_the_queue(uncalled: Queue, threads: Threads) -> None:
    turns = list[int]()
    with lease(uncalled.locks()):
        for number in range(3):
            threads.start(take_turn, uncalled.locks(), turns, number)
            uncalled.wait_for(number + 1)
    threads.join()
    assert turns == [0, 1, 2]
    assert uncalled.tickets == []
