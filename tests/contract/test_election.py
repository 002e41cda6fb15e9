"""Elections: one leads, and everybody can know who, for as long as it is so and no longer."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from queue import Queue
from threading import Thread
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import text, update
from sqlalchemy.engine import Engine

import dblock.handles.election
from dblock import (
    DeadlockDetected,
    Election,
    Leader,
    Leadership,
    Lease,
    LockLost,
    Locks,
    NotAcquired,
    NotHeld,
    Unavailable,
)
from tests.contract.conftest import NewLocks
from tests.lending import Database
from tests.servers import execute
from tests.support import (
    LONG,
    SECONDS,
    SHORT,
    TABLE,
    Facts,
    Threads,
    blocked,
    eventually,
    expire,
    lock_row,
    named,
    new_session,
)
from tests.worlds.behind import held_up_once
from tests.worlds.surface import Surface

LOOKS = 0.02
VALUES = [None, 0, True, "", [1, [2]], {"a": None}, "Ünïcode \\ ' \" %s \0", "x" * 8190]


@pytest.fixture
def election(locks: Locks) -> Election:
    return locks.election("leader", ttl=LONG, label="first")


@pytest.fixture
def rival(others: Locks) -> Election:
    return others.election("leader", ttl=LONG, label="second")


def told(leader: Leader | None) -> Any:
    """What of a leader stays as it is."""
    return None if leader is None else (leader.fence, leader.value)


def disconnect(locks: Locks) -> None:
    if isinstance(locks, Surface):
        locks.run(locks.target._database.disconnect)
    else:
        locks._database.disconnect()


class Watching:
    """An observer in a thread of its own, and what it sees: until that is a value, "over"."""

    def __init__(self, election: Election, interval: float = LOOKS) -> None:
        self._seen: Queue[Any] = Queue()
        observation = election.observe(interval)
        self._thread = Thread(target=self._watch, args=(observation,), daemon=True)
        self._thread.start()

    def _watch(self, observation: Any) -> None:
        try:
            for leader in observation:
                self._seen.put(told(leader))
                if leader is not None and leader.value == "over":
                    return
        except BaseException as error:
            self._seen.put(error)

    def next(self) -> Any:
        return self._seen.get(timeout=SECONDS)

    def until(self, wanted: Any) -> None:
        while (seen := self.next()) != wanted:
            assert not isinstance(seen, BaseException), seen

    def join(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def test_one_leads(election: Election, rival: Election) -> None:
    assert election.leader() is None
    with election.campaign() as term:
        assert term.held
        assert term.fence == 1
        with pytest.raises(NotAcquired, match="first"):
            rival.campaign(wait=0)
        leader = rival.leader()
        assert leader is not None
        assert leader == election.leader() or leader.remaining > 0
        assert (leader.fence, leader.value) == (1, None)
        assert "first" in str(leader.owner)
        assert 0 < leader.remaining <= LONG
    assert not term.held
    assert rival.leader() is None
    with rival.campaign(wait=0) as term:
        assert term.fence == 2


def test_since_is_when_the_term_began(election: Election, locks: Locks, engine: Engine) -> None:
    with election.campaign() as term:
        began = election.leader()
        assert began is not None
        row = lock_row(engine, locks, "leader").acquired_at
        assert row is not None
        assert began.since.replace(tzinfo=None) == row.replace(tzinfo=None)
        term.renew()
        term.proclaim(1)
        after = election.leader()
        assert after is not None
        assert after.since == began.since


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values(election: Election, rival: Election, value: Any) -> None:
    with election.campaign() as term:
        for told_last in (value, "another", value):
            term.proclaim(told_last)
            leader = rival.leader()
            assert leader is not None
            assert leader.value == told_last
            assert type(leader.value) is type(told_last)


def test_a_new_leader_has_no_value(election: Election, rival: Election) -> None:
    with election.campaign() as term:
        term.proclaim("the first one's")
    with rival.campaign():
        assert told(election.leader()) == (2, None)


def test_a_value_ends_with_its_term(
    election: Election, locks: Locks, others: Locks, engine: Engine
) -> None:
    """Also where somebody took the name who proclaims nothing, as a lease."""
    term = election.campaign()
    term.proclaim("mine")
    expire(engine, locks, "leader")
    assert election.leader() is None
    with others.lease("leader", ttl=LONG):
        assert told(election.leader()) == (2, None)


def test_a_reader_is_no_leader(election: Election, locks: Locks) -> None:
    with election.campaign():
        pass
    with locks.shared("leader", ttl=LONG):
        assert election.leader() is None


def test_who_resigns_inside_the_block(election: Election, rival: Election) -> None:
    """Its end has nothing to do, also where another leads since."""
    with election.campaign() as term:
        term.resign()
        with rival.campaign(wait=0):
            assert told(election.leader()) == (2, None)
        with pytest.raises(NotHeld):
            term.check()


def test_the_block_ends_well_where_another_thread_resigns(
    election: Election, threads: Threads
) -> None:
    """As one does that is to stop a leader. One of the two ends the term, as it happens."""
    for _ in range(5):
        with election.campaign() as term:
            resigning = threads.start(term.resign)
            while term.held:
                pass
        with suppress(NotHeld):
            resigning.result(SECONDS)
    assert election.leader() is None


def test_who_resigns_beside_a_proclamation_has_not_lost(
    locks: Locks, rival: Election, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks finds the row free by our own release: nobody has forced anything."""
    told: list[LockLost] = []
    term = locks.election("leader", ttl=LONG, on_lost=told.append).campaign(wait=0)
    lost = term.lost
    begun, go_on = held_up_once(monkeypatch)
    proclaiming = threads.attempt(term.proclaim, "mine")
    assert begun.wait(SECONDS)
    term.resign()
    go_on.set()
    with pytest.raises(NotHeld, match="is not held"):
        proclaiming.result(SECONDS)
    rival.campaign(wait=0).resign()
    assert not told
    assert not lost.is_set()


def test_a_loss_that_is_found_by_resigning(election: Election, others: Locks) -> None:
    """The end of the block tells it too, and says nothing of it if it is on its way."""

    def lead(*caught: type[LockLost]) -> None:
        with election.campaign() as term:
            others.release("leader", force=True)
            with suppress(*caught):
                term.resign()

    for caught in ((LockLost,), ()):
        with pytest.raises(LockLost) as told:
            lead(*caught)
        assert told.value.reason == "forced"
        assert not hasattr(told.value, "__notes__")


def test_a_term_has_one_block(election: Election) -> None:
    with election.campaign() as term:
        with pytest.raises(ValueError, match="has one block"), term:
            pass
        assert term.held


def test_a_value_that_cannot_be_proclaimed(election: Election, engine: Engine) -> None:
    """It is told before any I/O."""
    with election.campaign() as term:
        term.proclaim("good")
        for bad in (object(), {"a": b"b"}, {1j}):
            with pytest.raises(TypeError, match="a value is something that JSON can express"):
                term.proclaim(bad)
        for worse in (float("nan"), "x" * 8191, "ü" * 2000):
            with pytest.raises(ValueError, match="a value is"):
                term.proclaim(worse)
        assert told(election.leader()) == (1, "good")


def test_bad_input(locks: Locks) -> None:
    with pytest.raises(ValueError, match="a lock name cannot be empty"):
        locks.election("")
    with pytest.raises(ValueError, match="a TTL"):
        locks.election("leader", ttl=0.01)
    with pytest.raises(TypeError, match="on_lost is a function"):
        locks.election("leader", on_lost="me")  # type: ignore[arg-type]
    election = locks.election("leader")
    with pytest.raises(ValueError, match="a wait cannot be negative"):
        election.campaign(wait=-1)
    with pytest.raises(TypeError, match=r"election\.run takes a function, not int: 5$"):
        election.run(5)  # type: ignore[arg-type]
    for interval in (0, 0.001, 3601, float("inf")):
        with pytest.raises(ValueError, match=r"an interval is 0\.01 to 3600 seconds"):
            election.observe(interval)
    assert locks.list() == []


def test_a_term_is_held_once(election: Election) -> None:
    term = election.campaign()
    assert not isinstance(term, Lease)
    assert not hasattr(term, "acquire")
    assert not hasattr(term, "detach")  # its value belongs to this process
    with pytest.raises(TypeError, match="after"):
        term.release(after=5)  # type: ignore[call-arg] # as untyped code may
    term.resign()
    calls: list[Callable[[], Any]]
    calls = [term.resign, term.check, lambda: term.proclaim(1), lambda: term.__enter__()]
    for over in calls:
        with pytest.raises(NotHeld):
            over()


def test_a_thread_that_leads_does_not_wait_for_itself(election: Election) -> None:
    with election.campaign():
        with pytest.raises(DeadlockDetected):
            election.campaign()
        with pytest.raises(NotAcquired):
            election.campaign(wait=0)


def test_it_resigns_for_who_waits(
    election: Election, rival: Election, locks: Locks, threads: Threads
) -> None:
    term = election.campaign()
    waiting = threads.start(rival.campaign, SECONDS)
    eventually(lambda: bool(locks.show("leader").waiters))
    term.resign()
    with waiting.result(SECONDS) as next_term:
        assert next_term.fence == 2
        eventually(lambda: told(election.leader()) == (2, None))


def test_an_error_in_the_block_resigns(election: Election, rival: Election) -> None:
    with pytest.raises(ZeroDivisionError), election.campaign():
        raise ZeroDivisionError
    rival.campaign(wait=0).resign()


def test_a_deposed_leader_proclaims_nothing(
    election: Election, rival: Election, locks: Locks, engine: Engine
) -> None:
    """Not even where it still believes in its term."""
    old = election.campaign()
    old.proclaim("old")
    expire(engine, locks, "leader")
    with rival.campaign(wait=0) as new:
        new.proclaim("new")
        assert old.held
        with pytest.raises(LockLost) as caught:
            old.proclaim("still me")
        assert caught.value.reason == "forced"  # by its own clock the term is not over
        assert old.lost.is_set()
        assert told(election.leader()) == (2, "new")


def test_a_value_is_refused_before_the_next_holder_has_one(
    election: Election, others: Locks, locks: Locks, engine: Engine
) -> None:
    """Its token decides: the name's value still has the fence of the deposed leader."""
    old = election.campaign()
    expire(engine, locks, "leader")
    with others.lease("leader", wait=0):  # which publishes nothing, unlike a new leader
        assert old.held
        with pytest.raises(LockLost):
            old.proclaim("still me")


def test_nothing_is_proclaimed_by_who_has_expired(
    election: Election, locks: Locks, engine: Engine
) -> None:
    term = election.campaign()
    expire(engine, locks, "leader")
    with pytest.raises(LockLost):
        term.proclaim("still me")
    with engine.connect() as connection:
        values = connection.execute(text("SELECT value FROM dblock_value")).scalars().all()
    assert values == ["null"]


def test_belief_ends_at_the_holders_own_deadline(locks: Locks, engine: Engine) -> None:
    """Whatever the database says, which goes on to tell that it leads."""
    term = locks.election("leader", ttl=SHORT, max_hold=SHORT).campaign()
    with engine.begin() as connection:
        later = update_expiry(locks, "2100-01-01 00:00:00")
        connection.execute(later)
    assert term.lost.wait(SECONDS)
    assert not term.held
    leader = locks.election("leader").leader()
    assert leader is not None
    assert leader.fence == 1
    for call in (term.check, lambda: term.proclaim(1), term.resign):
        with pytest.raises(LockLost):
            call()


def update_expiry(locks: Locks, moment: str) -> Any:
    return (
        update(TABLE)
        .where(named(locks, "leader"))
        .values(expires_at=datetime.fromisoformat(moment))
    )


def test_the_guard_keeps_a_deposed_leader_from_committing(
    election: Election, rival: Election, locks: Locks, engine: Engine, facts: Facts
) -> None:
    old = election.campaign()
    with new_session(engine) as session:
        with old.guard(session) as fence:
            assert fence == 1
            facts.write(session, 1)
        session.commit()
    expire(engine, locks, "leader")
    with rival.campaign(wait=0), new_session(engine) as session:
        with pytest.raises(LockLost), old.guard(session):
            facts.write(session, 2)
        session.rollback()
    assert facts.n == 1


# --- what others have come across ------------------------------------------------------------


def test_an_election_whose_write_was_rolled_back(
    election: Election, rival: Election, engine: Engine, locks: Locks
) -> None:
    """oban #1488: a leader's write was rolled back, and it led for 19 days more.

    No transaction of the user's has the election in it. And who finds out that its row is not as
    it was leads no more.
    """
    with new_session(engine) as session:
        session.execute(text("SELECT 1"))
        term = election.campaign()
        session.rollback()
    assert told(rival.leader()) == (1, None)
    with pytest.raises(NotAcquired):
        rival.campaign(wait=0)
    with engine.begin() as connection:  # as it was before
        free = update_expiry(locks, "2000-01-01 00:00:00").values(token=None, fence=0)
        connection.execute(free)
    with pytest.raises(LockLost):
        term.renew()
    assert not term.held
    assert election.leader() is None
    with pytest.raises(LockLost), new_session(engine) as session, term.guard(session):
        pass


def test_an_election_excludes(new_locks: NewLocks, threads: Threads) -> None:
    """open-ace #2862: several led at once, for nothing was really locked."""
    leading: list[int] = []
    fences: list[int] = []

    def lead() -> None:
        for _ in range(3):
            with new_locks().election("leader", ttl=LONG).campaign(SECONDS) as term:
                leading.append(term.fence)
                assert leading == [term.fence]
                fences.append(term.fence)
                term.check()
                leading.remove(term.fence)

    for _ in range(4):
        threads.start(lead)
    threads.join()
    assert fences == sorted(fences)
    assert len(set(fences)) == 12


def test_it_is_told_of_its_end_while_the_database_hangs(
    locks: Locks, engine: Engine, threads: Threads
) -> None:
    """kubernetes #23731: OnStoppedLeading was not called when the renewal hung."""
    told_losses: Queue[LockLost] = Queue()
    election = locks.election("leader", ttl=1.0, on_lost=told_losses.put)
    term = election.campaign()
    with blocked(engine, locks, "leader"):
        loss = told_losses.get(timeout=SECONDS)
        assert term.lost.is_set()
        assert loss.reason == "expired"
        with pytest.raises(LockLost):
            term.check()


def test_a_value_of_a_later_hold_stays(election: Election, locks: Locks, engine: Engine) -> None:
    """A statement may come late, when another leads already and has proclaimed something."""
    term = election.campaign()
    with engine.begin() as connection:
        connection.execute(text("UPDATE dblock_value SET fence = 7, value = '7'"))
    with pytest.raises(LockLost):
        term.proclaim("late")
    with engine.connect() as connection:
        found = connection.execute(text("SELECT fence, value FROM dblock_value")).one()
    assert tuple(found) == (7, "7")


# --- observing -------------------------------------------------------------------------------


def test_an_observer_sees_each_change(election: Election, rival: Election, others: Locks) -> None:
    watching = Watching(others.election("leader"))
    assert watching.next() is None
    with election.campaign() as term:
        watching.until((1, None))
        term.proclaim("a")
        assert watching.next() == (1, "a")
        term.proclaim("b")
        assert watching.next() == (1, "b")
    assert watching.next() is None
    with rival.campaign() as term:
        watching.until((2, None))
        term.proclaim("over")
        assert watching.next() == (2, "over")
    watching.join()


def test_an_observer_never_misses_the_last_change(election: Election, others: Locks) -> None:
    watching = Watching(others.election("leader"))
    with election.campaign() as term:
        for number in range(50):
            term.proclaim(number)
        watching.until((1, 49))
        term.proclaim("over")
        watching.join()


def test_an_observer_tells_a_number_from_a_truth(election: Election, others: Locks) -> None:
    watching = Watching(others.election("leader"))
    with election.campaign() as term:
        for value in (1, True, 1.0, "over"):
            term.proclaim(value)
            watching.until((1, value))
        watching.join()


def test_an_observer_sees_an_expiry(locks: Locks, others: Locks) -> None:
    """Nobody calls it then, and it would not look for long."""
    interval = 15.0
    others.list()  # so that it is connected
    term = locks.election("leader", ttl=1.0, max_hold=2.0).campaign()
    observation = others.election("leader").observe(interval)
    assert told(next(observation)) == (1, None)
    start = monotonic()
    assert next(observation) is None
    assert monotonic() - start < interval / 2
    assert not term.held


def test_observers_of_other_names_see_nothing(locks: Locks, others: Locks) -> None:
    watching = Watching(others.election("leader"))
    assert watching.next() is None
    with locks.election("Leader", ttl=LONG).campaign() as term:
        term.proclaim("not this one")
        with locks.election("leader", ttl=LONG).campaign() as other:
            watching.until((1, None))
            other.proclaim("over")
            assert watching.next() == (1, "over")
    watching.join()


def test_an_observer_goes_on_after_an_outage(election: Election, others: Locks) -> None:
    """Its connections are closed, as by a server that was started anew."""
    watching = Watching(others.election("leader"))
    with election.campaign() as term:
        watching.until((1, None))
        disconnect(others)
        term.proclaim("over")
        watching.until((1, "over"))
    watching.join()


@pytest.mark.parametrize("times", [{"observe": 3600.0}])
def test_observers_are_called(election: Election, others: Locks, locks: Locks) -> None:
    """On PostgreSQL: of a new leader, a value and a resignation, long before they would look."""
    interval = 3600.0 if locks._database.dialect.traits.can_notify else LOOKS
    watching = Watching(others.election("leader"), interval)
    assert watching.next() is None
    listening(others)
    for term_value in ("a", "b"):
        with election.campaign() as term:
            watching.until((term.fence, None))
            term.proclaim(term_value)
            watching.until((term.fence, term_value))
        watching.until(None)
    with election.campaign() as term:
        term.proclaim("over")
        watching.join()


def test_who_observes_no_more_is_not_called(
    election: Election, others: Locks, db: Database
) -> None:
    """Nobody would read that, and a server that writes to nobody waits in the end."""
    watching = Watching(others.election("leader"))
    assert watching.next() is None
    listening(others)
    with election.campaign() as term:
        term.proclaim("over")
        watching.join()
    del watching

    def gone() -> bool:
        gc.collect()
        return not is_observed(db)

    eventually(gone)


def is_observed(db: Database) -> bool:
    """Whether a session listens to what leaders proclaim."""
    listens = "SELECT query FROM pg_stat_activity WHERE query = 'LISTEN dblock_observed'"
    return db.kind == "postgresql" and bool(execute(db.url, listens))


def listening(locks: Locks) -> None:
    """Wait until who observes is called; before that it looks after each interval."""
    sync = locks.target.sync if isinstance(locks, Surface) else locks
    notifier = sync._database.contenders.local_queue.notifier
    if locks._database.dialect.traits.can_notify:
        eventually(lambda: any(call.waits for call in tuple(notifier._calls.values())))


# --- campaigning for ever --------------------------------------------------------------------


def run(election: Election, work: Callable[[Leadership], Any]) -> Any:
    """Let an election run, whatever its world has for a function."""
    if not isinstance(election, Surface):
        return election.run(work)
    world = election._world

    async def working(term: Any) -> Any:
        return await asyncio.to_thread(work, world.surface(term))

    return election.run(working)


def test_run_ends_with_its_work(election: Election) -> None:
    assert run(election, lambda term: (term.held, term.fence)) == (True, 1)
    assert election.leader() is None


def test_run_ends_with_work_that_resigns(election: Election) -> None:
    def resigning(term: Leadership) -> str:
        term.resign()
        return "done"

    assert run(election, resigning) == "done"
    assert election.leader() is None


def test_run_campaigns_again_when_resigning_finds_a_loss(election: Election, others: Locks) -> None:
    fences = []

    def working(term: Leadership) -> str:
        fences.append(term.fence)
        if len(fences) == 1:
            others.release("leader", force=True)
            with pytest.raises(LockLost):
                term.resign()
        return "done"

    assert run(election, working) == "done"
    assert fences == [1, 2]


def test_run_raises_what_its_work_does(election: Election) -> None:
    def failing(term: Leadership) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(election, failing)
    assert election.leader() is None


@pytest.mark.parametrize("how", ["raises", "returns"])
def test_run_campaigns_again_when_the_term_was_lost(
    election: Election, locks: Locks, engine: Engine, how: str
) -> None:
    fences = []

    def working(term: Leadership) -> str:
        fences.append(term.fence)
        if len(fences) == 1:
            expire(engine, locks, "leader")
            with pytest.raises(LockLost) as caught:
                term.renew()
            if how == "raises":
                raise caught.value
        return "done"

    assert run(election, working) == "done"
    assert fences == [1, 2]


def test_run_raises_the_loss_of_another_lock(election: Election) -> None:
    def working(term: Leadership) -> None:
        raise LockLost("another", name="another", reason="expired")

    with pytest.raises(LockLost, match="another"):
        run(election, working)


def test_run_outlives_an_outage(
    locks: Locks, threads: Threads, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    election = locks.election("leader", ttl=LONG)
    begin, tries = dblock.Leadership.begin, []

    def away(term: Leadership, wait: float | None) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise Unavailable("it is away")
        return begin(term, wait)

    monkeypatch.setattr(dblock.Leadership, "begin", away)
    monkeypatch.setattr(dblock.handles.election, "PAUSE", 0.01)
    with caplog.at_level(logging.WARNING, "dblock"):
        assert run(election, lambda term: term.fence) == 1
    assert len(tries) == 2
    assert "campaigning for 'leader' again" in caplog.text
