"""Equals get equal shares, and nobody is left out, also who has no user lock (promise 10)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from dblock import Locks
from dblock.io.user_locks import USER_LOCKS, UserLock
from dblock.protocol.faults import Fault, StatementError
from tests.support import LONG, SECONDS, Threads, eventually
from tests.waiting.conftest import Queue, lease, take_turn
from tests.waiting.user_lock import WatchedUserLock

#: Turns for who shares a name: some ten seconds, after which chance decides no more.
MOST = 4000
#: Often enough for one who is not left out, when all have begun.
SERVED = 5
#: Turns of others within which one who is not left out has its own.
ENOUGH = 500


def contest(contenders: Sequence[Locks], over: Callable[[list[int]], bool]) -> list[int]:
    """Return who had the name, in that order: everybody wants it again when it was given back."""
    turns: list[int] = []
    start = threading.Barrier(len(contenders), timeout=SECONDS)

    def contend(number: int, locks: Locks) -> None:
        with lease(locks):  # with connections made
            pass
        start.wait()
        while not over(turns):
            take_turn(locks, turns, number)

    with ThreadPoolExecutor(len(contenders)) as pool:
        for one in [pool.submit(contend, *numbered) for numbered in enumerate(contenders)]:
            one.result(2 * SECONDS)
    return turns


def shares(contenders: Sequence[Locks]) -> list[int]:
    """How often each had the name."""
    turns = contest(contenders, lambda turns: len(turns) >= MOST)
    had = Counter(turns[MOST // 5 : MOST])  # when all had begun
    return [had[number] for number in range(len(contenders))]


@pytest.mark.parametrize("uncalled", ["pgbouncer"], indirect=True)
def test_behind_a_pooler(uncalled: Queue) -> None:
    """Where no user lock is any use, however quickly the name changes hands."""
    had = shares([uncalled.locks() for _ in range(5)])
    assert max(had) <= 2 * min(had)


def test_in_the_server(user_lock: WatchedUserLock) -> None:
    """In a closed loop everybody has the name again as soon as it was given back."""
    had = shares([user_lock.locks() for _ in range(6)])
    assert max(had) <= 2 * min(had)
    assert user_lock.had_by() == []


def test_who_waits_for_many_user_locks_already(
    user_lock: WatchedUserLock, threads: Threads
) -> None:
    names = [f"{number}" for number in range(USER_LOCKS)]
    busy, holder = user_lock.locks(), user_lock.locks()
    held = [holder.lease(name, ttl=LONG) for name in names]
    assert all(one.acquire() for one in held)
    waiting = [threads.start(busy.lease(name, ttl=LONG, wait=SECONDS).acquire) for name in names]
    eventually(lambda: busy._database.contenders.user_locks.kept == len(names))
    had = shares([busy, *(user_lock.locks() for _ in range(3))])
    for one in held:
        one.release()
    assert all(one.result(SECONDS) for one in waiting)
    assert max(had) <= 2 * min(had)


def test_who_gets_no_user_lock(user_lock: WatchedUserLock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands in the queue, like anybody where there are none."""
    busy = user_lock.locks()

    def admit(user_lock: UserLock) -> None:
        raise StatementError(Fault.UNREACHABLE, "as if there were too many")

    monkeypatch.setattr(busy._database.contenders.user_locks, "admit", admit)
    contenders = [busy, *(user_lock.locks() for _ in range(3))]
    contest(contenders, lambda turns: turns.count(0) >= SERVED)


@pytest.mark.usefixtures("kept_for_ever")
def test_who_has_the_user_lock_while_others_queue(
    user_lock: WatchedUserLock, threads: Threads
) -> None:
    """The queue comes first, so who has the user lock stands in it then."""
    turns: list[str] = []

    def enough() -> bool:
        return turns.count("server") == 2 or len(turns) >= ENOUGH

    def keep_the_order(locks: Locks) -> None:
        while not enough():
            with lease(locks, fair=True):  # until another stands there: the queue is never empty
                eventually(lambda: bool(user_lock.tickets) or enough())
                turns.append("queue")

    def wait_in_the_server(locks: Locks) -> None:
        with lease(locks):
            turns.append("server")

    for _ in range(2):
        threads.start(keep_the_order, user_lock.locks())
    eventually(lambda: bool(turns))
    for _ in range(2):
        threads.start(wait_in_the_server, user_lock.locks())
    threads.join()
    assert turns[:ENOUGH].count("server") == 2
