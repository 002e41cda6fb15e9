"""MariaDB and MySQL call nobody: who waits there waits in the server, for a user lock
(promise 10)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from dblock import DeadlockDetected, Lease, Locks, RetryPolicy, Timeouts
from dblock.dialects.query import Query
from dblock.io.connecting import OwnConnection
from dblock.io.user_locks import USER_LOCKS
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.timing import Timing
from tests.conftest import NewDatabase
from tests.patience import NEVER
from tests.support import LONG, SECONDS, Threads, eventually
from tests.waiting.conftest import AGES, NAME, lease, take_turn
from tests.waiting.user_lock import Asked, WatchedUserLock
from tests.worlds.portal import WORLDS

# How many seconds dblock's own sessions wait for a row: the least that the server takes.
LEAST = {"mariadb": 0, "mysql": 1}

both = pytest.mark.parametrize("world", WORLDS, indirect=True)


# --- in the server -----------------------------------------------------------------------------


@both
@pytest.mark.usefixtures("in_one_piece")
def test_one_asks_and_the_server_wakes_the_others_in_their_order(
    user_lock: WatchedUserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = lease(user_lock.locks())
    assert holder.acquire()
    everybody = [user_lock.locks() for _ in range(4)]
    leases = [lease(locks) for locks in everybody]
    waiting = []
    for number, waiter in enumerate(leases):
        waiting.append(threads.start(waiter.acquire))
        user_lock.wait_until_had()
        user_lock.wait_until_waited_for(number)
    asking, *behind = [Asked(locks, monkeypatch) for locks in everybody]
    eventually(lambda: len(asking.all) >= 3)
    for number, mine in enumerate(leases):
        (holder if number == 0 else leases[number - 1]).release()
        assert waiting[number].result(SECONDS)
        assert len(user_lock.had_by()) == 1
        assert len(user_lock.waited_for_by()) == len(leases) - 1 - number
        assert mine.held
        # Those behind have asked for nothing more.
        assert [asked.all for asked in behind[number:]] == [[]] * (len(behind) - number)
    leases[-1].release()
    assert user_lock.had_by() == []
    assert [len(asked.all) for asked in behind] == [2] * 3  # that took it and gave it back


def test_another_database_has_user_locks_of_its_own(
    user_lock: WatchedUserLock, new_database: NewDatabase
) -> None:
    """Names of user locks are the whole server's."""
    other = new_database(user_lock.db.kind, migrated=True)
    with ExitStack() as stack:
        there = WatchedUserLock(other, stack, user_lock.times, user_lock.world).hot()
        here = user_lock.hot()
        with lease(here), lease(there):
            assert here._database.contenders.user_locks.kept == 1
            assert there._database.contenders.user_locks.kept == 1


def test_many_threads_cost_one_waiter(
    user_lock: WatchedUserLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_lock.times.update(visible_after=NEVER)  # who is seen waiting need not be who asks
    many, locks, turns = 50, user_lock.locks(), list[int]()
    holder = lease(user_lock.locks())
    with ThreadPoolExecutor(many) as pool:
        with holder:
            before = len(user_lock.sessions)
            done = [pool.submit(take_turn, locks, turns, number) for number in range(many)]
            eventually(lambda: locks._database.contenders.local_queue.lengths() == [many])
            user_lock.wait_until_had()
            asked = Asked(locks, monkeypatch)
            eventually(lambda: len(asked.all) >= 5)
            assert len(asked.threads) == 1
            assert len(user_lock.sessions) - before <= 3
        for one in done:
            one.result(SECONDS)
    assert sorted(turns) == list(range(many))


def test_a_cycle_is_found_by_those_who_wait_in_the_server(
    user_lock: WatchedUserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_lock.times.update(visible_after=0.05, look=0.1)
    names = ("one", "other")
    told: list[str] = []
    hold = threading.Barrier(2, timeout=SECONDS)

    def take(first: str, second: str, locks: Locks) -> None:
        with locks.lease(first, ttl=LONG):
            hold.wait()
            try:
                with locks.lease(second, ttl=LONG, wait=SECONDS):
                    pass
            except DeadlockDetected:
                told.append(second)

    with user_lock.taken(*names):
        everybody = [user_lock.locks(), user_lock.locks()]
        asked = [Asked(locks, monkeypatch) for locks in everybody]
        threads.start(take, names[0], names[1], everybody[0])
        threads.start(take, names[1], names[0], everybody[1])
        threads.join()
    assert len(told) in (1, 2)
    assert all(one.waits for one in asked)


# --- who comes first ---------------------------------------------------------------------------


@pytest.mark.usefixtures("kept_for_ever")
@pytest.mark.parametrize("how", ["given back", "run out"])
def test_who_only_comes_now_is_held_up_for_a_moment(user_lock: WatchedUserLock, how: str) -> None:
    """By whoever has the user lock of a name that became free just now, and of no other."""
    newcomer, free = (
        lease(user_lock.locks()),
        user_lock.give_back if how == "given back" else user_lock.expire,
    )
    with user_lock.taken():
        free(0)
        assert not newcomer.acquire(blocking=False)
        free(NEVER)
        assert newcomer.acquire(blocking=False)
    newcomer.release()
    assert newcomer.acquire(blocking=False)


@pytest.mark.usefixtures("kept_for_ever")
def test_who_gives_it_back_comes_last(user_lock: WatchedUserLock, threads: Threads) -> None:
    held = lease(user_lock.hot())
    assert held.acquire()
    with user_lock.session() as other:
        enter = f"SELECT GET_LOCK({user_lock.called()}, {SECONDS})"
        entered = threads.start(lambda: other.exec_driver_sql(enter).scalar())
        user_lock.wait_until_waited_for()
        held.release()
        assert entered.result(SECONDS) == 1
        assert not held.acquire(blocking=False)


def test_a_stale_user_lock_keeps_the_name_from_nobody(
    user_lock: WatchedUserLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it longer than a free name is kept for who has it."""
    user_lock.times.update(visible_after=NEVER)
    locks = user_lock.locks()
    asked, mine = Asked(locks, monkeypatch), lease(locks)
    with user_lock.taken():
        for _ in range(2):  # the second time it was given back just now
            with mine:
                pass
    assert max(asked.patience, default=0.0) <= locks._database.dialect.timing.grace


# --- where the user lock is no use -------------------------------------------------------------


@both
@pytest.mark.usefixtures("in_one_piece")
def test_the_deadline_is_kept_in_the_server(user_lock: WatchedUserLock) -> None:
    """By the yardstick of one who is not at it."""
    took: list[float] = []
    with lease(user_lock.locks()), user_lock.taken() as other:
        for fair in (True, False):
            locks = user_lock.locks()
            start = time.monotonic()
            assert not lease(locks, fair=fair).acquire(timeout=0.3)
            took.append(time.monotonic() - start)
        assert user_lock.waited_for_by() == []
        assert user_lock.had_by() == [other.exec_driver_sql("SELECT CONNECTION_ID()").scalar()]
    plain, in_server = took
    assert in_server < Timing().server_wait / 2
    assert in_server < 10 * plain


def test_no_session_with_the_user_lock_waits_for_rows(
    user_lock: WatchedUserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, turns = user_lock.hot(), list[int]()
    asked = Asked(locks, monkeypatch)
    with user_lock.row_locked():
        threads.start(take_turn, locks, turns, 1)
        eventually(lambda: asked.waits == 1)
        locks._database.contenders.user_locks.limit = 0  # once is enough
        eventually(lambda: asked.grants > 1)
        assert turns == []
    threads.join()
    assert turns == [1]
    idle = [*locks._database.connections._idle, *locks._database.holders._idle]
    assert len(idle) == 2
    for connection in idle:
        waits = locks._database.dialect.adapter.ask(
            connection.driver, Query("SELECT @@innodb_lock_wait_timeout", {})
        )
        assert waits == (LEAST[user_lock.db.kind],)


def test_the_deadline_is_kept_where_the_row_is_locked(user_lock: WatchedUserLock) -> None:
    took: list[float] = []
    with user_lock.row_locked():
        for locks in (user_lock.locks(), user_lock.hot()):
            mine = lease(locks, fair=not took)
            start = time.monotonic()
            assert not mine.acquire(timeout=0.1)
            took.append(time.monotonic() - start)
    plain, in_server = took
    assert in_server < 5 * plain


def test_no_connection_is_left_for_it(
    user_lock: WatchedUserLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = user_lock.hot()

    def take() -> None:
        raise StatementError(Fault.UNREACHABLE, "too many clients already")

    monkeypatch.setattr(locks._database.holders, "take", take)
    with lease(locks):
        assert user_lock.had_by() == []


def test_so_many_at_a_time(user_lock: WatchedUserLock, threads: Threads) -> None:
    """However many names are wanted; who is not let in looks."""
    names = [f"{number}" for number in range(3 * USER_LOCKS)]
    locks, holder = user_lock.locks(), user_lock.locks()
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(holder.lease(name, ttl=LONG))
        with user_lock.taken(*names):
            wanted = [locks.lease(name, ttl=LONG, wait=SECONDS) for name in names]
            for one in wanted:
                threads.start(one.acquire)
            user_lock.wait_until_waited_for(USER_LOCKS)
            eventually(lambda: len(locks._database.contenders.local_queue.lengths()) == len(names))
            assert len(user_lock.waited_for_by()) <= USER_LOCKS
    threads.join()
    assert all(one.held for one in wanted)


def test_so_many_when_all_come_at_once(
    user_lock: WatchedUserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them has its connection yet."""
    names = [f"{number}" for number in range(2 * USER_LOCKS + 1)]
    locks, let_in, go_on = user_lock.hot(*names), list[int](), threading.Event()
    take = locks._database.holders.take

    def taking() -> OwnConnection:
        let_in.append(1)
        assert go_on.wait(SECONDS)
        return take()

    monkeypatch.setattr(locks._database.holders, "take", taking)
    wanted = [locks.lease(name, ttl=AGES) for name in names]
    done = [threads.start(one.acquire) for one in wanted]
    eventually(lambda: len(let_in) == len(names) or any(one.done() for one in done))
    go_on.set()
    threads.join()
    assert len(let_in) == 2 * USER_LOCKS  # since the names are hot
    assert locks._database.contenders.user_locks.kept == 2 * USER_LOCKS


def test_a_short_term_is_not_spent_in_the_server(
    user_lock: WatchedUserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    ttl, locks = 1.0, user_lock.locks()
    asked, turns = Asked(locks, monkeypatch), list[int]()

    def take() -> None:
        with locks.lease(NAME, ttl=ttl, wait=SECONDS):
            turns.append(1)

    with user_lock.taken(), lease(user_lock.locks()):
        waiting = threads.start(take)
        eventually(lambda: asked.waits >= 3)
    waiting.exception(SECONDS)


def test_the_server_does_not_cut_the_wait_short(
    user_lock: WatchedUserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends statements that last too long, and knows nothing of what they wait for."""
    user_lock.times.update(visible_after=NEVER)
    limits = Timeouts(query=0.8)
    locks = user_lock.stack.enter_context(user_lock.timed(Locks(user_lock.db.url, timeouts=limits)))
    asked, turns = Asked(locks, monkeypatch), list[int]()
    with user_lock.taken(), lease(user_lock.locks()):
        threads.start(take_turn, locks, turns, 1)
        eventually(lambda: asked.waits >= 2)
    threads.join()
    assert turns == [1]
    assert max(asked.patience) <= limits.query / 2


def test_none_for_who_keeps_the_order_counts_its_tries_or_does_not_wait(
    user_lock: WatchedUserLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease(user_lock.locks()):
        locks = user_lock.hot()
        asked = Asked(locks, monkeypatch)
        counted = RetryPolicy.textbook()
        counted = RetryPolicy(wait=lambda state: 0.01, stop=counted.stop)
        refused: list[Lease] = [
            lease(locks, fair=True),
            locks.lease(NAME, retry=counted),
        ]
        assert not refused[0].acquire(timeout=0.2)
        assert not refused[1].acquire(timeout=SECONDS)
        assert not lease(locks).acquire(blocking=False)
        assert len(asked.all) > 3
        assert asked.waits == 0
