"""Hand-offs to a waiter that gives up, whose messages are lost, or after an expiry (promise 10)."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import pytest
from tenacity import wait_fixed

from dblock import Lease, Locks, RetryPolicy
from dblock.aio import AsyncLocks
from dblock.dialects.query import Query
from dblock.holding.database import Database
from dblock.protocol.timing import Timing
from tests.faults.proxy import Lose, Proxy
from tests.support import SECONDS, Threads, eventually
from tests.waiting.conftest import AGES, NAME, Entry, lease
from tests.waiting.test_hand_off import JOINED, both, held, row, stopped
from tests.waiting.watching import Watched, before_each


def until_told(locks: Locks) -> tuple[Lease, threading.Event]:
    """A lease that is waited for until somebody has had enough of it."""
    enough = threading.Event()
    policy = RetryPolicy(wait=wait_fixed(0.01), stop=lambda _: enough.is_set())
    return locks.lease(NAME, ttl=AGES, retry=policy), enough


class Meanwhile:
    """Something that happens once, when a kind of statement is about to be sent by some Locks."""

    def __init__(self, database: Database, patch: pytest.MonkeyPatch, kind: str) -> None:
        self.happened = False
        self._do: Callable[[], object] = lambda: None

        def once(query: Query[Any]) -> None:
            if query.kind == kind and not self.happened:
                self.happened = True
                self._do()

        before_each(database, patch, once)

    def do(self, what: Callable[[], object]) -> None:
        self._do = what


# --- who gives up at that moment ---------------------------------------------------------------


@both
@pytest.mark.usefixtures("only_calls")
def test_who_gives_up_when_it_is_passed_the_name_passes_it_on(
    watched: Watched, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = watched.locks()
    meanwhile = Meanwhile(locks._database, monkeypatch, "leave")
    with watched.timed(Locks(watched.db.url)) as others:
        holder, third = lease(others), lease(others)
        assert holder.acquire()
        meanwhile.do(holder.release)
        impatient, enough = until_told(locks)
        waiting = threads.start(impatient.acquire)
        watched.wait_for(1)
        enough.set()
        assert not waiting.result(SECONDS)
        assert meanwhile.happened
        assert third.acquire(blocking=False)
        third.release()


@both
@pytest.mark.usefixtures("only_calls")
def test_and_to_the_next_in_the_queue(
    watched: Watched, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = watched.locks()
    meanwhile = Meanwhile(locks._database, monkeypatch, "leave")
    with watched.timed(Locks(watched.db.url)) as others, ExitStack() as stack:
        holder = lease(others)
        assert holder.acquire()
        impatient, enough = until_told(locks)
        waiting = threads.start(impatient.acquire)
        watched.wait_for(1)
        meanwhile.do(holder.release)
        second = stack.enter_context(stopped(watched))
        enough.set()
        assert not waiting.result(SECONDS)
        assert meanwhile.happened
        assert second.has(row(watched))
        second.goes_on()


@pytest.mark.usefixtures("only_calls")
def test_who_is_interrupted_when_it_is_passed_the_name_passes_it_on(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, holder, third = watched.locks(), held(watched), lease(watched.locks())

    def interrupted(descriptor: int, seconds: float) -> bool:
        watched.wait_for(1)
        holder.release()
        raise KeyboardInterrupt

    monkeypatch.setattr(locks._database.runtime, "readable", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lease(locks).acquire()
    assert third.acquire(blocking=False)


@pytest.mark.usefixtures("only_calls")
def test_a_task_that_is_cancelled_when_it_is_passed_the_name_passes_it_on(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, third = held(watched), lease(watched.locks())

    async def main() -> None:
        async with watched.timed(AsyncLocks(watched.db.url)) as locks:
            meanwhile = Meanwhile(locks._database, monkeypatch, "leave")
            meanwhile.do(holder.release)
            task = asyncio.create_task(locks.lease(NAME, wait=SECONDS).acquire())
            await asyncio.to_thread(watched.wait_for, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            eventually(lambda: meanwhile.happened)

    asyncio.run(main())
    assert third.acquire(blocking=False)


@both
@pytest.mark.usefixtures("kept_for_ever")
def test_after_any_number_of_waits_in_vain_the_name_is_free(
    watched: Watched, threads: Threads
) -> None:
    """They are passed it at any moment of their giving up."""
    mine = lease(watched.locks())

    def wait_in_vain(locks: Locks, chance: random.Random) -> None:
        for _ in range(25):
            other = lease(locks)
            if other.acquire(timeout=chance.uniform(0.0, 0.03)):
                other.release()

    waiting = [
        threads.start(wait_in_vain, watched.locks(), random.Random(seed)) for seed in range(4)
    ]
    while not all(one.done() for one in waiting):
        with mine:
            time.sleep(0.002)
    threads.join()
    assert watched.tickets == []
    for _ in range(3):
        assert mine.acquire(blocking=False)
        mine.release()


# --- where requests and replies are lost -------------------------------------------------------

JOIN, PASS_ON, LEAVE = b"array_append(", b"FROM newest LEFT JOIN first", b", 32) <> "

lost = pytest.mark.parametrize("what", [Lose.REQUEST, Lose.REPLY, Lose.CONNECTIONS], ids=str)


@lost
def test_it_is_passed_on_once(watched: Watched, what: Lose) -> None:
    with Proxy(watched.db.url) as proxy, watched.timed(watched.world.locks(proxy.url)) as locks:
        mine = lease(locks)
        assert mine.acquire()
        fence = mine.fence
        with stopped(watched) as first, stopped(watched) as second:
            rule = proxy.lose(what, PASS_ON)
            mine.release()
            assert rule.done.wait(SECONDS)
            now = row(watched)
            assert first.has(now)
            assert now.fence == fence + 1
            assert [Entry(entry) for entry in watched.tickets] == [second.entry]


@lost
def test_it_is_passed_on_to_one_who_has_not_heard_that_it_joined(
    watched: Watched, threads: Threads, what: Lose
) -> None:
    """Whether that is believed or looked for, it is this hold."""
    mine, released = held(watched), list[Future[None]]()
    fence = mine.fence
    with Proxy(watched.db.url) as proxy, watched.timed(watched.world.locks(proxy.url)) as locks:
        other = lease(locks)
        rule = proxy.lose(what, JOIN, hook=lambda: released.append(threads.start(mine.release)))
        waiting = threads.start(other.acquire)
        assert waiting.result(SECONDS)
        assert rule.done.wait(SECONDS)
        assert row(watched).fence == fence + 1
        assert watched.tickets == []
        threads.run(other.release)


@lost
def test_who_has_not_heard_that_it_left_is_passed_nothing(watched: Watched, what: Lose) -> None:
    watched.times.update(leaving=SECONDS)  # however slow this machine is
    mine, third = held(watched), lease(watched.locks())
    with Proxy(watched.db.url) as proxy, watched.timed(watched.world.locks(proxy.url)) as locks:
        rule = proxy.lose(what, LEAVE)
        assert not lease(locks).acquire(timeout=JOINED)
        assert rule.done.wait(SECONDS)
        assert watched.tickets == []
        mine.release()
        assert third.acquire(blocking=False)


# --- after an expiry ---------------------------------------------------------------------------


def test_the_living_keep_their_places_when_another_takes_over(
    watched: Watched, threads: Threads
) -> None:
    """One that comes after them, since the first does not come."""
    _, second = held(watched), lease(watched.locks())
    with stopped(watched) as first:
        waiting = threads.start(second.acquire)
        watched.wait_for(2)
        with stopped(watched) as third:
            watched.change("SET expires_at = clock_timestamp()")
            assert waiting.result(SECONDS)
            assert [Entry(entry) for entry in watched.tickets] == [first.entry, third.entry]
            second.release()
            assert first.has(row(watched))
            first.goes_on()


def test_the_dead_do_not(watched: Watched, threads: Threads) -> None:
    _, second = held(watched), lease(watched.locks())
    with ExitStack() as dying:
        dying.enter_context(stopped(watched))
        waiting = threads.start(second.acquire)
        watched.wait_for(2)
        dying.close()
        watched.change("SET expires_at = clock_timestamp()")
        assert waiting.result(SECONDS)
        assert watched.tickets == []


@both
def test_who_takes_over_waits_for_a_guard(watched: Watched, threads: Threads) -> None:
    """Whoever stands in the queue, and whatever is over."""
    mine, second = held(watched), lease(watched.locks())
    engine = watched.world.engine(watched.db.url)
    with engine.connect() as connection:
        with mine.guard(connection):
            watched.change("SET expires_at = '2000-01-01'")
            waiting = threads.start(second.acquire)
            time.sleep(Timing().grace)
            assert not waiting.done()
            assert row(watched).fence == mine.fence
        connection.rollback()
    assert waiting.result(SECONDS)
    engine.dispose()
