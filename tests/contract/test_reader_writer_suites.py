"""What the suites of other libraries ask of a reader-writer lock, case by case, asked of this one.

Each test is named after the library and what its case is about. Where dblock does otherwise on
purpose, the test shows what it does, and says why.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, Locks, NotAcquired
from tests.contract.conftest import NewLocks
from tests.support import LONG, SECONDS, SHORT, Threads, eventually, expire, queues

NAME = "path"
MODES = pytest.mark.parametrize("mode", ["shared", "lease"])


def lock(locks: Locks, mode: str, *args: Any, **options: Any) -> Any:
    return getattr(locks, mode)(NAME, LONG, *args, **options)


class Visits:
    """Who is in, and whether a writer was ever beside anybody."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in: list[str] = []
        self.wrong: list[list[str]] = []
        self.came: list[str] = []

    def __call__(self, mode: str) -> None:
        with self._lock:
            self._in.append(mode)
            self.came.append(mode)
            if "lease" in self._in and len(self._in) > 1:
                self.wrong.append(list(self._in))
        with self._lock:
            self._in.remove(mode)


def crowd(new_locks: NewLocks, threads: Threads, modes: list[str], times: int = 2) -> Visits:
    """Let so many come at once, from two programs, and see who meets whom."""
    visits, programs = Visits(), [new_locks() for _ in range(2)]
    begin = threading.Barrier(len(modes))

    def work(mode: str, locks: Locks) -> None:
        begin.wait(SECONDS)
        for _ in range(times):
            with lock(locks, mode, SECONDS):
                visits(mode)

    for number, mode in enumerate(modes):
        threads.start(work, mode, programs[number % 2])
    threads.join()
    assert programs[0].list() == []
    return visits


# --- kazoo: ReadLock and WriteLock ---------------------------------------------------------------


def test_kazoo_read_lock(new_locks: NewLocks) -> None:
    """It is had, not again by the same caller, by another client, and not by a writer."""
    one, two = (new_locks().shared(NAME, LONG) for _ in range(2))
    for reader in (one, two):
        assert reader.acquire(blocking=False)
        assert reader.held
        assert not reader.acquire(blocking=False)
    assert not new_locks().lease(NAME, LONG).acquire(blocking=False)


def test_kazoo_write_lock(locks: Locks, others: Locks) -> None:
    writer = locks.lease(NAME, LONG)
    assert writer.acquire(blocking=False)
    assert writer.held
    assert not writer.acquire(blocking=False)
    assert not others.shared(NAME, LONG).acquire(blocking=False)


def test_kazoo_rw_lock(new_locks: NewLocks, engine: Engine, threads: Threads) -> None:
    """A reader and then a writer wait for a writer: they have it in this order, one by one."""
    locks, order, go_on = new_locks(), [], threading.Event()
    first = locks.lease(NAME, LONG)
    first.acquire()

    def read() -> None:
        with new_locks().shared(NAME, LONG, SECONDS):
            order.append("reader")
            go_on.wait(SECONDS)

    def write() -> None:
        with new_locks().lease(NAME, LONG, SECONDS):
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


# --- fasteners: ReaderWriterLock and InterProcessReaderWriterLock --------------------------------


def test_fasteners_lock(locks: Locks) -> None:
    with locks.lease(NAME, LONG):
        pass
    with locks.shared(NAME, LONG):
        pass


def test_fasteners_no_double_writers(new_locks: NewLocks, threads: Threads) -> None:
    visits = crowd(new_locks, threads, ["lease"] * 4, 4)
    assert (visits.wrong, len(visits.came)) == ([], 16)


def test_fasteners_no_concurrent_readers_writers(new_locks: NewLocks, threads: Threads) -> None:
    visits = crowd(new_locks, threads, ["shared", "lease", "shared"] * 2, 4)
    assert (visits.wrong, len(visits.came)) == ([], 24)


@pytest.mark.parametrize("readers", [0, 4, 5])
def test_fasteners_many_readers_and_writers(
    new_locks: NewLocks, threads: Threads, readers: int
) -> None:
    """Many of both, many readers and one writer, and writers alone."""
    writers = 1 if readers == 5 else 4
    visits = crowd(new_locks, threads, ["shared"] * readers + ["lease"] * writers)
    assert visits.wrong == []
    assert (visits.came.count("shared"), visits.came.count("lease")) == (2 * readers, 2 * writers)


@MODES
def test_fasteners_abort(locks: Locks, others: Locks, mode: str) -> None:
    """An error in the body gives it back."""
    held = lock(locks, mode)
    with pytest.raises(ZeroDivisionError), held:
        raise ZeroDivisionError
    assert not held.held
    assert others.lease(NAME, LONG).acquire(blocking=False)


@pytest.mark.parametrize("chaotic", ["shared", "lease"])
def test_fasteners_chaotic(new_locks: NewLocks, threads: Threads, chaotic: str) -> None:
    """Some fail while they have it, and all the others get it."""
    got, other = [], "lease" if chaotic == "shared" else "shared"

    def fail() -> None:
        with pytest.raises(ZeroDivisionError), lock(new_locks(), chaotic, SECONDS):
            raise ZeroDivisionError

    def work(mode: str) -> None:
        with lock(new_locks(), mode, SECONDS):
            got.append(mode)

    for _ in range(2):
        threads.start(fail)
        threads.start(work, chaotic)
        threads.start(work, other)
    threads.join()
    assert sorted(got) == ["lease", "lease", "shared", "shared"]


def test_fasteners_double_reader_beside_a_writer(
    locks: Locks, others: Locks, engine: Engine, threads: Threads
) -> None:
    """A reader may read again while a writer waits, if it is to be reentrant."""
    reader = locks.shared(NAME, LONG, reentrant=True)
    with reader:
        writing = threads.start(others.lease(NAME, LONG).acquire, timeout=SECONDS)
        eventually(lambda: queues(engine, locks, NAME))
        with reader:
            assert not writing.done()
    assert writing.result(SECONDS)


@MODES
def test_fasteners_double(locks: Locks, others: Locks, mode: str) -> None:
    again = lock(locks, mode, reentrant=True)
    with again:
        with again:
            assert again.held
        assert again.held
        assert not others.lease(NAME, LONG).acquire(blocking=False)
    assert not again.held


def test_fasteners_reader_to_writer(locks: Locks) -> None:
    reader, writer = locks.shared(NAME, LONG), locks.lease(NAME, LONG)
    with reader:
        with pytest.raises(DeadlockDetected), writer:
            raise AssertionError("not reached")
        assert reader.held
        assert not writer.held


def test_fasteners_writer_to_reader(locks: Locks) -> None:
    """There a writer may read too. Here it may not: it reads as the writer that it is."""
    with locks.lease(NAME, LONG) as writer:
        with pytest.raises(DeadlockDetected), locks.shared(NAME, LONG):
            raise AssertionError("not reached")
        assert writer.held


def test_fasteners_one_after_the_other(locks: Locks) -> None:
    for mode in ("shared", "lease", "shared"):
        held = lock(locks, mode)
        with held:
            assert held.held
        assert not held.held


@MODES
def test_fasteners_is_free_after_a_crash(
    locks: Locks, others: Locks, engine: Engine, mode: str
) -> None:
    """When its TTL is over; with processes that are killed in `tests/processes/test_shared.py`."""
    lock(locks, mode).acquire()
    expire(engine, locks, NAME)
    assert others.lease(NAME, LONG).acquire(timeout=SECONDS)


# --- filelock: ReadWriteLock ---------------------------------------------------------------------


def test_filelock_read_locks_are_shared(locks: Locks, others: Locks) -> None:
    with locks.shared(NAME, LONG) as one, others.shared(NAME, LONG, 0) as two:
        assert one.held
        assert two.held


@pytest.mark.parametrize(
    ("holder", "contender"), [("lease", "lease"), ("lease", "shared"), ("shared", "lease")]
)
def test_filelock_excludes(
    locks: Locks, others: Locks, threads: Threads, holder: str, contender: str
) -> None:
    """Who comes is kept out, and gets it afterwards."""
    with lock(locks, holder):
        waiting = threads.start(lock(others, contender).acquire, timeout=SECONDS)
        eventually(lambda: bool(locks.show(NAME).waiters))
        assert not waiting.done()
    assert waiting.result(SECONDS)


def test_filelock_write_non_starvation(
    new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    """In a chain of readers, each of whom comes before the last one goes, a writer comes too."""
    locks = new_locks()
    reader = locks.shared(NAME, LONG)
    reader.acquire()
    writing = threads.start(new_locks().lease(NAME, LONG).acquire, timeout=SECONDS)
    eventually(lambda: queues(engine, locks, NAME))
    for _ in range(3):
        assert not new_locks().shared(NAME, LONG).acquire(blocking=False)
    reader.release()
    assert writing.result(SECONDS)


@MODES
def test_filelock_mode_transition_prohibited(locks: Locks, mode: str) -> None:
    other = "lease" if mode == "shared" else "shared"
    with lock(locks, mode), pytest.raises(DeadlockDetected), lock(locks, other):
        raise AssertionError("not reached")


def test_filelock_timeout_behavior(locks: Locks, others: Locks) -> None:
    with (
        locks.lease(NAME, LONG),
        pytest.raises(NotAcquired, match=f"within {SHORT:g} s"),
        others.shared(NAME, LONG, SHORT),
    ):
        raise AssertionError("not reached")


def test_filelock_non_blocking_behavior(locks: Locks, others: Locks) -> None:
    with locks.lease(NAME, LONG):
        assert not others.shared(NAME, LONG).acquire(blocking=False)


@MODES
def test_filelock_recursive_lock_acquisition(locks: Locks, mode: str) -> None:
    again = lock(locks, mode, reentrant=True)
    with again, again, again:
        assert again.held
    assert not again.held
    with again:
        assert again.held


@pytest.mark.parametrize("order", [("shared", "lease"), ("lease", "shared")])
def test_filelock_sequential_lock_modes(locks: Locks, order: tuple[str, str]) -> None:
    for mode in order:
        with lock(locks, mode):
            assert locks.show(NAME).held


@MODES
def test_filelock_another_instance_keeps_the_held_lock(new_locks: NewLocks, mode: str) -> None:
    """Others that come and close their connections end nothing."""
    locks, other = new_locks(), new_locks()
    with lock(locks, mode) as held:
        other.shared(NAME, LONG).acquire(blocking=False)
        other.close()
        held.check()
        held.renew()
        assert not new_locks().lease(NAME, LONG).acquire(blocking=False)


@MODES
def test_filelock_release_on_exit(locks: Locks, others: Locks, mode: str) -> None:
    with lock(locks, mode):
        assert not others.lease(NAME, LONG).acquire(blocking=False)
    assert others.lease(NAME, LONG).acquire(blocking=False)
