"""Slots of semaphores when replies are lost, callers interrupted, processes killed."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from sqlalchemy import make_url

from dblock import Locks
from dblock.protocol.slots import SlotAttempt
from dblock.protocol.steps import Procedure, Reply
from tests.conftest import Database, NewDatabase
from tests.faults.conftest import GRANT, RENEW, Net
from tests.faults.proxy import Lose
from tests.faults.test_round_trips import counting
from tests.patience import SECONDS
from tests.servers import execute

#: Ways to make a plan that are left to the planner, or not.
PLANS = ("hashjoin", "mergejoin", "nestloop", "tidscan", "material", "indexscan", "seqscan")


def test_one_slot_is_taken_whatever_the_plan(new_database: NewDatabase) -> None:
    """The part of the statement that finds a slot is run once: run again it finds another."""
    db = new_database("postgresql", migrated=True)
    with Locks(db.url) as locks, locks.semaphore("api", 3):
        pass
    execute(db.url, "VACUUM ANALYZE dblock_lock")  # it has one row, as far as the planner knows
    for off in ((), *combinations(PLANS, 1), ("hashjoin", "mergejoin", "tidscan")):
        # What is left out costs the planner so much that the server would compile each statement,
        # which takes as long as a thousand of them.
        said = " ".join(["-c jit=off", *(f"-c enable_{method}=off" for method in off)])
        url = make_url(db.url).update_query_dict({"options": said})
        with Locks(url) as locks:
            first, second = (locks.semaphore("api", 3, wait=0) for _ in range(2))
            for _ in range(7):  # after some there is one plan for whatever is asked for
                with first, second:
                    assert len(locks.list()) == 2, off


def test_a_slot_is_one_statement_to_take_and_one_to_give_back(db: Database) -> None:
    with counting(db) as counter:
        semaphore = counter.locks.semaphore("api", 3)
        with semaphore:  # its limit is written, and a slot made
            pass
        for _ in range(3):
            assert counter.of(semaphore.acquire) == 1
            assert counter.of(semaphore.slot.check) == 0
            assert counter.of(semaphore.release) == 1


def test_a_slot_of_before_costs_one_statement_more_if_it_is_taken(db: Database) -> None:
    with counting(db) as counter, Locks(db.url) as others:
        semaphore = counter.locks.semaphore("api", 3)
        for _ in range(2):
            with semaphore as slot, semaphore:
                name = slot.name
        with others.lease(name):
            assert counter.of(semaphore.acquire) == 2
            assert counter.of(semaphore.release) == 1
            assert counter.of(semaphore.acquire) == 1


@pytest.mark.parametrize("how", [Lose.REQUEST, Lose.REPLY])
def test_a_lost_reply_is_settled(net: Net, how: Lose) -> None:
    """Which slot was granted is found out by the token, and a renewal proves it."""
    with net.direct.semaphore("api", 2), net.direct.semaphore("api", 2):
        pass
    lost = net.proxy.lose(how, GRANT)
    semaphore = net.locks.semaphore("api", 2, wait=0)
    assert semaphore.acquire()
    assert lost.done.wait(SECONDS)
    assert (net.proxy.count(RENEW) > 0) is (how is Lose.REPLY)
    (state,) = net.direct.list()
    assert state.name == semaphore.slot.name
    semaphore.slot.check()
    semaphore.slot.renew()
    semaphore.release()
    assert net.direct.list() == []


def test_an_interrupted_try_gives_its_slot_back(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Locks(db.url) as locks:
        semaphore = locks.semaphore("api", 2)
        with semaphore:
            pass
        with monkeypatch.context() as patch:

            def interrupted(attempt: SlotAttempt) -> Procedure[Reply[Any]]:
                yield from asked(attempt)
                patch.undo()
                raise KeyboardInterrupt

            asked = SlotAttempt._ask
            patch.setattr(SlotAttempt, "_ask", interrupted)  # before it is known which slot it is
            with pytest.raises(KeyboardInterrupt):
                semaphore.acquire()
        assert locks.list() == []
        for _ in range(2):
            assert semaphore.acquire()
