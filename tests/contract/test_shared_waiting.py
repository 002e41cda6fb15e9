"""Readers and writers that wait: no writer is overtaken, and readers come in together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.engine import Engine

from dblock import Lease, Locks, NotAcquired, SharedLease
from dblock.protocol.sharing import SharedAttempt
from dblock.protocol.tokens import for_reader
from tests.contract.conftest import NewLocks
from tests.servers import FAMILY
from tests.support import (
    LONG,
    MOMENT,
    SECONDS,
    SHORT,
    TABLE,
    Threads,
    eventually,
    named,
    queue_length,
    queues,
)

NAME = "report"


def stand(engine: Engine, locks: Locks, token: str) -> None:
    """Let one stand in the name's queue whose token this is, and who is called by nobody."""
    ticket = "0" * 24 + token + "2000its owner"
    with engine.begin() as connection:
        waiters = [ticket] if locks._database.dialect.traits.can_notify else ticket[:24]
        connection.execute(update(TABLE).where(named(locks, NAME)).values(waiters=waiters))


def lock(locks: Locks, mode: str, **options: Any) -> Any:
    return getattr(locks, mode)(NAME, ttl=LONG, **options)


def test_readers_that_waited_come_in_together(new_locks: NewLocks, threads: Threads) -> None:
    """Several programs, and several of each: all are in at once, though nobody goes."""
    all_in = threading.Barrier(7)
    engine_locks = new_locks()
    writer = engine_locks.lease(NAME, ttl=LONG)
    writer.acquire()

    def read(locks: Locks) -> None:
        with locks.shared(NAME, ttl=LONG, wait=SECONDS):
            all_in.wait(SECONDS)

    programs = [new_locks() for _ in range(3)]
    for locks in programs * 2:
        threads.start(read, locks)
    eventually(lambda: len(engine_locks.show(NAME).waiters) == 3)
    writer.release()
    all_in.wait(SECONDS)
    threads.join()
    assert engine_locks.list() == []


@pytest.mark.parametrize("times", [{"poll": 10 * SECONDS, "poll_max": 10 * SECONDS}])
def test_readers_do_not_wait_to_look_by_themselves(new_locks: NewLocks, threads: Threads) -> None:
    """Where they can be called, the first that is let in calls the others."""
    locks, all_in = new_locks(), threading.Barrier(4)
    writer = locks.lease(NAME, ttl=10 * SECONDS)
    writer.acquire()

    def read(locks: Locks) -> None:
        with locks.shared(NAME, ttl=10 * SECONDS, wait=SECONDS):
            all_in.wait(LONG)

    for _ in range(4):
        threads.start(read, new_locks())
    eventually(lambda: len(locks.show(NAME).waiters) == 4)
    writer.release()
    threads.join()


@pytest.mark.usefixtures("patient_readers", "kept_for_ever")
def test_a_writer_that_waits_keeps_new_readers_out(
    new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    locks, order = new_locks(), []
    reader = locks.shared(NAME, ttl=LONG)
    reader.acquire()

    def come(who: str, lock: Callable[[], object]) -> None:
        with lock():  # type: ignore[attr-defined]
            order.append(who)

    writing = threads.start(come, "writer", lambda: new_locks().lease(NAME, ttl=LONG, wait=SECONDS))
    eventually(lambda: queues(engine, locks))
    assert not new_locks().shared(NAME, ttl=LONG).acquire(blocking=False)
    reading = threads.start(
        come, "reader", lambda: new_locks().shared(NAME, ttl=LONG, wait=SECONDS)
    )
    assert not new_locks().shared(NAME, ttl=LONG).acquire(timeout=MOMENT)
    assert order == []
    assert reader.held
    reader.release()
    writing.result(SECONDS)
    reading.result(SECONDS)
    assert order == ["writer", "reader"]


@pytest.mark.parametrize("shared_before", [True, False])
@pytest.mark.usefixtures("patient_readers", "kept_for_ever")
def test_writers_that_wait_behind_a_writer_are_not_overtaken(
    new_locks: NewLocks, engine: Engine, threads: Threads, shared_before: bool
) -> None:
    """Not by readers that come later, whether or not anybody has shared the name before."""
    locks = new_locks()
    if shared_before:
        with locks.shared(NAME, ttl=LONG):
            pass
    order: list[str] = []

    def come(who: str, lock: Lease | SharedLease, waiting: int) -> None:
        def get_in() -> None:
            with lock:
                order.append(who)

        threads.start(get_in)
        eventually(lambda: len(locks.show(NAME).waiters) == waiting)
        if shared_before:  # else MariaDB's writers wait in the server, and are not in the queue
            eventually(lambda: queue_length(engine, locks) == waiting)

    writer = locks.lease(NAME, ttl=LONG)
    writer.acquire()
    for number in range(3):
        come("writer", new_locks().lease(NAME, ttl=LONG, wait=SECONDS), number + 1)
    for number in range(2):
        come("reader", new_locks().shared(NAME, ttl=LONG, wait=SECONDS), number + 4)
    writer.release()
    threads.join()
    assert order == ["writer"] * 3 + ["reader"] * 2


@pytest.mark.parametrize("times", [{"poll": 10 * SECONDS, "poll_max": 10 * SECONDS}])
def test_a_writer_that_gives_up_lets_readers_in(
    new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    """Where they can be called, it calls them."""
    locks = new_locks()

    def start_writer(seconds: float) -> Future[bool]:
        writing = threads.start(new_locks().lease(NAME, ttl=LONG).acquire, timeout=seconds)
        eventually(lambda: queues(engine, locks) or writing.done())
        return writing

    with locks.shared(NAME, ttl=LONG):
        # On a slow machine a writer may give up before it is in the queue.
        writers = map(start_writer, (1.0, 10.0, 100.0))
        writing = next(one for one in writers if not one.done())
        assert threads.start(new_locks().shared(NAME, ttl=LONG).acquire, timeout=SECONDS).result()
        assert not writing.result(SECONDS)
    assert not queues(engine, locks)


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_readers_that_wait_keep_no_reader_out(locks: Locks, others: Locks, engine: Engine) -> None:
    """The queue tells who is one, on PostgreSQL."""
    with locks.shared(NAME, ttl=LONG):
        for token, let_in in (("f" * 32, False), (for_reader("f" * 32), True)):
            stand(engine, locks, token)
            reader = others.shared(NAME, ttl=LONG)
            assert reader.acquire(blocking=False) is let_in
            if let_in:
                reader.release()


def test_a_writer_that_was_killed_while_it_waited_does_not_keep_readers_out(
    locks: Locks, others: Locks, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ticket is in the queue for as long as readers have the name, if nobody is told there."""
    monkeypatch.setattr(SharedAttempt, "patient", SHORT)
    with locks.shared(NAME, ttl=LONG):
        stand(engine, locks, "f" * 32)
        with others.shared(NAME, ttl=LONG, wait=SECONDS):
            assert locks.show(NAME).readers == 2


@pytest.mark.parametrize("db", [*FAMILY, "sqlite"], indirect=True)
def test_a_writer_that_was_killed_keeps_out_no_reader_that_does_not_wait(
    locks: Locks, others: Locks, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short readers wait, if others have had the name for a while."""
    monkeypatch.setattr(SharedAttempt, "patient", SHORT)
    with locks.shared(NAME, ttl=LONG):
        stand(engine, locks, "f" * 32)
        reader = others.shared(NAME, ttl=LONG)
        eventually(lambda: reader.acquire(blocking=False))
        reader.release()


@pytest.mark.parametrize("db", [*FAMILY, "sqlite"], indirect=True)
def test_a_writer_that_lives_is_seen_as_soon_as_it_stands_in_the_queue(
    new_locks: NewLocks, engine: Engine, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else readers that ask who is there would go past it."""
    locks, others = new_locks(), new_locks()
    monkeypatch.setattr(SharedAttempt, "patient", 0.0)
    reader = locks.shared(NAME, ttl=LONG)
    assert reader.acquire()
    for locked in (new_locks(), new_locks()):
        threads.start(locked.lease(NAME, ttl=LONG, wait=SECONDS).acquire)
        eventually(lambda: queues(engine, locks))
        assert not others.shared(NAME, ttl=LONG).acquire(blocking=False)
        reader.release()
        threads.join()
        locks.release(NAME, force=True)
        assert reader.acquire()
    reader.release()


def test_a_wait_that_ends_leaves_nothing(locks: Locks, others: Locks, engine: Engine) -> None:
    with locks.lease(NAME, ttl=LONG):
        before = time.monotonic()
        with (
            pytest.raises(NotAcquired, match=f"within {SHORT:g} s"),
            others.shared(NAME, ttl=LONG, wait=SHORT),
        ):
            raise AssertionError("not reached")
        assert time.monotonic() - before >= SHORT
        assert not queues(engine, locks)
        assert locks.show(NAME).waiters == ()


def test_readers_and_writers_in_turn(new_locks: NewLocks, threads: Threads) -> None:
    """A crowd of both: never a writer beside anybody, and all get in."""
    lock, inside, done = threading.Lock(), {"r": 0, "w": 0}, {"r": 0, "w": 0}
    wrong: list[dict[str, int]] = []

    def work(kind: str, locks: Locks) -> None:
        handle = (locks.shared if kind == "r" else locks.lease)(NAME, ttl=LONG, wait=SECONDS)
        for _ in range(4):
            with handle:
                with lock:
                    inside[kind] += 1
                    if inside["w"] and sum(inside.values()) > 1:
                        wrong.append(dict(inside))
                time.sleep(0.002)
                with lock:
                    inside[kind] -= 1
                    done[kind] += 1

    programs = [new_locks() for _ in range(2)]
    for number in range(6):
        threads.start(work, "rrw"[number % 3], programs[number % 2])
    threads.join()
    assert wrong == []
    assert done == {"r": 16, "w": 8}
    assert programs[0].list() == []


def test_a_reader_and_then_a_writer_wait_for_a_writer(
    new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    """Each has the name alone, and in this order where the database calls its waiters."""
    locks, order, go_on = new_locks(), [], threading.Event()
    first = locks.lease(NAME, ttl=LONG)
    first.acquire()

    def read() -> None:
        with new_locks().shared(NAME, ttl=LONG, wait=SECONDS):
            order.append("reader")
            go_on.wait(SECONDS)

    def write() -> None:
        with new_locks().lease(NAME, ttl=LONG, wait=SECONDS):
            order.append("writer")

    reading = threads.start(read)
    eventually(lambda: queues(engine, locks, NAME))
    writing = threads.start(write)
    eventually(lambda: len(locks.show(NAME).waiters) == 2)
    first.release()
    eventually(lambda: bool(order))
    if order == ["reader"]:  # where nobody is called, and none is fair, the writer may come first
        assert not writing.done()
    go_on.set()
    for one in (reading, writing):
        one.result(SECONDS)
    assert sorted(order) == ["reader", "writer"]


@pytest.mark.parametrize("failing", ["shared", "lease"])
def test_bodies_that_fail_let_all_the_others_in(
    new_locks: NewLocks, threads: Threads, failing: str
) -> None:
    """An error in the body of a holder releases the name, and every waiter gets it."""
    got, other = [], "lease" if failing == "shared" else "shared"

    def fail() -> None:
        with pytest.raises(ZeroDivisionError), lock(new_locks(), failing, wait=SECONDS):
            raise ZeroDivisionError

    def work(mode: str) -> None:
        with lock(new_locks(), mode, wait=SECONDS):
            got.append(mode)

    for _ in range(2):
        threads.start(fail)
        threads.start(work, failing)
        threads.start(work, other)
    threads.join()
    assert sorted(got) == ["lease", "lease", "shared", "shared"]


def test_a_reentrant_reader_reads_again_while_a_writer_waits(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    """A second hold of its own needs no turn: the writer waits for both releases."""
    reader = locks.shared(NAME, ttl=LONG, reentrant=True)
    with reader:
        writing = threads.start(others.lease(NAME, ttl=LONG).acquire, timeout=SECONDS)
        eventually(lambda: queues(engine, locks, NAME))
        with reader:
            assert not writing.done()
    assert writing.result(SECONDS)
