"""However a hold or a wait at the gate ends, nobody keeps the gate."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from dblock import Lease, Locks
from dblock.aio import AsyncLocks
from dblock.protocol import acquiring
from tests.aio.support import cancelled_at, settled
from tests.aio.test_cancellation import HOW
from tests.processes.test_fork_gc import in_child
from tests.processes.test_interrupts import Interrupt, each
from tests.processes.workers import Process, Say, Wait
from tests.support import LONG, SECONDS, Threads
from tests.waiting.conftest import AGES, NAME, lease
from tests.waiting.gates import PATIENT, Gate, Statements, has, hurry, hurry_here

# --- the hold ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_the_gate_for_ever")
def test_a_holder_that_is_killed(
    gate: Gate, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gate ends with it, its lease does not."""
    monkeypatch.setattr(acquiring, "LOOK", 0.1)
    follower = lease(gate.quick())
    with Process(hold_with_gate, gate.db.url) as holder:
        fence = holder.message()
        assert len(gate.had_by()) == 1
        waiting = threads.start(follower.acquire)
        gate.wait_until_waited_for()
    gate.wait_for(1)  # the holder was killed
    assert len(gate.had_by()) == 1
    assert not waiting.done()
    gate.change("SET expires_at = clock_timestamp()")
    assert waiting.result(SECONDS)
    assert follower.fence == fence + 1


def hold_with_gate(say: Say, wait: Wait, url: str) -> None:
    with Locks(url) as locks:
        hurry(locks, NAME)
        with locks.lease(NAME, ttl=AGES) as held:
            say(held.fence)
            wait()


def test_a_forked_child_has_none_of_its_parents(gate: Gate) -> None:
    locks = gate.quick()
    held: Lease | None = has(gate, locks.lease(NAME, ttl=LONG))
    before, mine = gate.had_by(), held

    def child() -> bool:
        nonlocal held, mine
        held = mine = None
        gc.collect()
        hurry(locks, "child")
        with locks.lease("child", ttl=LONG):
            return locks.database.gates.kept == 1

    assert in_child(child)
    assert gate.had_by() == before
    assert gate.had_by("child") == []
    assert mine is not None
    mine.release()
    assert gate.had_by() == []


def test_ctrl_c_at_each_statement_of_a_release(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    locks, other, interrupt = gate.locks(), lease(gate.locks()), Interrupt(monkeypatch)
    mine, seen = lease(locks), 0

    def acquired() -> Callable[[], object]:
        hurry(locks, NAME)
        return has(gate, mine).release

    for after in each(interrupt, locks, acquired):
        seen += 1
        gate.wait_until_let_go()
        if not after:
            mine.release()
        assert other.acquire(timeout=SECONDS)
        other.release()
    assert seen == 2


# --- the wait ----------------------------------------------------------------------------------


def test_who_gives_up_in_the_queue(gate: Gate) -> None:
    with lease(gate.locks()):
        assert not lease(gate.quick()).acquire(timeout=0.2)
        gate.wait_until_let_go()
        assert gate.ask("SELECT waiters FROM dblock_lock") == [None]


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_ctrl_c_at_each_statement(gate: Gate, monkeypatch: pytest.MonkeyPatch, taken: bool) -> None:
    locks, other, interrupt = gate.locks(), lease(gate.locks()), Interrupt(monkeypatch)
    mine = lease(locks)
    if taken:
        assert other.acquire()
    timeout = 0.1 if taken else SECONDS

    def undo() -> None:
        if not taken:
            mine.release()

    def hurried() -> Callable[[], object]:
        hurry(locks, NAME)
        return partial(mine.acquire, timeout=timeout)

    seen = 0
    for _ in each(interrupt, locks, hurried, undo):
        seen += 1
        assert not mine.held
        gate.wait_until_let_go()
        assert gate.tickets == []
        assert gate.blocked == []
        if not taken:
            with other:
                pass
    assert seen >= 2


@pytest.mark.usefixtures("at_the_gate_for_ever")
def test_ctrl_c_while_waiting_at_the_gate(gate: Gate) -> None:
    with gate.shut(), Process(knock, gate.db.url) as process:
        gate.wait_until_waited_for()
        process.send(signal.SIGINT)
        assert process.message() == "interrupted"
        assert gate.blocked == []
        assert gate.tickets == []
        gate.change("SET expires_at = '2000-01-01'")
        assert lease(gate.locks()).acquire(blocking=False)
    assert gate.had_by() == []


def knock(say: Say, wait: Wait, url: str) -> None:
    acquiring.GATE = SECONDS
    with Locks(url) as locks:
        hurry(locks, NAME)
        try:
            lease(locks).acquire()
        except KeyboardInterrupt:
            say("interrupted")
            wait()


@pytest.mark.usefixtures("at_the_gate_for_ever")
def test_a_task_that_is_cancelled_while_waiting_at_the_gate(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> None:
        assert gate.blocked == []
        assert gate.tickets == []
        gate.change("SET expires_at = '2000-01-01'")
        assert lease(gate.locks()).acquire(blocking=False)

    async def main() -> None:
        async with AsyncLocks(gate.db.url, timeouts=PATIENT) as locks:
            await locks.run(hurry_here, locks.database, NAME)
            statements = Statements(locks.database, monkeypatch)
            task = asyncio.create_task(locks.lease(NAME).acquire())
            await asyncio.to_thread(gate.wait_until_waited_for)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await settled(locks)
            # In a moment the server would have seen by itself that nobody is there any more.
            assert any("pg_terminate_backend" in sql for sql in statements.all)
            await asyncio.to_thread(check)

    with gate.shut():
        asyncio.run(main())
    assert gate.had_by() == []


@pytest.mark.parametrize("how", HOW)
def test_a_task_that_is_cancelled_at_each_point(gate: Gate, how: str) -> None:
    other = lease(gate.locks())

    def check() -> None:
        gate.wait_until_let_go()
        assert gate.blocked == []
        assert gate.tickets == []
        with other:
            pass

    async def main() -> None:
        async with AsyncLocks(gate.db.url) as locks:
            mine = locks.lease(NAME, ttl=LONG)
            for at in count(1):
                await locks.run(hurry_here, locks.database, NAME)
                cancelled = await cancelled_at(mine.acquire(), at, how)
                await settled(locks)
                assert mine.held is not cancelled
                if not cancelled:
                    await mine.release()
                await asyncio.to_thread(check)
                if not cancelled:
                    assert at > 1
                    return

    asyncio.run(main())
