"""However a wait ends, nobody is called who is not there (promise 10)."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
from sqlalchemy import create_engine, text
from tenacity import wait_fixed

from dblock import Attempt, Lease, Locks, RetryPolicy
from dblock.aio import AsyncLocks
from dblock.io.local_queue import LocalWaiter
from dblock.protocol.commands import LookQueued
from dblock.system import clock
from tests.aio.support import async_url
from tests.aio.test_cancellation import HOW
from tests.conftest import NewDatabase
from tests.patience import NEVER
from tests.processes.test_interrupts import Interrupt, each
from tests.processes.workers import Failed, Process, queue_up
from tests.servers import FAMILY, execute
from tests.support import LONG, SECONDS, Threads, eventually
from tests.waiting.cancelling import cancel_at_each_point
from tests.waiting.conftest import AGES, LISTENERS, NAME, Entry, Queue, lease, take_turn
from tests.waiting.watching import Statements, Watched
from tests.worlds.portal import WORLDS


class Enough(Exception):
    """Raised out of a wait."""


def enough(attempt: Attempt) -> None:
    if attempt.number > 1:
        raise Enough


def test_a_hook_that_raises(queue: Queue) -> None:
    impatient = RetryPolicy(wait=wait_fixed(0.01), stop=lambda state: False, before_sleep=enough)
    with lease(queue.locks()):
        with pytest.raises(Enough):
            queue.locks().lease(NAME, retry=impatient, wait=SECONDS).acquire()
        assert queue.tickets == []


@pytest.mark.usefixtures("only_calls")
def test_ctrl_c(queue: Queue, threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = queue.locks()

    def interrupted(descriptor: int, seconds: float) -> bool:
        queue.wait_for(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(locks._database.runtime, "readable", interrupted)
    with lease(queue.locks()):
        with pytest.raises(KeyboardInterrupt):
            lease(locks).acquire()
        assert queue.tickets == []
        monkeypatch.undo()
        given_up = threads.start(locks.lease(NAME, wait=LONG / 100).acquire)
        assert not given_up.result(SECONDS)  # another one can wait there as ever
        assert queue.tickets == []


@pytest.mark.usefixtures("only_calls")
def test_a_cancelled_task(queue: Queue) -> None:
    async def cancel() -> None:
        async with queue.timed(AsyncLocks(queue.db.url)) as locks:
            task = asyncio.create_task(locks.lease(NAME, wait=SECONDS).acquire())
            await asyncio.to_thread(queue.wait_for, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(queue.wait_for, 0)

    with lease(queue.locks()):
        asyncio.run(cancel())


@pytest.mark.usefixtures("only_calls")
def test_who_has_a_ticket_and_does_not_wait_is_not_left_to_read(
    queue: Queue, threads: Threads
) -> None:
    """A reader that goes hands that on to one who waits, however many have come before it."""
    queue.times.update(visible_after=NEVER)  # they wait in one piece
    locks, turns = queue.locks(), list[int]()
    with lease(queue.locks()):
        first = threads.start(take_turn, locks, turns, 1)
        queue.wait_for(1)
        busy = LocalWaiter(locks._database.contenders.local_queue, "busy")
        assert busy.stand(0.0) == (True, False)
        server = locks._database.contenders.local_queue.notifier.listener.server
        assert busy.ticket(server, look=False)[1]
        other = queue.locks().lease("other", ttl=AGES)
        assert other.acquire()
        waiting = threads.start(locks.lease("other", wait=SECONDS).acquire)
        queue.wait_for(1, name="other")
    first.result(SECONDS)
    other.release()
    assert waiting.result(SECONDS)
    busy.leave()


@pytest.mark.usefixtures("kept_for_ever")
def test_the_dead_cost_nothing_when_a_holder_dies_too(queue: Queue) -> None:
    """It calls nobody, so whoever looks does not count them."""
    locks = queue.locks()
    assert lease(locks).acquire()
    with ExitStack() as dying:
        for number in range(2):
            dying.enter_context(Process(queue_up, queue.db.url, NAME))
            queue.wait_for(number + 1)
        with Process(queue_up, queue.db.url, NAME) as alive:
            queue.wait_for(3)
            dying.close()
            eventually(lambda: len(execute(queue.db.url, LISTENERS)) == 1)
            alive.send(signal.SIGSTOP)  # or it takes the name
            last = Entry(queue.tickets[-1])
            execute(queue.db.url, "UPDATE dblock_lock SET expires_at = now() - interval '1 s'")
            look = LookQueued(NAME, last.token, last.ticket)
            exchange = locks._database.exchange(NAME, timeout=0.0)
            reply = locks._database.run(exchange.ask_or_explain(look))
            queued = reply.answer
            assert queued is not None
            assert (queued.position.ahead, queued.position.free) == (0, True)


def test_released_by_an_earlier_version(queue: Queue) -> None:
    """Which cleared the token and left the expiry where it was."""
    assert queue.locks().lease(NAME, ttl=LONG * 100).acquire()
    execute(queue.db.url, f"UPDATE dblock_lock SET token = NULL WHERE lock_name = '{NAME}'")
    assert queue.locks().lease(NAME).acquire(blocking=False)
    execute(queue.db.url, f"UPDATE dblock_lock SET token = NULL WHERE lock_name = '{NAME}'")
    assert lease(queue.locks()).acquire()


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.usefixtures("only_calls")
def test_who_joins_disturbs_no_guard(
    queue: Queue, threads: Threads, isolation: str, when: str
) -> None:
    """It joins before the guard and after the transaction's snapshot, or after the guard."""
    holder, turns, engine = lease(queue.locks()), list[int](), create_engine(queue.db.url)
    assert holder.acquire()

    def join() -> None:
        threads.start(take_turn, queue.locks(), turns, 1)
        queue.wait_for(1)

    with engine.connect().execution_options(isolation_level=isolation) as connection:
        connection.execute(text("SELECT count(*) FROM dblock_lock"))
        if when == "before":
            join()
        with holder.guard(connection):
            if when == "after":
                join()
            connection.execute(text("SELECT 1"))
        connection.commit()
    holder.release()
    threads.join()
    assert turns == [1]
    engine.dispose()


def give_up_with_the_row_locked(
    watched: Watched, threads: Threads, locks: Locks, until: Callable[[Future[bool]], bool]
) -> None:
    """Let one wait, and give up while another program has the name's row locked for a while."""
    enough = threading.Event()
    until_then = RetryPolicy(wait=wait_fixed(0.01), stop=lambda _: enough.is_set())
    waiting = threads.start(locks.lease(NAME, retry=until_then).acquire)
    watched.wait_for(1)
    with watched.row_locked():
        enough.set()
        eventually(lambda: until(waiting))
    assert not waiting.result(SECONDS)


@pytest.mark.parametrize("world", WORLDS, indirect=True)
@pytest.mark.usefixtures("only_calls", "kept_for_ever")
def test_while_others_are_at_the_row(
    watched: Watched, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, locks = lease(watched.locks()), watched.locks()
    assert holder.acquire()
    statements = Statements(locks._database, monkeypatch)

    def tried_twice(waiting: Future[bool]) -> bool:
        return waiting.done() or statements.kinds.count("leave") > 1

    give_up_with_the_row_locked(watched, threads, locks, tried_twice)
    assert watched.tickets == []


@pytest.mark.parametrize("world", WORLDS, indirect=True)
@pytest.mark.parametrize("released", [False, True], ids=["then released", "released"])
@pytest.mark.usefixtures("only_calls", "kept_for_ever")
def test_who_cannot_leave_is_disowned(watched: Watched, threads: Threads, released: bool) -> None:
    """Its process lives, and nobody waits for it all the same."""
    watched.times.update(leaving=0.1)
    holder, locks, turns = lease(watched.locks()), watched.locks(), list[int]()
    assert holder.acquire()
    give_up_with_the_row_locked(watched, threads, locks, lambda waiting: waiting.done())
    assert len(watched.tickets) == 1
    if released:  # to be called, while it seemed to be there
        watched.change("SET token = NULL, expires_at = clock_timestamp()")
    else:
        eventually(lambda: execute(watched.db.url, LISTENERS) == [])
        holder.release()
    newcomer = lease(watched.locks())
    eventually(lambda: newcomer.acquire(blocking=False))
    threads.start(take_turn, locks, turns, 1)  # it listens anew
    watched.wait_for(1)
    newcomer.release()
    threads.join()
    assert turns == [1]


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_ctrl_c_at_each_statement(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    locks, other, interrupt = watched.locks(), lease(watched.locks()), Interrupt(monkeypatch)
    mine = lease(locks)
    if taken:
        assert other.acquire()
    timeout = 0.1 if taken else SECONDS

    def undo() -> None:
        if not taken:
            mine.release()

    def hurried() -> Callable[[], object]:
        locks._database.contenders.names.note(NAME, True, clock.now() + SECONDS)
        return partial(mine.acquire, timeout=timeout)

    seen = 0
    for _ in each(interrupt, locks, hurried, undo):
        seen += 1
        assert not mine.held
        assert watched.tickets == []
        assert watched.blocked == []
        if not taken:
            with other:
                pass
    assert seen >= 2


@pytest.mark.parametrize("how", HOW)
def test_a_task_that_is_cancelled_at_each_point(watched: Watched, how: str) -> None:
    other = lease(watched.locks())

    def check() -> None:
        assert watched.blocked == []
        assert watched.tickets == []
        assert other.acquire(timeout=0.01)
        other.release()

    cancel_at_each_point(watched.db.url, how, check)


SLOW = {
    "postgresql": (
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_sleep(0.06); RETURN NULL; END'",
        "CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON dblock_lock DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION slow()",
    ),
    **dict.fromkeys(
        FAMILY, ("CREATE TRIGGER slow AFTER UPDATE ON dblock_lock FOR EACH ROW DO SLEEP(0.06)",)
    ),
}


@contextmanager
def held(
    new_database: NewDatabase, kind: str, times: dict[str, float]
) -> Iterator[tuple[Queue, Lease]]:
    """The queue for a name that is held, where commits are slow from then on."""
    with ExitStack() as stack:
        queue = Queue(new_database(kind, migrated=True), stack, times)
        holder = lease(queue.locks())
        assert holder.acquire()
        for statement in SLOW.get("postgresql" if kind == "pgbouncer" else kind, ()):
            execute(queue.db.url, statement)
        yield queue, holder


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.usefixtures("kept_for_ever")
def test_where_commits_are_slow(
    new_database: NewDatabase, threads: Threads, times: dict[str, float], kind: str
) -> None:
    """Whatever becomes of many who wait in vain, the name is free when it is given back."""
    with held(new_database, kind, times) as (queue, holder):

        def wait_in_vain(locks: Locks) -> None:
            for _ in range(3):
                assert not lease(locks, wait=0.1, fair=True).acquire()

        for _ in range(10):
            threads.start(wait_in_vain, queue.locks())
        threads.join()
        holder.release()
        assert lease(queue.locks()).acquire(blocking=False)


async def cancel(url: str, *, fair: bool) -> None:
    """Let tasks wait, and cancel each a while later than the one before."""
    async with AsyncLocks(async_url(url)) as locks:
        waiting = [
            asyncio.create_task(locks.lease(NAME, wait=SECONDS, fair=fair).acquire())
            for _ in range(4)
        ]
        for task in waiting:
            await asyncio.sleep(0.1)
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)


def interrupt(url: str) -> None:
    """Let a process wait until it is seen, and interrupt it."""
    with Process(queue_up, url, NAME) as waiter:
        assert waiter.message() == "waiting"
        owners = f"SELECT count(*) FROM dblock_waiter WHERE owner LIKE '%% pid {waiter.pid}'"
        eventually(lambda: execute(url, owners) == [(1,)])
        waiter.send(signal.SIGINT)
        with pytest.raises(Failed, match="KeyboardInterrupt"):
            waiter.message()


@pytest.mark.parametrize("kind", [*SLOW, "pgbouncer", "sqlite"])
@pytest.mark.parametrize("fair", [False, True], ids=["", "fair"])
@pytest.mark.usefixtures("kept_for_ever")
def test_waits_that_end_in_every_way(
    new_database: NewDatabase,
    threads: Threads,
    times: dict[str, float],
    kind: str,
    fair: bool,
) -> None:
    """Who does not wait gets the free name that nobody waits for, also where commits are slow."""
    with held(new_database, kind, times) as (queue, holder):

        def wait_in_vain(locks: Locks) -> None:
            for wait in (0.05, 0.1, 0.2):
                assert not lease(locks, wait=wait, fair=fair).acquire()

        for _ in range(4):
            threads.start(wait_in_vain, queue.locks())
        threads.start(asyncio.run, cancel(queue.db.url, fair=fair))
        interrupt(queue.db.url)
        threads.join()
        holder.release()
        assert lease(queue.locks()).acquire(blocking=False)
        assert queue.tickets == []
        assert execute(queue.db.url, "SELECT id FROM dblock_waiter") == []
