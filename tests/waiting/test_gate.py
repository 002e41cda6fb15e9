"""A name that changes hands quickly is waited for at its gate; its row decides who gets it."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack

import pytest
from sqlalchemy import create_engine

import dblock.gate
from dblock import Lease, RetryPolicy
from dblock.dialects import Dialect
from dblock.protocol import acquiring
from dblock.protocol.faults import Fault, Trouble
from dblock.protocol.steps import Protocol, Query, Reply, Run
from tests.processes.workers import Process, queue_up
from tests.support import LONG, SECONDS, Threads, eventually
from tests.waiting.conftest import AGES, NAME, Queue, lease, take_turn
from tests.waiting.gates import Gate, Statements, calls, hurry
from tests.worlds.portal import WORLDS

TICKET = "0" * 24

both = pytest.mark.parametrize("world", WORLDS, indirect=True)


@pytest.fixture
def always_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a name was waited for, and however long ago, it is quick."""
    monkeypatch.setattr(dblock.gate, "QUICK", 3600.0)
    monkeypatch.setattr(dblock.gate, "LASTS", 3600.0)


def change_hands(gate: Gate, threads: Threads, holder: Lease, waiter: Lease) -> None:
    """Give the name to one who waits at the gate."""
    waiting = threads.start(waiter.acquire)
    gate.wait_until_waited_for()
    assert gate.tickets == []
    holder.release()
    assert waiting.result(SECONDS)


# --- at the gate -------------------------------------------------------------------------------


@both
@pytest.mark.usefixtures("always_quick", "only_calls", "at_the_gate_for_ever")
def test_who_waited_for_a_moment_waits_at_the_gate_then(gate: Gate, threads: Threads) -> None:
    one, other = gate.locks(), gate.locks()
    first, second = lease(one), lease(other)
    assert threads.run(first.acquire)
    # Each stands in the queue once; then one has the gate while it does.
    for holder, waiter in ((first, second), (second, first), (first, second)):
        waiting = threads.start(waiter.acquire)
        gate.wait_for(1)
        holder.release()
        assert waiting.result(SECONDS)
    for holder, waiter in ((second, first), (first, second)):
        change_hands(gate, threads, holder, waiter)
    called, sessions = (calls(one), calls(other)), gate.sessions
    for _ in range(25):
        change_hands(gate, threads, second, first)
        change_hands(gate, threads, first, second)
    assert (calls(one), calls(other)) == called
    assert gate.sessions == sessions
    second.release()
    assert gate.had_by() == []


@pytest.mark.usefixtures("at_the_gate_for_ever")
def test_one_statement_takes_it_and_one_gives_it_back(
    gate: Gate, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the one sees is the name's newest state, not that of when its wait began."""
    holder, locks = lease(gate.quick()), gate.quick()
    assert holder.acquire()
    waiter, statements = lease(locks), Statements(locks, monkeypatch)
    change_hands(gate, threads, holder, waiter)
    assert len(statements.all) == 1
    waiter.release()
    assert len(statements.all) == 2
    assert gate.had_by() == []
    assert gate.ask("SELECT token FROM dblock_lock") == [None]


@pytest.mark.usefixtures("at_the_gate_for_ever")
def test_it_is_not_granted_to_two(gate: Gate, threads: Threads) -> None:
    """Who waits at the gate saw the name free, and another has taken it since then."""
    gate.change("SET expires_at = '2000-01-01'")
    holder = lease(gate.locks())
    with gate.shut():
        waiting = threads.start(lease(gate.quick()).acquire)
        gate.wait_until_waited_for()
        assert holder.acquire(blocking=False)
    eventually(lambda: waiting.done() or len(gate.tickets) == 1)
    assert not waiting.done()
    holder.release()
    assert waiting.result(SECONDS)


def test_a_name_that_nobody_has_had(gate: Gate) -> None:
    locks = gate.quick("new")
    with locks.lease("new"):
        gate.wait_until_had("new")
    assert gate.had_by("new") == []


# --- who comes first ---------------------------------------------------------------------------


@pytest.mark.usefixtures("only_calls", "kept_for_ever", "at_the_gate_for_ever")
def test_the_queue_comes_before_the_gate(gate: Gate, threads: Threads) -> None:
    holder, turns = lease(gate.quick()), list[int]()
    assert holder.acquire()
    with Process(queue_up, gate.db.url, NAME) as first:
        gate.wait_for(1)
        threads.start(take_turn, gate.quick(), turns, 2)
        gate.wait_until_waited_for()
        first.send(signal.SIGSTOP)  # called, and not there
        holder.release()
        eventually(lambda: bool(turns) or len(gate.tickets) == 2)
        assert turns == []
        first.send(signal.SIGCONT)
        assert [first.message() for _ in range(2)] == ["waiting", "held"]
        assert turns == []
        first.go_on()
        threads.join()
    assert turns == [2]
    assert gate.had_by() == []


@pytest.mark.parametrize("how", ["given back", "run out"])
@pytest.mark.usefixtures("kept_for_ever")
def test_who_only_comes_now_is_held_up_for_a_moment(gate: Gate, how: str) -> None:
    """By whoever has the gate of a name that became free just now, and by nobody before that."""
    newcomer = lease(gate.locks())
    token = "NULL" if how == "given back" else "'of who had it'"
    with gate.shut():
        gate.change(f"SET token = {token}, expires_at = clock_timestamp()")
        assert not newcomer.acquire(blocking=False)
        gate.change(f"SET expires_at = clock_timestamp() - interval '{Dialect.grace} s'")
        assert newcomer.acquire(blocking=False)
    newcomer.release()
    assert newcomer.acquire(blocking=False)


@pytest.mark.usefixtures("kept_for_ever")
def test_who_only_comes_now_and_may_queue_has_to(gate: Gate) -> None:
    locks = gate.locks()
    dialect = locks.dialect
    asked = dialect.grant(NAME, "token", "owner", AGES, TICKET)
    with gate.shut():
        gate.change("SET expires_at = clock_timestamp()")
        assert dialect.granted(locks.database.run(ask(asked)), "token") is None
        assert gate.tickets == [TICKET]
        assert dialect.granted(locks.database.run(ask(asked)), "token") is not None


def ask(query: Query) -> Protocol[Reply]:
    return (yield Run(query))


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("done", [False, True], ids=["under way", "done"])
def test_who_joins_at_the_gate_disturbs_no_guard(gate: Gate, isolation: str, done: bool) -> None:
    holder, engine = lease(gate.locks()), create_engine(gate.db.url)
    assert holder.acquire()
    knock = gate.locks().dialect.knock(NAME, "token", "owner", AGES, TICKET, SECONDS)
    with engine.connect() as connection, gate.session() as other:
        connection = connection.execution_options(isolation_level=isolation)
        connection.exec_driver_sql("SELECT FROM dblock_lock")  # its snapshot is older
        other.exec_driver_sql("BEGIN")
        other.exec_driver_sql(knock.sql, knock.params)
        if done:
            other.exec_driver_sql("COMMIT")
            assert gate.tickets == [TICKET]
        with holder.guard(connection):
            connection.exec_driver_sql("SELECT 1")
        connection.commit()
    engine.dispose()


def test_who_is_at_the_gate_takes_nothing_over_under_a_guard(
    gate: Gate, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, locks, engine = lease(gate.locks()), gate.quick(), create_engine(gate.db.url)
    assert holder.acquire()
    statements = Statements(locks, monkeypatch)
    with engine.connect() as connection, holder.guard(connection):
        gate.change("SET expires_at = '2000-01-01'")
        waiting = threads.start(lease(locks).acquire)
        eventually(lambda: waiting.done() or statements.knocks < len(statements.all) - 1)
        assert statements.knocks == 1
        assert not waiting.done()
        assert gate.had_by() == []
        connection.commit()
    assert waiting.result(SECONDS)
    engine.dispose()


# --- where the gate is no use ------------------------------------------------------------------


@both
@pytest.mark.usefixtures("only_calls")
def test_who_is_not_let_in_queues(gate: Gate, threads: Threads) -> None:
    holder, locks, turns = lease(gate.locks()), gate.quick(), list[int]()
    assert holder.acquire()
    with gate.shut():
        threads.start(take_turn, locks, turns, 1)
        gate.wait_for(1)
        holder.release()
        threads.join()
    assert turns == [1]
    assert calls(locks) == 1


@both
@pytest.mark.usefixtures("at_the_gate_for_ever")
def test_the_deadline_is_kept_at_the_gate(gate: Gate) -> None:
    """By the yardstick of one who is not at it."""
    took: list[float] = []
    with lease(gate.locks()), gate.shut() as other:
        for locks in (gate.locks(), gate.quick()):
            start = time.monotonic()
            assert not lease(locks).acquire(timeout=0.3)
            took.append(time.monotonic() - start)
        assert gate.blocked == []
        assert gate.had_by() == [other.exec_driver_sql("SELECT pg_backend_pid()").scalar()]
    plain, quick = took
    assert quick < acquiring.GATE / 2
    assert quick < 10 * plain
    assert gate.ask("SELECT waiters FROM dblock_lock") == [None]


def test_the_gate_is_not_kept_without_the_row(
    gate: Gate, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, turns = gate.quick(), list[int]()
    statements = Statements(locks, monkeypatch)
    with gate.row_locked():
        threads.start(take_turn, locks, turns, 1)
        eventually(lambda: statements.knocks == 1 and len(statements.all) > 2)
        assert gate.had_by() == []
        assert turns == []
    threads.join()
    assert turns == [1]
    assert gate.had_by() == []


def test_no_connection_is_left_for_it(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = gate.quick()

    def take() -> None:
        raise Trouble(Fault.UNREACHABLE, "too many clients already")

    monkeypatch.setattr(locks.database.holders, "take", take)
    with lease(locks):
        assert gate.had_by() == []


def test_so_many_at_a_time(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number}" for number in range(dblock.gate.GATES)]
    locks = gate.quick(*names, NAME)
    with ExitStack() as stack:
        leases = [stack.enter_context(locks.lease(name, ttl=LONG)) for name in names]
        assert [len(gate.had_by(name)) for name in names] == [1] * len(names)
        statements, another = Statements(locks, monkeypatch), lease(locks)
        with another:
            assert statements.knocks == 0
        leases[0].release()
        hurry(locks, NAME)
        with another:
            assert statements.knocks == 1
            assert len(gate.had_by()) == 1
        assert leases[0].acquire()


def test_many_threads_at_many_gates(gate: Gate, threads: Threads) -> None:
    locks, before = gate.quick(), sys.getswitchinterval()

    def take(name: str) -> None:
        for _ in range(50):
            hurry(locks, name)
            with locks.lease(name, ttl=LONG):
                pass

    sys.setswitchinterval(1e-6)  # they interrupt each other anywhere
    try:
        for number in range(6):
            threads.start(take, f"{number}")
        threads.join()
    finally:
        sys.setswitchinterval(before)
    assert locks.database.gates.kept == 0


def test_none_for_who_has_no_use_for_it(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not wait, or counts its tries, or insists on the order of arrival."""
    locks = gate.quick()
    statements = Statements(locks, monkeypatch)
    patient = lease(locks)
    assert patient.acquire(blocking=False)
    patient.release()
    assert statements.knocks == 0
    with patient:  # which the one that did not wait has not spoiled
        assert statements.knocks == 1
    for useless in (
        locks.lease(NAME, wait=SECONDS, retry=RetryPolicy.textbook()),
        lease(locks, fair=True),
    ):
        hurry(locks, NAME)
        with useless:
            assert statements.knocks == 1


@pytest.mark.parametrize("uncalled", ["pgbouncer"], indirect=True)
def test_none_behind_a_pooler(uncalled: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = uncalled.locks()
    for _ in range(2):
        hurry(locks, NAME)
        statements = Statements(locks, monkeypatch)
        with lease(locks):
            assert statements.knocks == 0
