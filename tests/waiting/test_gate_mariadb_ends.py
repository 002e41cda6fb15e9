"""However a hold or a wait at the gate ends on MariaDB, nobody keeps the gate, and the next comes
through (promise 10)."""

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
from tests.aio.support import async_url, cancelled_at, settled
from tests.aio.test_cancellation import HOW
from tests.processes.test_fork_gc import in_child
from tests.processes.test_interrupts import Interrupt, each
from tests.processes.workers import Process, Say, Wait, queue_up
from tests.support import LONG, SECONDS, Threads, eventually
from tests.waiting.conftest import NAME, NEVER, lease
from tests.waiting.gates_mariadb import Asked, UserLock, has, hurry, hurry_here
from tests.waiting.watching import PATIENT
from tests.worlds.behind import timed


@pytest.fixture
def gate(user_lock: UserLock) -> UserLock:
    return user_lock


def test_one_statement_lets_the_name_go_and_its_gate(
    gate: UserLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = gate.quick()
    held = has(gate, lease(locks))
    asked, sessions = Asked(locks, monkeypatch), gate.sessions
    held.release()
    assert gate.had_by() == []
    assert gate.ask("SELECT token FROM dblock_lock") == [None]
    assert len(asked.all) == 1
    assert gate.sessions == sessions


# --- a process that is killed ------------------------------------------------------------------


def hold_the_gate(say: Say, wait: Wait, url: str, name: str) -> None:
    """Wait at the gate for as long as it takes, in one piece."""
    with Locks(url, timeouts=PATIENT) as locks:
        timed(locks, visible_after=NEVER, server_wait=SECONDS / 2)
        hurry(locks, name)
        try:
            with lease(locks) as held:
                say(held.fence)
                wait()
        except KeyboardInterrupt:
            say("interrupted")
            wait()


@pytest.mark.usefixtures("in_one_piece")
def test_one_that_waited_at_the_gate_is_killed(gate: UserLock, threads: Threads) -> None:
    holder, follower = lease(gate.quick()), lease(gate.quick())
    assert holder.acquire()
    with Process(hold_the_gate, gate.db.url, NAME):
        gate.wait_until_waited_for()
        waiting = threads.start(follower.acquire)
        gate.wait_until_waited_for(2)
    holder.release()  # the server takes about a second to find out, and lets the dead one through
    assert waiting.result(SECONDS)
    assert follower.fence == 2


@pytest.mark.usefixtures("in_one_piece")
def test_the_one_that_was_through_is_killed(gate: UserLock, threads: Threads) -> None:
    holder, follower = lease(gate.locks()), lease(gate.quick())
    assert holder.acquire()
    with Process(queue_up, gate.db.url, NAME):
        gate.wait_until_had()
        waiting = threads.start(follower.acquire)
        gate.wait_until_waited_for()
    gate.wait_until_waited_for(0)
    assert len(gate.had_by()) == 1
    holder.release()
    assert waiting.result(SECONDS)
    assert follower.fence == 2


@pytest.mark.usefixtures("in_one_piece")
def test_a_holder_that_is_killed(gate: UserLock, threads: Threads) -> None:
    """Its gate ends with it, its lease does not."""
    follower = lease(gate.quick())
    with Process(hold_the_gate, gate.db.url, NAME) as holder:
        fence = holder.message()
        assert len(gate.had_by()) == 1
        waiting = threads.start(follower.acquire)
        gate.wait_until_waited_for()
    gate.wait_until_waited_for(0)
    assert len(gate.had_by()) == 1
    assert not waiting.done()
    gate.expire(0)
    assert waiting.result(SECONDS)
    assert follower.fence == fence + 1


# --- a wait that is interrupted ----------------------------------------------------------------


def the_next_comes_through(gate: UserLock) -> None:
    """Nobody but the one who has it shut is at the gate, nor has the name."""
    assert gate.waited_for_by() == []
    assert gate.tickets == []
    assert gate.ask("SELECT fence FROM dblock_lock") == [0]
    gate.expire(0)
    with lease(gate.locks()) as held:
        assert held.fence == 1


def test_ctrl_c_while_waiting_at_the_gate(gate: UserLock) -> None:
    with gate.shut(), Process(hold_the_gate, gate.db.url, NAME) as process:
        gate.wait_until_waited_for()
        process.send(signal.SIGINT)
        assert process.message() == "interrupted"
        the_next_comes_through(gate)
    assert gate.had_by() == []


@pytest.mark.usefixtures("in_one_piece")
def test_a_task_that_is_cancelled_while_waiting_at_the_gate(gate: UserLock) -> None:
    async def main() -> None:
        made = AsyncLocks(async_url(gate.db.url), timeouts=PATIENT)
        async with gate.timed(made) as locks:
            await locks.run(hurry_here, locks.database, NAME)
            task = asyncio.create_task(locks.lease(NAME).acquire())
            await asyncio.to_thread(gate.wait_until_waited_for)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await settled(locks)
            await asyncio.to_thread(the_next_comes_through, gate)

    with gate.shut():
        asyncio.run(main())
    assert gate.had_by() == []


@pytest.mark.usefixtures("in_one_piece")
def test_who_waits_behind_one_that_is_interrupted(gate: UserLock, threads: Threads) -> None:
    holder, follower = lease(gate.locks()), lease(gate.quick())
    assert holder.acquire()
    with gate.shut(), Process(hold_the_gate, gate.db.url, NAME) as process:
        gate.wait_until_waited_for()
        waiting = threads.start(follower.acquire)
        gate.wait_until_waited_for(2)
        process.send(signal.SIGINT)
        assert process.message() == "interrupted"
        assert len(gate.waited_for_by()) == 1
        holder.release()
    assert waiting.result(SECONDS)
    assert follower.fence == 2


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_ctrl_c_at_each_statement(
    gate: UserLock, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    locks, other, interrupt = gate.locks(), lease(gate.locks()), Interrupt(monkeypatch)
    mine = lease(locks)
    if taken:
        assert other.acquire()

    def undo() -> None:
        if not taken:
            mine.release()

    def hurried() -> Callable[[], object]:
        hurry(locks, NAME)
        return partial(mine.acquire, timeout=0.1 if taken else SECONDS)

    seen = 0
    for _ in each(interrupt, locks, hurried, undo):
        seen += 1
        assert not mine.held
        gate.wait_until_let_go()
        assert gate.waited_for_by() == []
        if not taken:
            with other:
                pass
    assert seen >= 2


def test_a_forked_child_has_none_of_its_parents(gate: UserLock) -> None:
    locks = gate.quick()
    held: Lease | None = has(gate, locks.lease(NAME, ttl=LONG))
    before, mine = gate.had_by(), held

    def child() -> bool:
        nonlocal held, mine
        held = mine = None
        gc.collect()
        hurry(locks, "child")
        with locks.lease("child", ttl=LONG):
            return locks.database.contenders.user_locks.kept == 1

    assert in_child(child)
    assert gate.had_by() == before
    assert gate.had_by("child") == []
    assert mine is not None
    mine.release()
    assert gate.had_by() == []


def test_ctrl_c_while_it_is_given_back(gate: UserLock, monkeypatch: pytest.MonkeyPatch) -> None:
    locks, interrupt = gate.locks(), Interrupt(monkeypatch)
    mine = lease(locks)

    def held() -> Callable[[], object]:
        hurry(locks, NAME)
        assert mine.acquire()
        return mine.release

    for after in each(interrupt, locks, held):
        gate.wait_until_let_go()
        if not after:
            mine.release()  # for which it is still there
        assert gate.ask("SELECT token FROM dblock_lock") == [None]


@pytest.mark.parametrize("how", HOW)
def test_a_task_that_is_cancelled_at_each_point(gate: UserLock, how: str) -> None:
    other = lease(gate.locks())

    def check() -> None:
        gate.wait_until_let_go()
        assert gate.waited_for_by() == []
        with other:
            pass

    async def main() -> None:
        async with AsyncLocks(async_url(gate.db.url)) as locks:
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


def test_who_gives_up_lets_it_go(gate: UserLock) -> None:
    """Also where it is through, and looks."""
    with lease(gate.locks()):
        assert not lease(gate.quick()).acquire(timeout=0.2)
        gate.wait_until_let_go()
        eventually(lambda: gate.waited_for_by() == [])
