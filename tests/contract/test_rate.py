"""A rate limit: no more places than it allows, in the order of the statements, and none is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

import pytest
from sqlalchemy import MetaData, update
from sqlalchemy.engine import Engine

from dblock import Locks, NotAcquired, RateLimited
from dblock.events import Kind, LockEvent, listen
from dblock.schema import tables
from tests.contract.conftest import NewLocks
from tests.support import SECONDS, Threads

NAME = "api"
HOUR = 3600.0
VALUES = tables(MetaData())["value"]


def pass_time(engine: Engine, locks: Locks, seconds: float) -> None:
    """Let a name's places be as if time had passed by the database's clock."""
    named = VALUES.c.lock_name == locks._database.dialect.key(NAME)
    with engine.begin() as connection:
        later = VALUES.c.fence + round(seconds * 1_000_000)
        connection.execute(update(VALUES).where(named).values(fence=later))


def refusal(locks: Locks, limit: int, per: float = HOUR, **options: object) -> RateLimited:
    """Ask for a place that there is not."""
    with pytest.raises(RateLimited) as caught, locks.rate(NAME, limit, per=per, **options):  # type: ignore[arg-type]
        raise AssertionError("there is a place")
    return caught.value


def test_no_more_at_once_than_the_limit(locks: Locks, others: Locks) -> None:
    rate, other = locks.rate(NAME, 3, per=HOUR), others.rate(NAME, 3, per=HOUR)
    assert [rate.acquire(), other.acquire(), rate.acquire(), other.acquire()] == [True] * 3 + [
        False
    ]
    error = refusal(locks, 3)
    assert isinstance(error, NotAcquired)
    assert error.name == NAME
    assert HOUR / 3 - SECONDS < error.retry_after <= HOUR / 3
    assert "3 per 3600 s are used up" in str(error)


def test_a_name_is_exact(locks: Locks) -> None:
    for name in ("api", "API", "api ", "ápi", "日本" * 100):
        assert locks.rate(name, 1, per=HOUR).acquire()
        assert not locks.rate(name, 1, per=HOUR).acquire()


def test_places_come_back_one_after_the_other(locks: Locks, engine: Engine) -> None:
    rate = locks.rate(NAME, 4, per=HOUR)
    for _ in range(4):
        assert rate.acquire()
    pass_time(engine, locks, HOUR / 4)
    assert [rate.acquire(), rate.acquire()] == [True, False]
    pass_time(engine, locks, HOUR)
    assert [rate.acquire() for _ in range(5)] == [True] * 4 + [False]


def test_unused_time_is_not_saved_up(locks: Locks, engine: Engine) -> None:
    rate = locks.rate(NAME, 2, per=HOUR)
    assert rate.acquire()
    pass_time(engine, locks, 100 * HOUR)
    assert [rate.acquire() for _ in range(3)] == [True, True, False]


def test_a_smaller_burst_spreads_the_places(locks: Locks, engine: Engine) -> None:
    rate = locks.rate(NAME, 4, per=HOUR, burst=1)
    assert [rate.acquire(), rate.acquire()] == [True, False]
    pass_time(engine, locks, HOUR / 4)
    assert [rate.acquire(), rate.acquire()] == [True, False]


def test_a_call_may_take_several_places(locks: Locks) -> None:
    assert locks.rate(NAME, 10, per=HOUR, cost=7).acquire()
    error = refusal(locks, 10, cost=4)
    assert HOUR / 10 - SECONDS < error.retry_after <= HOUR / 10
    assert locks.rate(NAME, 10, per=HOUR, cost=3).acquire()
    assert not locks.rate(NAME, 10, per=HOUR).acquire()


def test_a_refused_call_changes_nothing(locks: Locks, engine: Engine) -> None:
    assert locks.rate(NAME, 1, per=HOUR).acquire()
    with engine.connect() as connection:
        before = connection.execute(VALUES.select()).all()
    for _ in range(3):
        refusal(locks, 1)
        refusal(locks, 1, wait=HOUR / 2)
    with engine.connect() as connection:
        assert connection.execute(VALUES.select()).all() == before


def test_a_caller_takes_its_place_and_sleeps_until_its_time(locks: Locks) -> None:
    rate = locks.rate(NAME, 1, per=0.2)
    now = locks._database.runtime.now
    assert rate.acquire()
    start = now()
    assert rate.acquire(timeout=SECONDS)
    assert rate.acquire(timeout=SECONDS)
    assert now() - start >= 0.2  # two places, of which the first may be nearly due


def test_callers_that_wait_are_served_one_at_a_time(new_locks: NewLocks, threads: Threads) -> None:
    """Each has a place of its own, so none of them polls or meets another."""
    now, times, mutex = new_locks()._database.runtime.now, [], threading.Lock()

    def call(rate: Callable[[], None]) -> None:
        rate()

    def record() -> None:
        with mutex:
            times.append(now())

    for _ in range(5):
        limited = new_locks().rate(NAME, 1, per=0.1, wait=SECONDS)
        threads.start(call, limited(record))
    threads.join()
    assert len(times) == 5
    assert max(times) - min(times) >= 0.25  # five places: four intervals, less the first's delay


def test_no_more_than_the_limit_in_a_race(new_locks: NewLocks, threads: Threads) -> None:
    begin = threading.Barrier(6)

    def work(locks: Locks) -> int:
        rate = locks.rate(NAME, 10, per=HOUR)
        begin.wait(SECONDS)
        return sum(rate.acquire() for _ in range(4))

    working = [threads.start(work, new_locks()) for _ in range(6)]
    assert sum(one.result(SECONDS) for one in working) == 10


def test_programs_with_different_limits_share_the_places(locks: Locks, others: Locks) -> None:
    """Each keeps its own limit, and counts what the others have taken."""
    small, large = locks.rate(NAME, 2, per=HOUR), others.rate(NAME, 8, per=HOUR)
    assert [small.acquire(), small.acquire(), small.acquire()] == [True, True, False]
    assert not large.acquire()  # two places of half an hour each are eight of its own


def test_a_decorated_function_takes_a_place_for_each_call(locks: Locks) -> None:
    @locks.rate(NAME, 2, per=HOUR)
    def work() -> str:
        return "done"

    assert [work(), work()] == ["done"] * 2
    with pytest.raises(RateLimited):
        work()


def test_a_name_of_another_kind(locks: Locks) -> None:
    with locks.semaphore(NAME, 2):
        pass
    with pytest.raises(ValueError, match="'api' is the name of a semaphore or of an election"):
        locks.rate(NAME, 2, per=HOUR).acquire()


def test_a_lease_and_a_rate_limit_of_one_name(locks: Locks, others: Locks) -> None:
    """A rate limit holds nothing, so it excludes nobody."""
    with locks.lease(NAME), others.rate(NAME, 1, per=HOUR):
        pass
    assert locks.list() == []


def test_retired_when_its_places_are_long_back(locks: Locks, engine: Engine) -> None:
    rate = locks.rate(NAME, 1, per=HOUR)
    assert rate.acquire()
    long_ago = update(VALUES).values(written_at=datetime(2000, 1, 1))
    with engine.begin() as connection:
        connection.execute(long_ago)
    locks.prune_names(60)
    assert not rate.acquire()  # its place is not back yet
    pass_time(engine, locks, 2 * HOUR)
    locks.prune_names(60)
    with engine.connect() as connection:
        assert connection.execute(VALUES.select()).all() == []


def test_what_hooks_are_told(locks: Locks) -> None:
    told: list[LockEvent] = []
    end = listen(told.append)
    rate = locks.rate(NAME, 1, per=HOUR)
    rate.acquire()
    rate.acquire()
    end()
    assert [(event.kind, event.strategy, event.name) for event in told] == [
        (Kind.ACQUIRED, "rate", NAME),
        (Kind.REFUSED, "rate", NAME),
    ]
    assert isinstance(told[1].error, RateLimited)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"limit": 0}, ValueError, "a limit is between 1 and"),
        ({"limit": 1.5}, TypeError, "a limit"),
        ({"per": 0}, ValueError, "per=0 is too short: at least 1e-06 s"),
        ({"per": "minute"}, TypeError, "per is a number of seconds"),
        ({"per": float("inf")}, OverflowError, "per=inf is too long: at most 100 years"),
        ({"limit": 10_000_000, "per": 1}, ValueError, "per=1 is too short: at least 10 s"),
        ({"burst": 0}, ValueError, "burst is between 1 and"),
        ({"burst": 10**9, "per": HOUR}, OverflowError, "burst=1000000000 is too large"),
        ({"cost": 2}, ValueError, "cost=2 is more than can be taken at once, which is 1"),
        ({"wait": -1}, ValueError, "a wait cannot be negative"),
        ({"name": ""}, ValueError, "a lock name cannot be empty"),
    ],
)
def test_bad_input(
    locks: Locks, options: dict[str, object], error: type[Exception], said: str
) -> None:
    given: dict[str, object] = {"name": NAME, "limit": 1, "per": 1.0} | options
    with pytest.raises(error, match=said):
        locks.rate(**given)  # type: ignore[arg-type]
