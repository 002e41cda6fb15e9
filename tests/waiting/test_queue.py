"""Who waits for a lease on PostgreSQL stands in a queue and is called (promise 10)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import pytest
from tenacity import (
    RetryCallState,
    wait_chain,
    wait_fixed,
    wait_random,
    wait_random_exponential,
)
from tenacity.wait import WaitBaseT

from dblock import Locks, RetryPolicy
from dblock.dialects.tickets import UNCALLED
from tests.faults.proxy import Proxy
from tests.processes.workers import Process, queue_up
from tests.servers import execute
from tests.support import MOMENT, SECONDS, Threads, eventually
from tests.waiting.conftest import LISTENERS, NAME, Queue, lease, take_turn
from tests.waiting.race import race
from tests.waiting.watching import Watched
from tests.worlds.portal import WORLDS

SESSIONS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.mark.usefixtures("only_calls")
def test_a_release_calls_the_next_in_the_order_of_arrival(queue: Queue, threads: Threads) -> None:
    turns: list[int] = []
    with lease(queue.locks()):
        for number in range(5):
            threads.start(take_turn, queue.locks(), turns, number)
            queue.wait_for(number + 1)
    threads.join()
    assert turns == [0, 1, 2, 3, 4]
    assert queue.tickets == []


@pytest.mark.usefixtures("only_calls", "kept_for_ever")
def test_nobody_overtakes(queue: Queue, threads: Threads) -> None:
    """Not even where the name is free, since it was not passed on."""
    turns: list[int] = []
    first, second = queue.locks(), queue.locks()
    passer_by = lease(second)
    assert lease(first).acquire()
    with Process(queue_up, queue.db.url, NAME) as waiter:
        queue.wait_for(1)
        waiter.send(signal.SIGSTOP)  # called, and not there
        assert second.release(NAME, force=True)
        assert not passer_by.acquire(blocking=False)
        threads.start(take_turn, first, turns, 1)
        queue.wait_for(2)
        assert turns == []
        waiter.send(signal.SIGCONT)
        assert [waiter.message() for _ in range(2)] == ["waiting", "held"]
        assert turns == []
        waiter.go_on()
        threads.join()
    assert turns == [1]


@pytest.mark.usefixtures("only_calls", "kept_for_ever")
def test_nobody_overtakes_who_waits_for_a_slot_by_its_name(queue: Queue) -> None:
    first, second = queue.locks(), queue.locks()
    semaphore = second.semaphore("api", 1)
    with semaphore:
        pass  # this slot it asks for first from now on
    assert first.lease("api#1").acquire()
    with Process(queue_up, queue.db.url, "api#1") as waiter:
        queue.wait_for(1, name="api#1")
        waiter.send(signal.SIGSTOP)  # called, and not there
        assert second.release("api#1", force=True)
        assert not semaphore.acquire(blocking=False)
        waiter.send(signal.SIGCONT)
        assert [waiter.message() for _ in range(2)] == ["waiting", "held"]
        waiter.go_on()


@pytest.mark.usefixtures("only_calls", "kept_for_ever")
def test_a_waiter_that_died_is_passed_over(queue: Queue, threads: Threads) -> None:
    holder, turns = lease(queue.locks()), list[int]()
    assert holder.acquire()
    with Process(queue_up, queue.db.url, NAME), Process(queue_up, queue.db.url, NAME):
        queue.wait_for(2)
        threads.start(take_turn, queue.locks(), turns, 3)
        queue.wait_for(3)
    eventually(lambda: len(execute(queue.db.url, LISTENERS)) == 1)  # those of the killed are gone
    holder.release()
    threads.join()
    assert turns == [3]


def test_one_that_does_not_come_is_passed_over_too(queue: Queue) -> None:
    """Its session is there, so it is called; a moment later the next may take the name."""
    locks = queue.locks()
    second = lease(locks)
    assert lease(queue.locks()).acquire()
    with Process(queue_up, queue.db.url, NAME) as waiter:
        queue.wait_for(1)
        waiter.send(signal.SIGSTOP)
        assert locks.release(NAME, force=True)
        assert second.acquire()
        second.release()
        waiter.send(signal.SIGCONT)
        assert [waiter.message() for _ in range(2)] == ["waiting", "held"]


@pytest.mark.usefixtures("only_calls")
def test_a_holder_that_died_keeps_nobody_waiting_past_its_ttl(queue: Queue) -> None:
    stale = queue.locks().lease(NAME, ttl=1.0, renew=False)
    assert stale.acquire()
    assert lease(queue.locks()).acquire()
    assert stale.lost.is_set()


@pytest.mark.usefixtures("only_calls", "kept_for_ever")
def test_who_gives_up_leaves_no_trace_and_takes_no_call_along(
    queue: Queue, threads: Threads
) -> None:
    holder, turns, enough = lease(queue.locks()), list[int](), threading.Event()
    until_then = RetryPolicy(wait=wait_fixed(0.01), stop=lambda _: enough.is_set())
    impatient = queue.locks().lease(NAME, retry=until_then)
    assert holder.acquire()
    given_up: Future[bool] = threads.start(impatient.acquire)
    queue.wait_for(1)
    threads.start(take_turn, queue.locks(), turns, 1)
    queue.wait_for(2)
    enough.set()
    assert not given_up.result(SECONDS)
    assert len(queue.tickets) == 1
    holder.release()
    threads.join()
    assert turns == [1]


@pytest.mark.usefixtures("only_calls")
def test_a_listener_that_is_lost_is_replaced(queue: Queue, threads: Threads) -> None:
    holder, turns = lease(queue.locks()), list[int]()
    assert holder.acquire()
    threads.start(take_turn, queue.locks(), turns, 1)
    queue.wait_for(1)
    (before,) = queue.tickets
    execute(queue.db.url, f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) AS listeners")
    eventually(lambda: queue.tickets[-1] != before)
    holder.release()
    threads.join()
    assert turns == [1]


@pytest.mark.parametrize("world", WORLDS, indirect=True)
@pytest.mark.usefixtures("only_calls", "kept_for_ever")
def test_who_can_be_called_at_last_keeps_its_place_and_no_other(
    watched: Watched, threads: Threads
) -> None:
    """The first of many to wait connects; till then the others look, and stand in the queue."""
    holder, locks, turns = lease(watched.locks()), watched.locks(), list[int]()
    assert holder.acquire()
    listener = locks._database.contenders.local_queue.notifier.listener
    listener._connecting = True  # another waiter of this process
    threads.start(take_turn, locks, turns, 1)
    watched.wait_for(1)
    (deaf,) = watched.tickets
    assert deaf.startswith(UNCALLED)
    threads.start(take_turn, watched.locks(), turns, 2)
    watched.wait_for(2)
    behind = watched.tickets[1]
    listener._connecting = False
    eventually(lambda: deaf not in watched.tickets)
    called, second = watched.tickets
    assert not called.startswith(UNCALLED)
    assert second == behind
    holder.release()
    threads.join()
    assert turns == [1, 2]
    assert watched.tickets == []


@pytest.mark.usefixtures("only_calls")
def test_closed_under_who_waits(queue: Queue, threads: Threads) -> None:
    holder, closed = lease(queue.locks()), queue.locks()
    assert holder.acquire()

    def wait() -> None:
        with pytest.raises(ValueError, match="closed"):
            lease(closed).acquire()

    threads.start(wait)
    queue.wait_for(1)
    closed.close()
    threads.join()
    holder.release()


@pytest.mark.usefixtures("only_calls")
def test_many_threads_cost_one_waiter(queue: Queue, threads: Threads) -> None:
    holder, turns = lease(queue.locks()), list[int]()
    assert holder.acquire()
    with Proxy(queue.db.url) as proxy, queue.timed(Locks(proxy.url)) as locks:
        for number in range(30):
            threads.start(take_turn, locks, turns, number)
        queue.wait_for(1)
        eventually(lambda: locks._database.contenders.local_queue.lengths() == [30])
        eventually(lambda: sum(b"dblock_waiter" in asked for asked in proxy.requests) == 2)
        before = len(proxy.requests)
        time.sleep(MOMENT)
        assert len(proxy.requests) == before  # nobody asks
        assert proxy.accepted <= 3
        assert len(queue.tickets) == 1
        # Nobody holds vacuum back: there is no snapshot.
        assert execute(queue.db.url, f"SELECT count(backend_xmin) {SESSIONS}") == [(0,)]
        holder.release()
        threads.join()
    assert sorted(turns) == list(range(30))


class Doubled(wait_fixed):
    """A strategy of the user's, which does not say when two of it are equal."""

    def __call__(self, retry_state: RetryCallState) -> float:
        return 2 * super().__call__(retry_state)


@dataclass(frozen=True)
class Every:
    """One that does."""

    seconds: float

    def __call__(self, retry_state: RetryCallState) -> float:
        return self.seconds


@dataclass
class Changing:
    """One that cannot be hashed."""

    seconds: float

    def __call__(self, retry_state: RetryCallState) -> float:
        return self.seconds


def ten_milliseconds(retry_state: RetryCallState) -> float:
    return 0.01


@pytest.mark.parametrize("world", WORLDS, indirect=True)
@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: wait_fixed(0.01),
        lambda: wait_random_exponential(max=0.01),
        lambda: wait_fixed(0.01) + wait_random(0, 0.01),
        lambda: wait_chain(wait_fixed(0.01), wait_fixed(0.02)),
        lambda: ten_milliseconds,
        lambda: Every(0.01),
    ],
    ids=["default", "fixed", "jitter", "sum", "chain", "function", "equal"],
)
def test_equal_policies_stand_in_one_line(
    watched: Watched, threads: Threads, make: Callable[[], WaitBaseT | None]
) -> None:
    """One ticket for all, as if they had one policy; one that waits otherwise has its own line."""
    holder, locks, turns = lease(watched.locks()), watched.locks(), list[int]()
    with holder:
        for number, wait in enumerate((make(), make(), wait_fixed(0.003))):
            threads.start(take_turn, locks, turns, number, retry=RetryPolicy(wait=wait))
        lengths = locks._database.contenders.local_queue.lengths
        eventually(lambda: sorted(lengths()) == [1, 2])
    threads.join()
    assert sorted(turns) == [0, 1, 2]


@pytest.mark.parametrize(
    "make",
    [lambda: lambda state: 0.01, lambda: Doubled(0.01), lambda: Changing(0.01)],
    ids=["lambda", "subclass", "unhashable"],
)
def test_policies_that_nobody_knows_to_be_equal_stand_in_lines_of_their_own(
    queue: Queue, threads: Threads, make: Callable[[], WaitBaseT]
) -> None:
    holder, locks, turns = lease(queue.locks()), queue.locks(), list[int]()
    one = make()
    with holder:
        for number, wait in enumerate((one, one, make())):
            threads.start(take_turn, locks, turns, number, retry=RetryPolicy(wait=wait))
        lengths = locks._database.contenders.local_queue.lengths
        eventually(lambda: sorted(lengths()) == [1, 2])
    threads.join()
    assert sorted(turns) == [0, 1, 2]


@pytest.mark.parametrize("world", WORLDS, indirect=True)
def test_the_deadline_is_kept(watched: Watched) -> None:
    """By who looks now and then, and by who is told; the one is the other's yardstick."""
    took: list[float] = []
    polls = RetryPolicy(wait=wait_fixed(0.01))
    with lease(watched.locks()):
        for retry in (polls, None):
            locks = watched.locks()
            start = time.monotonic()
            assert not lease(locks, retry=retry).acquire(timeout=0.3)
            took.append(time.monotonic() - start)
            assert watched.tickets == []
            assert watched.blocked == []
    polling, told = took
    assert told < 10 * polling


@pytest.mark.usefixtures("only_calls")
def test_no_call_is_lost(queue: Queue) -> None:
    """``python -m tests.waiting.race`` is the same for longer."""
    rounds = 500
    assert 0 < race(queue.db.url, rounds) < rounds  # it was a race
