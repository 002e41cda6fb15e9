"""MariaDB calls nobody: who waits there waits at the name's gate, a user lock (promise 10)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import dblock.io.user_locks
from dblock import DeadlockDetected, Lease, Locks, RetryPolicy, Timeouts
from dblock.dialects import Dialect
from dblock.io.connecting import OwnConnection
from dblock.protocol import waiters as seen_waiters
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.steps import Query
from dblock.protocol.waiting import server_wait
from tests.conftest import NewDatabase
from tests.support import LONG, SECONDS, Threads, eventually
from tests.waiting.conftest import NAME, lease, take_turn
from tests.waiting.gates_mariadb import Asked, UserLock, user_lock, wait_for_ever
from tests.worlds.portal import WORLDS

both = pytest.mark.parametrize("world", WORLDS, indirect=True)


@pytest.fixture
def gate(user_lock: UserLock) -> UserLock:
    return user_lock


@pytest.fixture
def at_the_gate_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_ever(monkeypatch)


# --- at the gate -------------------------------------------------------------------------------


@both
@pytest.mark.usefixtures("at_the_gate_for_ever")
def test_one_asks_and_the_server_wakes_the_others_in_their_order(
    gate: UserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = lease(gate.locks())
    assert holder.acquire()
    everybody = [gate.locks() for _ in range(4)]
    leases = [lease(locks) for locks in everybody]
    waiting = []
    for number, waiter in enumerate(leases):
        waiting.append(threads.start(waiter.acquire))
        gate.wait_until_had()
        gate.wait_until_waited_for(number)
    asking, *behind = [Asked(locks, monkeypatch) for locks in everybody]
    eventually(lambda: len(asking.all) >= 3)
    for number, mine in enumerate(leases):
        (holder if number == 0 else leases[number - 1]).release()
        assert waiting[number].result(SECONDS)
        assert len(gate.had_by()) == 1
        assert len(gate.waited_for_by()) == len(leases) - 1 - number
        assert mine.held
        # Those behind have asked for nothing more.
        assert [asked.all for asked in behind[number:]] == [[]] * (len(behind) - number)
    leases[-1].release()
    assert gate.had_by() == []
    assert [len(asked.all) for asked in behind] == [2] * 3  # that took it and gave it back


def test_nobody_starves(gate: UserLock) -> None:
    """In a closed loop everybody has the name again as soon as it was given back."""
    contenders, most = 6, 300
    turns: list[int] = []
    start = threading.Barrier(contenders, timeout=SECONDS)

    def contend(number: int, locks: Locks) -> None:
        mine = lease(locks)
        with mine:  # with connections made
            pass
        start.wait()
        while len(turns) < most:
            take_turn(locks, turns, number)

    with ThreadPoolExecutor(contenders) as pool:
        done = [pool.submit(contend, number, gate.locks()) for number in range(contenders)]
        for one in done:
            one.result(SECONDS)
    had = Counter(turns[most // 2 : most])  # when all had begun
    assert len(had) == contenders
    assert max(had.values()) <= 2 * min(had.values())
    assert gate.had_by() == []


def test_another_database_has_gates_of_its_own(gate: UserLock, new_database: NewDatabase) -> None:
    """Names of user locks are the whole server's."""
    other = new_database("mariadb", migrated=True)
    with ExitStack() as stack:
        there = UserLock(other, stack, gate.world).quick()
        here = gate.quick()
        with lease(here), lease(there):
            assert here.database.user_locks.kept == 1
            assert there.database.user_locks.kept == 1


def test_many_threads_cost_one_waiter(gate: UserLock, monkeypatch: pytest.MonkeyPatch) -> None:
    many, locks, turns = 50, gate.locks(), list[int]()
    holder = lease(gate.locks())
    with ThreadPoolExecutor(many) as pool:
        with holder:
            before = len(gate.sessions)
            done = [pool.submit(take_turn, locks, turns, number) for number in range(many)]
            eventually(lambda: locks.database.local_queue.lengths() == [many])
            gate.wait_until_had()
            asked = Asked(locks, monkeypatch)
            eventually(lambda: len(asked.all) >= 5)
            assert len(asked.threads) == 1
            assert len(gate.sessions) - before <= 3
        for one in done:
            one.result(SECONDS)
    assert sorted(turns) == list(range(many))


def test_a_cycle_is_found_by_those_at_gates(
    gate: UserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_waiters, "AFTER", 0.05)
    monkeypatch.setattr(seen_waiters, "LOOK", 0.1)
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

    with gate.shut(*names):
        everybody = [gate.locks(), gate.locks()]
        asked = [Asked(locks, monkeypatch) for locks in everybody]
        threads.start(take, names[0], names[1], everybody[0])
        threads.start(take, names[1], names[0], everybody[1])
        threads.join()
    assert len(told) in (1, 2)
    assert all(one.waits for one in asked)


# --- who comes first ---------------------------------------------------------------------------


@pytest.mark.usefixtures("kept_for_ever")
@pytest.mark.parametrize("how", ["given back", "run out"])
def test_who_only_comes_now_is_held_up_for_a_moment(gate: UserLock, how: str) -> None:
    """By whoever has the gate of a name that became free just now, and by nobody before that."""
    newcomer, free = lease(gate.locks()), gate.give_back if how == "given back" else gate.expire
    with gate.shut():
        free(0)
        assert not newcomer.acquire(blocking=False)
        free(Dialect.grace)
        assert newcomer.acquire(blocking=False)
    newcomer.release()
    assert newcomer.acquire(blocking=False)


@pytest.mark.usefixtures("kept_for_ever")
def test_who_gives_it_back_comes_last(gate: UserLock, threads: Threads) -> None:
    held = lease(gate.quick())
    assert held.acquire()
    with gate.session() as other:
        enter = f"SELECT GET_LOCK({user_lock(NAME)}, {SECONDS})"
        entered = threads.start(lambda: other.exec_driver_sql(enter).scalar())
        gate.wait_until_waited_for()
        held.release()
        assert entered.result(SECONDS) == 1
        assert not held.acquire(blocking=False)


def test_a_stale_gate_keeps_the_name_from_nobody(
    gate: UserLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits at it for longer than a free name is kept for who has it."""
    monkeypatch.setattr(seen_waiters, "AFTER", 3600.0)
    locks = gate.locks()
    asked, mine = Asked(locks, monkeypatch), lease(locks)
    with gate.shut():
        for _ in range(2):  # the second time it was given back just now
            with mine:
                pass
    assert max(asked.patience, default=0.0) <= Dialect.grace


# --- where the gate is no use ------------------------------------------------------------------


@both
@pytest.mark.usefixtures("at_the_gate_for_ever")
def test_the_deadline_is_kept_at_the_gate(gate: UserLock) -> None:
    """By the yardstick of one who is not at it."""
    took: list[float] = []
    with lease(gate.locks()), gate.shut() as other:
        for fair in (True, False):
            locks = gate.locks()
            start = time.monotonic()
            assert not lease(locks, fair=fair).acquire(timeout=0.3)
            took.append(time.monotonic() - start)
        assert gate.waited_for_by() == []
        assert gate.had_by() == [other.exec_driver_sql("SELECT CONNECTION_ID()").scalar()]
    plain, gated = took
    assert gated < server_wait.LONGEST / 2
    assert gated < 10 * plain


def test_no_session_with_the_gate_waits_for_rows(
    gate: UserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, turns = gate.quick(), list[int]()
    asked = Asked(locks, monkeypatch)
    with gate.row_locked():
        threads.start(take_turn, locks, turns, 1)
        eventually(lambda: asked.waits == 1)
        monkeypatch.setattr(dblock.io.user_locks, "USER_LOCKS", 0)  # once is enough
        eventually(lambda: asked.grants > 1)
        assert turns == []
    threads.join()
    assert turns == [1]
    idle = [*locks.database.connections._idle, *locks.database.holders._idle]
    assert len(idle) == 2
    for connection in idle:
        waits = locks.dialect.adapter.ask(
            connection.driver, Query("SELECT @@innodb_lock_wait_timeout", {})
        )
        assert waits == (0,)


def test_the_deadline_is_kept_where_the_row_is_locked(gate: UserLock) -> None:
    took: list[float] = []
    with gate.row_locked():
        for locks in (gate.locks(), gate.quick()):
            mine = lease(locks, fair=not took)
            start = time.monotonic()
            assert not mine.acquire(timeout=0.1)
            took.append(time.monotonic() - start)
    plain, gated = took
    assert gated < 5 * plain


def test_no_connection_is_left_for_it(gate: UserLock, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = gate.quick()

    def take() -> None:
        raise StatementError(Fault.UNREACHABLE, "too many clients already")

    monkeypatch.setattr(locks.database.holders, "take", take)
    with lease(locks):
        assert gate.had_by() == []


def test_so_many_at_a_time(gate: UserLock, threads: Threads) -> None:
    """However many names are wanted; who is not let in looks."""
    names = [f"{number}" for number in range(3 * dblock.io.user_locks.USER_LOCKS)]
    locks, holder = gate.locks(), gate.locks()
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(holder.lease(name, ttl=LONG))
        with gate.shut(*names):
            wanted = [locks.lease(name, ttl=LONG, wait=SECONDS) for name in names]
            for one in wanted:
                threads.start(one.acquire)
            gate.wait_until_waited_for(dblock.io.user_locks.USER_LOCKS)
            eventually(lambda: len(locks.database.local_queue.lengths()) == len(names))
            assert len(gate.waited_for_by()) <= dblock.io.user_locks.USER_LOCKS
    threads.join()
    assert all(one.held for one in wanted)


def test_so_many_when_all_come_at_once(
    gate: UserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them has its connection yet."""
    names = [f"{number}" for number in range(2 * dblock.io.user_locks.USER_LOCKS + 1)]
    locks, let_in, go_on = gate.quick(*names), list[int](), threading.Event()
    take = locks.database.holders.take

    def taking() -> OwnConnection:
        let_in.append(1)
        assert go_on.wait(SECONDS)
        return take()

    monkeypatch.setattr(locks.database.holders, "take", taking)
    wanted = [locks.lease(name, ttl=LONG) for name in names]
    done = [threads.start(one.acquire) for one in wanted]
    eventually(lambda: len(let_in) == len(names) or any(one.done() for one in done))
    go_on.set()
    threads.join()
    assert len(let_in) == 2 * dblock.io.user_locks.USER_LOCKS  # since the names are hot
    assert locks.database.user_locks.kept == 2 * dblock.io.user_locks.USER_LOCKS


def test_a_short_term_is_not_spent_at_the_gate(
    gate: UserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    ttl, locks = 1.0, gate.locks()
    asked, turns = Asked(locks, monkeypatch), list[int]()

    def take() -> None:
        with locks.lease(NAME, ttl=ttl, wait=SECONDS):
            turns.append(1)

    with gate.shut(), lease(gate.locks()):
        waiting = threads.start(take)
        eventually(lambda: asked.waits >= 3)
    waiting.exception(SECONDS)


def test_the_server_does_not_cut_the_wait_short(
    gate: UserLock, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends statements that last too long, and knows nothing of what they wait for."""
    monkeypatch.setattr(seen_waiters, "AFTER", 3600.0)
    limits = Timeouts(query=0.8)
    locks = gate.stack.enter_context(Locks(gate.db.url, timeouts=limits))
    asked, turns = Asked(locks, monkeypatch), list[int]()
    with gate.shut(), lease(gate.locks()):
        threads.start(take_turn, locks, turns, 1)
        eventually(lambda: asked.waits >= 2)
    threads.join()
    assert turns == [1]
    assert max(asked.patience) <= limits.query / 2


def test_none_for_who_keeps_the_order_counts_its_tries_or_does_not_wait(
    gate: UserLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease(gate.locks()):
        locks = gate.quick()
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
