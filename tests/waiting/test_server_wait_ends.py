"""However a hold or a wait in the server ends on MariaDB or MySQL, nobody keeps the user lock, and
the next comes through (promise 10)."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from functools import partial

import pytest

from dblock import Lease, Locks
from dblock.aio import AsyncLocks
from tests.aio.support import async_url, settled
from tests.aio.test_cancellation import HOW
from tests.patience import NEVER
from tests.processes.test_fork_gc import in_child
from tests.processes.test_interrupts import Interrupt, each
from tests.processes.workers import Process, Say, Wait, queue_up
from tests.support import SECONDS, Threads, eventually
from tests.waiting.cancelling import cancel_at_each_point
from tests.waiting.conftest import AGES, NAME, lease
from tests.waiting.user_lock import Asked, WatchedUserLock, has, make_hot, make_hot_here
from tests.waiting.watching import PATIENT
from tests.worlds.behind import timed


def test_one_statement_lets_the_name_go_and_its_user_lock(
    user_lock: WatchedUserLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = user_lock.hot()
    held = has(user_lock, lease(locks))
    asked, sessions = Asked(locks, monkeypatch), user_lock.sessions
    held.release()
    assert user_lock.had_by() == []
    assert user_lock.ask("SELECT token FROM dblock_lock") == [None]
    assert len(asked.all) == 1
    assert user_lock.sessions == sessions


# --- a process that is killed ------------------------------------------------------------------


def hold_the_user_lock(say: Say, wait: Wait, url: str, name: str) -> None:
    """Wait in the server for as long as it takes, in one piece."""
    with Locks(url, timeouts=PATIENT) as locks:
        timed(locks, visible_after=NEVER, server_wait=SECONDS / 2)
        make_hot(locks, name)
        try:
            with lease(locks) as held:
                say(held.fence)
                wait()
        except KeyboardInterrupt:
            say("interrupted")
            wait()


@pytest.mark.usefixtures("in_one_piece")
def test_one_that_waited_in_the_server_is_killed(
    user_lock: WatchedUserLock, threads: Threads
) -> None:
    holder, follower = lease(user_lock.hot()), lease(user_lock.hot())
    assert holder.acquire()
    with Process(hold_the_user_lock, user_lock.db.url, NAME):
        user_lock.wait_until_waited_for()
        waiting = threads.start(follower.acquire)
        user_lock.wait_until_waited_for(2)
    holder.release()  # the server takes about a second to find out, and lets the dead one through
    assert waiting.result(SECONDS)
    assert follower.fence == 2


@pytest.mark.usefixtures("in_one_piece")
def test_the_one_that_was_through_is_killed(user_lock: WatchedUserLock, threads: Threads) -> None:
    holder, follower = lease(user_lock.locks()), lease(user_lock.hot())
    assert holder.acquire()
    with Process(queue_up, user_lock.db.url, NAME):
        user_lock.wait_until_had()
        waiting = threads.start(follower.acquire)
        user_lock.wait_until_waited_for()
    user_lock.wait_until_waited_for(0)
    assert len(user_lock.had_by()) == 1
    holder.release()
    assert waiting.result(SECONDS)
    assert follower.fence == 2


@pytest.mark.usefixtures("in_one_piece")
def test_a_holder_that_is_killed(user_lock: WatchedUserLock, threads: Threads) -> None:
    """Its user lock ends with it, its lease does not."""
    follower = lease(user_lock.hot())
    with Process(hold_the_user_lock, user_lock.db.url, NAME) as holder:
        fence = holder.message()
        assert len(user_lock.had_by()) == 1
        waiting = threads.start(follower.acquire)
        user_lock.wait_until_waited_for()
    user_lock.wait_until_waited_for(0)
    assert len(user_lock.had_by()) == 1
    assert not waiting.done()
    user_lock.expire(0)
    assert waiting.result(SECONDS)
    assert follower.fence == fence + 1


# --- a wait that is interrupted ----------------------------------------------------------------


def the_next_comes_through(user_lock: WatchedUserLock) -> None:
    """Nobody but the one who has taken it wants the user lock, nor has the name."""
    assert user_lock.waited_for_by() == []
    assert user_lock.tickets == []
    assert user_lock.ask("SELECT fence FROM dblock_lock") == [0]
    user_lock.expire(0)
    with lease(user_lock.locks()) as held:
        assert held.fence == 1


def test_ctrl_c_while_waiting_in_the_server(user_lock: WatchedUserLock) -> None:
    with user_lock.taken(), Process(hold_the_user_lock, user_lock.db.url, NAME) as process:
        user_lock.wait_until_waited_for()
        process.send(signal.SIGINT)
        assert process.message() == "interrupted"
        the_next_comes_through(user_lock)
    assert user_lock.had_by() == []


@pytest.mark.usefixtures("in_one_piece")
def test_a_task_that_is_cancelled_while_waiting_in_the_server(user_lock: WatchedUserLock) -> None:
    async def main() -> None:
        made = AsyncLocks(async_url(user_lock.db.url), timeouts=PATIENT)
        async with user_lock.timed(made) as locks:
            await locks.run(make_hot_here, locks._database, NAME)
            task = asyncio.create_task(locks.lease(NAME).acquire())
            await asyncio.to_thread(user_lock.wait_until_waited_for)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await settled(locks)
            await asyncio.to_thread(the_next_comes_through, user_lock)

    with user_lock.taken():
        asyncio.run(main())
    assert user_lock.had_by() == []


@pytest.mark.usefixtures("in_one_piece")
def test_who_waits_behind_one_that_is_interrupted(
    user_lock: WatchedUserLock, threads: Threads
) -> None:
    holder, follower = lease(user_lock.locks()), lease(user_lock.hot())
    assert holder.acquire()
    with user_lock.taken(), Process(hold_the_user_lock, user_lock.db.url, NAME) as process:
        user_lock.wait_until_waited_for()
        waiting = threads.start(follower.acquire)
        user_lock.wait_until_waited_for(2)
        process.send(signal.SIGINT)
        assert process.message() == "interrupted"
        assert len(user_lock.waited_for_by()) == 1
        holder.release()
    assert waiting.result(SECONDS)
    assert follower.fence == 2


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_ctrl_c_at_each_statement(
    user_lock: WatchedUserLock, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    locks, other, interrupt = user_lock.locks(), lease(user_lock.locks()), Interrupt(monkeypatch)
    mine = lease(locks)
    if taken:
        assert other.acquire()

    def undo() -> None:
        if not taken:
            mine.release()

    def hurried() -> Callable[[], object]:
        make_hot(locks, NAME)
        return partial(mine.acquire, timeout=0.1 if taken else SECONDS)

    seen = 0
    for _ in each(interrupt, locks, hurried, undo):
        seen += 1
        assert not mine.held
        user_lock.wait_until_let_go()
        assert user_lock.waited_for_by() == []
        if not taken:
            with other:
                pass
    assert seen >= 2


def test_a_forked_child_has_none_of_its_parents(user_lock: WatchedUserLock) -> None:
    locks = user_lock.hot()
    # A renewal lets the user lock go, so none is due before a child of a large process has ended.
    held: Lease | None = has(user_lock, locks.lease(NAME, ttl=AGES))
    before, mine = user_lock.had_by(), held

    def child() -> bool:
        nonlocal held, mine
        held = mine = None
        gc.collect()
        make_hot(locks, "child")
        with locks.lease("child", ttl=AGES):
            return locks._database.contenders.user_locks.kept == 1

    assert in_child(child)
    assert user_lock.had_by() == before
    assert user_lock.had_by("child") == []
    assert mine is not None
    mine.release()
    assert user_lock.had_by() == []


def test_ctrl_c_while_it_is_given_back(
    user_lock: WatchedUserLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, interrupt = user_lock.locks(), Interrupt(monkeypatch)
    mine = lease(locks)

    def held() -> Callable[[], object]:
        make_hot(locks, NAME)
        assert mine.acquire()
        return mine.release

    for after in each(interrupt, locks, held):
        user_lock.wait_until_let_go()
        if not after:
            mine.release()  # for which it is still there
        assert user_lock.ask("SELECT token FROM dblock_lock") == [None]


@pytest.mark.parametrize("how", HOW)
def test_a_task_that_is_cancelled_at_each_point(user_lock: WatchedUserLock, how: str) -> None:
    other = lease(user_lock.locks())

    def check() -> None:
        user_lock.wait_until_let_go()
        assert user_lock.waited_for_by() == []
        with other:
            pass

    cancel_at_each_point(user_lock.db.url, how, check)


def test_who_gives_up_lets_it_go(user_lock: WatchedUserLock) -> None:
    """Also where it is through, and looks."""
    with lease(user_lock.locks()):
        assert not lease(user_lock.hot()).acquire(timeout=0.2)
        user_lock.wait_until_let_go()
        eventually(lambda: user_lock.waited_for_by() == [])
