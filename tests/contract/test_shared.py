"""A shared lease: many readers, or one writer, and a writer that waits is not overtaken."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, Lease, LockLost, Locks, NotAcquired, NotHeld, SharedLease
from dblock.protocol.commands import Command, LeaveReaders
from dblock.protocol.steps import Execute, Procedure, Reply
from tests.contract.conftest import NewLocks
from tests.support import (
    LONG,
    MOMENT,
    SECONDS,
    Threads,
    lock_row,
)
from tests.worlds.behind import inside, run

NAME = "report"


# --- many readers, or one writer -----------------------------------------------------------------


def test_readers_share_a_name(locks: Locks, others: Locks) -> None:
    with locks.shared(NAME, ttl=LONG) as one, others.shared(NAME, ttl=LONG) as two:
        for reader in (one, two):
            assert reader.held
            assert reader.ttl == LONG
            reader.check()
            reader.renew()
            assert not reader.lost.is_set()
            assert not reader.acquire(blocking=False)
        assert one.fence == two.fence
        assert not others.lease(NAME).acquire(blocking=False)
    assert not one.held
    assert locks.list() == []
    assert others.lease(NAME).acquire(blocking=False)


def test_a_writer_keeps_readers_out(locks: Locks, others: Locks) -> None:
    with locks.lease(NAME, ttl=LONG):
        with pytest.raises(NotAcquired, match="held by"), others.shared(NAME, ttl=LONG, wait=0):
            raise AssertionError("not reached")
        assert not others.shared(NAME).acquire(timeout=MOMENT)
    assert others.shared(NAME).acquire(blocking=False)


def test_readers_keep_a_writer_out_until_the_last_has_gone(new_locks: NewLocks) -> None:
    """In whatever order they go: the first of them, too, before those that joined it."""
    readers = [new_locks().shared(NAME, ttl=LONG, wait=0) for _ in range(3)]
    writer = new_locks().lease(NAME, ttl=LONG)
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        for reader in readers:
            assert reader.acquire()
        for number in order:
            assert not writer.acquire(blocking=False)
            readers[number].release()
        assert writer.acquire(blocking=False)
        writer.release()


def test_who_comes_when_the_first_has_gone(new_locks: NewLocks) -> None:
    first, second, third = (new_locks().shared(NAME, ttl=LONG, wait=0) for _ in range(3))
    with second:
        with first:
            pass
        with third, first:
            assert first.fence == third.fence == second.fence
            assert new_locks().show(NAME).readers == 3
        assert new_locks().show(NAME).readers == 1
    assert not new_locks().lease(NAME).locked()


def test_fences_grow(locks: Locks, others: Locks) -> None:
    """A reader's fence is above the last writer's, and below the next one's: a writer that is late
    is refused by whoever has seen the reader's."""
    with locks.lease(NAME, ttl=LONG) as lease:
        written = lease.fence
    with locks.shared(NAME, ttl=LONG) as one, others.shared(NAME, ttl=LONG) as two:
        read = one.fence
        assert read == two.fence > written
    with locks.shared(NAME, ttl=LONG) as later:
        assert later.fence > read
        last = later.fence
    with others.lease(NAME, ttl=LONG) as lease:
        assert lease.fence > last


def test_a_row_lock_is_a_writer_too(locks: Locks, others: Locks) -> None:
    with locks.shared(NAME, ttl=LONG):
        assert not others.row(NAME).acquire(blocking=False)
    with others.row(NAME):
        assert not locks.shared(NAME).acquire(blocking=False)
    assert locks.shared(NAME).acquire(blocking=False)


def test_threads_share_one_handle(locks: Locks, threads: Threads) -> None:
    shared, all_in = locks.shared(NAME, ttl=LONG, wait=SECONDS), threading.Barrier(4)

    def read() -> str:
        with shared:
            all_in.wait(SECONDS)
            shared.check()
            return shared.token

    reading = [threads.start(read) for _ in range(4)]
    assert len({one.result(SECONDS) for one in reading}) == 1
    threads.join()
    assert locks.list() == []


def test_as_a_decorator_and_with_others(locks: Locks, others: Locks) -> None:
    @locks.shared(NAME, ttl=LONG)
    def work() -> bool:
        return others.shared(NAME).acquire(blocking=False)

    assert work()
    with locks.all(locks.shared(NAME, ttl=LONG), locks.lease("sales", ttl=LONG)):
        assert not others.lease(NAME).acquire(blocking=False)
        assert not others.lease("sales").acquire(blocking=False)


def test_a_failing_body_releases_it(locks: Locks, others: Locks) -> None:
    with pytest.raises(ZeroDivisionError), locks.shared(NAME, ttl=LONG) as reader:
        raise ZeroDivisionError
    assert not reader.held
    assert others.lease(NAME, ttl=LONG).acquire(blocking=False)


@pytest.mark.parametrize("mode", ["shared", "lease"])
def test_another_program_that_closes_ends_no_hold(new_locks: NewLocks, mode: str) -> None:
    """It was refused or shared the name, and closed its connections."""
    locks, other = new_locks(), new_locks()
    with getattr(locks, mode)(NAME, ttl=LONG) as held:
        other.shared(NAME, ttl=LONG).acquire(blocking=False)
        other.close()
        held.check()
        held.renew()
        assert not new_locks().lease(NAME, ttl=LONG).acquire(blocking=False)


# --- nobody waits for itself ---------------------------------------------------------------------


@pytest.mark.parametrize("wait", [None, SECONDS, 0])
@pytest.mark.parametrize("first", ["shared", "lease"])
def test_no_upgrade_and_no_downgrade(locks: Locks, first: str, wait: float | None) -> None:
    held = getattr(locks, first)(NAME, ttl=LONG)
    with held:
        other = (locks.lease if first == "shared" else locks.shared)(NAME, ttl=LONG, wait=wait)
        error = NotAcquired if wait == 0 else DeadlockDetected
        with pytest.raises(error, match=f"{NAME}.* (already|itself)"), other:
            raise AssertionError("not reached")
        assert held.held
        held.check()


def test_an_upgrade_says_what_it_is(locks: Locks) -> None:
    with locks.shared(NAME, ttl=LONG):
        assert not locks.lease(NAME).acquire(blocking=False)
        with pytest.raises(DeadlockDetected, match="does not become an exclusive one"):
            locks.lease(NAME).acquire()
    with (
        locks.lease(NAME, ttl=LONG),
        pytest.raises(DeadlockDetected, match="become a shared lease"),
    ):
        locks.shared(NAME).acquire()


def test_twice_only_where_asked_for(locks: Locks, others: Locks, threads: Threads) -> None:
    reentrant = locks.shared(NAME, ttl=LONG, reentrant=True)
    with reentrant, reentrant:
        with pytest.raises(DeadlockDetected):
            locks.shared(NAME, ttl=LONG).acquire()
        assert locks.show(NAME).readers == 1
        with pytest.raises(NotHeld):
            threads.run(reentrant.release)
    assert locks.list() == []


def test_another_thread_may_have_it_beside(locks: Locks, threads: Threads) -> None:
    with locks.shared(NAME, ttl=LONG):
        other = locks.shared(NAME, ttl=LONG)
        assert threads.run(other.acquire, timeout=SECONDS)
        assert locks.show(NAME).readers == 2
        threads.run(other.release)


def test_a_cycle_of_readers_that_wait_for_each_other(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    """Two readers, each of whom wants for itself what the other shares."""
    met = threading.Barrier(2)

    def cross(mine: Locks, first: str, second: str) -> str:
        with mine.shared(first, ttl=LONG):
            met.wait(SECONDS)
            try:
                with mine.lease(second, ttl=LONG, wait=SECONDS):
                    return "got it"
            except DeadlockDetected:
                return "told"

    crossing = [
        threads.start(cross, locks, "one", "two"),
        threads.start(cross, others, "two", "one"),
    ]
    assert sorted(one.result(SECONDS) for one in crossing) == ["got it", "told"]


def test_a_reentrant_reader_holds_it_until_its_last_release(locks: Locks, others: Locks) -> None:
    reader = locks.shared(NAME, ttl=LONG, reentrant=True)
    with reader:
        with reader, reader:
            assert reader.held
        assert reader.held
        assert not others.lease(NAME, ttl=LONG).acquire(blocking=False)
    assert not reader.held
    with reader:
        assert reader.held


# --- what cannot be ------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused(locks: Locks) -> None:
    with locks.shared(NAME, ttl=LONG) as reader:
        assert not isinstance(reader, Lease)
        assert not hasattr(reader, "detach")  # other readers may share the hold
        with pytest.raises(TypeError, match="release"):
            reader.release(5)  # type: ignore[call-arg] # as untyped code may
        assert reader.held
        with pytest.raises(ValueError, match="no detached hold"):
            locks.attach(f"{reader.token}.{reader.fence}.{NAME}")


def test_release_when_it_is_not_held(locks: Locks) -> None:
    reader = locks.shared(NAME, ttl=LONG)
    for _ in range(2):
        with pytest.raises(NotHeld, match=NAME):
            reader.release()
        with reader:
            pass


def test_a_repeated_release_takes_nobody_elses_share(locks: Locks, others: Locks) -> None:
    """The statement that leaves finds one reader, and only while it is there."""
    with others.shared(NAME, ttl=LONG):
        reader = locks.shared(NAME, ttl=LONG)
        reader.acquire()
        hold = inside(reader)._current()
        assert hold is not None
        assert hold.reader is not None
        leaving = LeaveReaders(NAME, hold.token, hold.reader)
        reader.release()
        assert run(locks, _execute(leaving)) == 0
        assert locks.show(NAME).readers == 1


def _execute(command: Command[int]) -> Procedure[int]:
    reply: Reply[int] = yield Execute(command)
    return reply.answer


# --- what is told of it --------------------------------------------------------------------------


def test_it_is_shown(new_locks: NewLocks, engine: Engine) -> None:
    locks, others = new_locks(), new_locks()
    with locks.lease(NAME, ttl=LONG):
        assert locks.show(NAME).readers is None
    with locks.shared(NAME, ttl=LONG, label="first") as one:
        assert locks.show(NAME).readers == 1
        assert "shared by 1 reader, first by" in locks.show(NAME).describe()
        with others.shared(NAME, ttl=LONG):
            (state,) = locks.list()
            assert (state.readers, state.status, state.fence) == (2, "held", one.fence)
            assert "shared by 2 readers, first by" in state.describe()
            assert one.token not in repr(state)
            with (
                pytest.raises(NotAcquired, match="shared by 2 readers"),
                new_locks().lease(NAME, ttl=LONG, wait=0),
            ):
                raise AssertionError("not reached")
    assert locks.show(NAME).readers is None
    assert lock_row(engine, locks, NAME).token is None


def test_force_frees_it_of_all_readers(new_locks: NewLocks) -> None:
    locks = new_locks()
    readers = [new_locks().shared(NAME, ttl=LONG) for _ in range(2)]
    for reader in readers:
        reader.acquire()
    assert locks.release(NAME, force=True)
    assert not locks.release(NAME, force=True)
    assert locks.lease(NAME, ttl=LONG).acquire(blocking=False)
    for reader in readers:
        with pytest.raises(LockLost):
            reader.release()


def test_it_says_what_it_is(locks: Locks) -> None:
    shared = locks.shared(NAME, ttl=LONG)
    assert "SharedLease 'report'" in repr(shared)
    assert "not held" in repr(shared)
    with shared:
        assert "not held" not in repr(shared)
    assert SharedLease.strategy == "shared"
