"""A shared lease: many readers, or one writer, and a writer that waits is not overtaken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from sqlalchemy import update
from sqlalchemy.engine import Engine

from dblock import DeadlockDetected, Lease, LockLost, Locks, NotAcquired, NotHeld, SharedLease
from dblock.protocol.renew import Asked, renew_all
from dblock.protocol.sharing import SharedAttempt
from dblock.protocol.state import Renewal
from dblock.protocol.steps import Execute, Procedure, Query
from dblock.protocol.tokens import for_reader
from tests.contract.conftest import NewLocks
from tests.support import (
    LONG,
    MOMENT,
    SECONDS,
    SHORT,
    TABLE,
    Threads,
    eventually,
    expire,
    lock_row,
    named,
    queue_length,
    queues,
)
from tests.worlds.behind import inside, run

NAME = "report"
LONGER = 20 * LONG


def stand(engine: Engine, locks: Locks, token: str) -> None:
    """Let one stand in the name's queue whose token this is, and who is called by nobody."""
    ticket = "0" * 24 + token + "2000its owner"
    with engine.begin() as connection:
        waiters = [ticket] if locks.dialect.can_notify else ticket[:24]
        connection.execute(update(TABLE).where(named(locks, NAME)).values(waiters=waiters))


def remaining(locks: Locks) -> float:
    found = locks.show(NAME).remaining
    assert found is not None
    return found


# --- many readers, or one writer -----------------------------------------------------------------


def test_readers_share_a_name(locks: Locks, others: Locks) -> None:
    with locks.shared(NAME, LONG) as one, others.shared(NAME, LONG) as two:
        for reader in (one, two):
            assert reader.held
            assert reader.ttl == LONG
            reader.check()
            reader.renew()
            assert not reader.lost.is_set()
        assert one.fence == two.fence
        assert not others.lease(NAME).acquire(blocking=False)
    assert not one.held
    assert locks.list() == []
    assert others.lease(NAME).acquire(blocking=False)


def test_a_writer_keeps_readers_out(locks: Locks, others: Locks) -> None:
    with locks.lease(NAME, LONG):
        with pytest.raises(NotAcquired, match="held by"), others.shared(NAME, LONG, 0):
            raise AssertionError("not reached")
        assert not others.shared(NAME).acquire(timeout=MOMENT)
    assert others.shared(NAME).acquire(blocking=False)


def test_readers_keep_a_writer_out_until_the_last_has_gone(new_locks: NewLocks) -> None:
    """In whatever order they go: the first of them, too, before those that joined it."""
    readers = [new_locks().shared(NAME, LONG, 0) for _ in range(3)]
    writer = new_locks().lease(NAME, LONG)
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        for reader in readers:
            assert reader.acquire()
        for number in order:
            assert not writer.acquire(blocking=False)
            readers[number].release()
        assert writer.acquire(blocking=False)
        writer.release()


def test_who_comes_when_the_first_has_gone(new_locks: NewLocks) -> None:
    first, second, third = (new_locks().shared(NAME, LONG, 0) for _ in range(3))
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
    with locks.lease(NAME, LONG) as lease:
        written = lease.fence
    with locks.shared(NAME, LONG) as one, others.shared(NAME, LONG) as two:
        read = one.fence
        assert read == two.fence > written
    with locks.shared(NAME, LONG) as later:
        assert later.fence > read
        last = later.fence
    with others.lease(NAME, LONG) as lease:
        assert lease.fence > last


def test_a_row_lock_is_a_writer_too(locks: Locks, others: Locks) -> None:
    with locks.shared(NAME, LONG):
        assert not others.row(NAME).acquire(blocking=False)
    with others.row(NAME):
        assert not locks.shared(NAME).acquire(blocking=False)
    assert locks.shared(NAME).acquire(blocking=False)


def test_threads_share_one_handle(locks: Locks, threads: Threads) -> None:
    shared, all_in = locks.shared(NAME, LONG, SECONDS), threading.Barrier(4)

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
    @locks.shared(NAME, LONG)
    def work() -> bool:
        return others.shared(NAME).acquire(blocking=False)

    assert work()
    with locks.all(locks.shared(NAME, LONG), locks.lease("sales", LONG)):
        assert not others.lease(NAME).acquire(blocking=False)
        assert not others.lease("sales").acquire(blocking=False)


# --- waiting -------------------------------------------------------------------------------------


def test_readers_that_waited_come_in_together(new_locks: NewLocks, threads: Threads) -> None:
    """Several programs, and several of each: all are in at once, though nobody goes."""
    all_in = threading.Barrier(7)
    engine_locks = new_locks()
    writer = engine_locks.lease(NAME, LONG)
    writer.acquire()

    def read(locks: Locks) -> None:
        with locks.shared(NAME, LONG, SECONDS):
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
    writer = locks.lease(NAME, 10 * SECONDS)
    writer.acquire()

    def read(locks: Locks) -> None:
        with locks.shared(NAME, 10 * SECONDS, SECONDS):
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
    reader = locks.shared(NAME, LONG)
    reader.acquire()

    def come(who: str, lock: Callable[[], object]) -> None:
        with lock():  # type: ignore[attr-defined]
            order.append(who)

    writing = threads.start(come, "writer", lambda: new_locks().lease(NAME, LONG, SECONDS))
    eventually(lambda: queues(engine, locks))
    assert not new_locks().shared(NAME, LONG).acquire(blocking=False)
    reading = threads.start(come, "reader", lambda: new_locks().shared(NAME, LONG, SECONDS))
    assert not new_locks().shared(NAME, LONG).acquire(timeout=MOMENT)
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
        with locks.shared(NAME, LONG):
            pass
    order: list[str] = []

    def come(who: str, lock: Lease, waiting: int) -> None:
        def get_in() -> None:
            with lock:
                order.append(who)

        threads.start(get_in)
        eventually(lambda: len(locks.show(NAME).waiters) == waiting)
        if shared_before:  # else MariaDB's writers wait in the server, and are not in the queue
            eventually(lambda: queue_length(engine, locks) == waiting)

    writer = locks.lease(NAME, LONG)
    writer.acquire()
    for number in range(3):
        come("writer", new_locks().lease(NAME, LONG, SECONDS), number + 1)
    for number in range(2):
        come("reader", new_locks().shared(NAME, LONG, SECONDS), number + 4)
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
        writing = threads.start(new_locks().lease(NAME, LONG).acquire, timeout=seconds)
        eventually(lambda: queues(engine, locks) or writing.done())
        return writing

    with locks.shared(NAME, LONG):
        # On a slow machine a writer may give up before it is in the queue.
        writers = map(start_writer, (1.0, 10.0, 100.0))
        writing = next(one for one in writers if not one.done())
        assert threads.start(new_locks().shared(NAME, LONG).acquire, timeout=SECONDS).result()
        assert not writing.result(SECONDS)
    assert not queues(engine, locks)


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_readers_that_wait_keep_no_reader_out(locks: Locks, others: Locks, engine: Engine) -> None:
    """The queue tells who is one, on PostgreSQL."""
    with locks.shared(NAME, LONG):
        for token, let_in in (("f" * 32, False), (for_reader("f" * 32), True)):
            stand(engine, locks, token)
            reader = others.shared(NAME, LONG)
            assert reader.acquire(blocking=False) is let_in
            if let_in:
                reader.release()


def test_a_writer_that_was_killed_while_it_waited_does_not_keep_readers_out(
    locks: Locks, others: Locks, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ticket is in the queue for as long as readers have the name, if nobody is told there."""
    monkeypatch.setattr(SharedAttempt, "patient", SHORT)
    with locks.shared(NAME, LONG):
        stand(engine, locks, "f" * 32)
        with others.shared(NAME, LONG, SECONDS):
            assert locks.show(NAME).readers == 2


@pytest.mark.parametrize("db", ["mariadb", "sqlite"], indirect=True)
def test_a_writer_that_was_killed_keeps_out_no_reader_that_does_not_wait(
    locks: Locks, others: Locks, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short readers wait, if others have had the name for a while."""
    monkeypatch.setattr(SharedAttempt, "patient", SHORT)
    with locks.shared(NAME, LONG):
        stand(engine, locks, "f" * 32)
        reader = others.shared(NAME, LONG)
        eventually(lambda: reader.acquire(blocking=False))
        reader.release()


@pytest.mark.parametrize("db", ["mariadb", "sqlite"], indirect=True)
def test_a_writer_that_lives_is_seen_as_soon_as_it_stands_in_the_queue(
    new_locks: NewLocks, engine: Engine, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else readers that ask who is there would go past it."""
    locks, others = new_locks(), new_locks()
    monkeypatch.setattr(SharedAttempt, "patient", 0.0)
    reader = locks.shared(NAME, LONG)
    assert reader.acquire()
    for locked in (new_locks(), new_locks()):
        threads.start(locked.lease(NAME, LONG, SECONDS).acquire)
        eventually(lambda: queues(engine, locks))
        assert not others.shared(NAME, LONG).acquire(blocking=False)
        reader.release()
        threads.join()
        locks.release(NAME, force=True)
        assert reader.acquire()
    reader.release()


def test_a_wait_that_ends_leaves_nothing(locks: Locks, others: Locks, engine: Engine) -> None:
    with locks.lease(NAME, LONG):
        before = time.monotonic()
        with pytest.raises(NotAcquired), others.shared(NAME, LONG, SHORT):
            raise AssertionError("not reached")
        assert time.monotonic() - before >= SHORT
        assert not queues(engine, locks)
        assert locks.show(NAME).waiters == ()


def test_readers_and_writers_in_turn(new_locks: NewLocks, threads: Threads) -> None:
    """A crowd of both: never a writer beside anybody, and all get in."""
    lock, inside, done = threading.Lock(), {"r": 0, "w": 0}, {"r": 0, "w": 0}
    wrong: list[dict[str, int]] = []

    def work(kind: str, locks: Locks) -> None:
        handle = (locks.shared if kind == "r" else locks.lease)(NAME, LONG, SECONDS)
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


# --- nobody waits for itself ---------------------------------------------------------------------


@pytest.mark.parametrize("wait", [None, SECONDS, 0])
@pytest.mark.parametrize("first", ["shared", "lease"])
def test_no_upgrade_and_no_downgrade(locks: Locks, first: str, wait: float | None) -> None:
    held = getattr(locks, first)(NAME, LONG)
    with held:
        other = (locks.lease if first == "shared" else locks.shared)(NAME, LONG, wait)
        error = NotAcquired if wait == 0 else DeadlockDetected
        with pytest.raises(error, match=f"{NAME}.* (already|itself)"), other:
            raise AssertionError("not reached")
        assert held.held
        held.check()


def test_an_upgrade_says_what_it_is(locks: Locks) -> None:
    with locks.shared(NAME, LONG):
        assert not locks.lease(NAME).acquire(blocking=False)
        with pytest.raises(DeadlockDetected, match="does not become an exclusive one"):
            locks.lease(NAME).acquire()
    with locks.lease(NAME, LONG), pytest.raises(DeadlockDetected, match="become a shared lease"):
        locks.shared(NAME).acquire()


def test_twice_only_where_asked_for(locks: Locks, others: Locks, threads: Threads) -> None:
    reentrant = locks.shared(NAME, LONG, reentrant=True)
    with reentrant, reentrant:
        with pytest.raises(DeadlockDetected):
            locks.shared(NAME, LONG).acquire()
        assert locks.show(NAME).readers == 1
        with pytest.raises(NotHeld):
            threads.run(reentrant.release)
    assert locks.list() == []


def test_another_thread_may_have_it_beside(locks: Locks, threads: Threads) -> None:
    with locks.shared(NAME, LONG):
        other = locks.shared(NAME, LONG)
        assert threads.run(other.acquire, timeout=SECONDS)
        assert locks.show(NAME).readers == 2
        threads.run(other.release)


def test_a_cycle_of_readers_that_wait_for_each_other(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    """Two readers, each of whom wants for itself what the other shares."""
    met = threading.Barrier(2)

    def cross(mine: Locks, first: str, second: str) -> str:
        with mine.shared(first, LONG):
            met.wait(SECONDS)
            try:
                with mine.lease(second, LONG, SECONDS):
                    return "got it"
            except DeadlockDetected:
                return "told"

    crossing = [
        threads.start(cross, locks, "one", "two"),
        threads.start(cross, others, "two", "one"),
    ]
    assert sorted(one.result(SECONDS) for one in crossing) == ["got it", "told"]


# --- how long it lasts ---------------------------------------------------------------------------


def test_a_reader_lets_it_last_for_its_own_ttl(locks: Locks, others: Locks) -> None:
    """And brings no other reader's expiry forward: not when it joins, is renewed, or renews."""
    with locks.shared(NAME, LONG):
        with others.shared(NAME, LONGER, 0):
            assert remaining(locks) > LONG
        with others.shared(NAME, LONG / 2, 0) as brief:
            assert remaining(locks) > LONG
            brief.renew()
            brief.renew(LONG / 4)
            assert remaining(locks) > LONG
            assert brief.remaining < LONG / 4


def test_dead_readers_run_out_with_the_last_one(locks: Locks, others: Locks) -> None:
    dead = locks.shared(NAME, SHORT, renew=False)
    dead.acquire()
    with others.shared(NAME, 10 * SHORT) as alive:
        eventually(lambda: not dead.held)
        alive.check()
        assert not locks.lease(NAME).acquire(blocking=False)
    assert others.lease(NAME, LONG).acquire(timeout=SECONDS)
    with pytest.raises(LockLost):
        dead.release()


def test_readers_are_renewed_while_they_hold_it(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    ttl = 1.0
    with locks.shared(NAME, ttl) as one, others.shared(NAME, ttl) as two:
        for _ in range(5):
            seen = lock_row(engine, locks, NAME).expires_at
            eventually(lambda seen=seen: lock_row(engine, locks, NAME).expires_at != seen)  # type: ignore[misc]
            one.check()
            two.check()
    assert not locks.lease(NAME).locked()


def test_readers_of_one_program_are_renewed_at_once(locks: Locks, others: Locks) -> None:
    """They share a row. The longest TTL of theirs counts, whichever is asked for first."""
    with locks.shared(NAME, 5.0, renew=False) as lease:
        hold = inside(lease).current()
        assert hold is not None
        for ttls in ((LONG, 1.0), (1.0, 2 * LONG)):
            asked = [Asked(Renewal(NAME, hold.token, ttl), hold.lease) for ttl in ttls]
            before = time.monotonic()
            outcomes = run(locks, renew_all(locks.dialect, asked))
            assert [outcome.ttl for outcome in outcomes] == list(ttls)
            left = remaining(others)
            assert left + time.monotonic() - before > max(ttls) - 1.0


def test_each_reader_is_told_of_its_loss(new_locks: NewLocks, engine: Engine) -> None:
    told: list[LockLost] = []
    locks = new_locks()
    readers = [new_locks().shared(NAME, LONG, on_lost=told.append) for _ in range(2)]
    for reader in readers:
        reader.acquire()
    assert locks.release(NAME, force=True)
    assert locks.lease(NAME, LONG).acquire(blocking=False)
    for reader in readers:
        with pytest.raises(LockLost):
            reader.renew()
        assert not reader.held
        with pytest.raises(LockLost):
            reader.release()
    assert len(told) == 2


def test_a_reader_whose_time_is_over_is_told_though_others_go_on(
    locks: Locks, others: Locks
) -> None:
    reader = locks.shared(NAME, SHORT, renew=False)
    reader.acquire()
    with others.shared(NAME, LONG):
        eventually(reader.lost.is_set)
        assert not reader.held
        with pytest.raises(LockLost):
            reader.check()
        with pytest.raises(LockLost):
            reader.release()
        assert locks.show(NAME).readers == 1


def test_a_group_that_ran_out_is_not_joined(locks: Locks, others: Locks, engine: Engine) -> None:
    reader = locks.shared(NAME, LONG)
    reader.acquire()
    fence = reader.fence
    expire(engine, locks, NAME)
    with others.shared(NAME, LONG, 0) as later:
        assert later.fence > fence
        with pytest.raises(LockLost):
            reader.release()
        assert others.show(NAME).readers == 1


# --- what it proves ------------------------------------------------------------------------------


def test_a_guard_proves_that_nobody_has_written(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    reader = locks.shared(NAME, LONG)
    reader.acquire()
    with engine.connect() as connection, reader.guard(connection) as fence:
        assert fence == reader.fence
    expire(engine, locks, NAME)
    with others.lease(NAME, LONG, 0):
        pass
    with (
        engine.connect() as connection,
        pytest.raises(LockLost),
        reader.guard(connection),
    ):
        raise AssertionError("not reached")


def test_nobody_writes_while_a_readers_guard_is_open(
    new_locks: NewLocks, engine: Engine, threads: Threads
) -> None:
    """Although the reader has gone, and the last of the others after it, and a writer waits."""
    locks = new_locks()
    if locks.dialect.one_writer:
        return  # there a guard keeps out whoever writes
    guarded, last = locks.shared(NAME, LONG), new_locks().shared(NAME, LONG)
    guarded.acquire()
    last.acquire()
    with engine.connect() as connection:
        with guarded.guard(connection):
            writing = threads.start(new_locks().lease(NAME, LONG).acquire, timeout=SECONDS)
            eventually(lambda: queues(engine, locks))
            guarded.release()
            last.release()
        assert not new_locks().lease(NAME, LONG).acquire(timeout=2 * MOMENT)
        assert not writing.done()
        connection.commit()
    assert writing.result(SECONDS)


def test_a_guard_keeps_no_reader_out(locks: Locks, others: Locks, engine: Engine) -> None:
    if locks.dialect.one_writer:
        return  # there a guard keeps out whoever writes
    with (
        locks.shared(NAME, LONG) as reader,
        engine.connect() as connection,
        reader.guard(connection),
        others.shared(NAME, LONG, 0) as other,
    ):
        other.renew()
        assert other.fence == reader.fence


# --- what cannot be ------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused(locks: Locks) -> None:
    with locks.shared(NAME, LONG) as reader:
        with pytest.raises(ValueError, match="does not keep the name"):
            reader.release(5)
        with pytest.raises(TypeError, match="cannot be detached"):
            reader.detach()
        assert reader.held
        with pytest.raises(ValueError, match="no detached hold"):
            locks.attach(f"{reader.token}.{reader.fence}.{NAME}")


def test_release_when_it_is_not_held(locks: Locks) -> None:
    reader = locks.shared(NAME, LONG)
    for _ in range(2):
        with pytest.raises(NotHeld, match=NAME):
            reader.release()
        with reader:
            pass


def test_a_repeated_release_takes_nobody_elses_share(locks: Locks, others: Locks) -> None:
    """The statement that leaves finds one reader, and only while it is there."""
    with others.shared(NAME, LONG):
        reader = locks.shared(NAME, LONG)
        reader.acquire()
        hold = inside(reader).current()
        assert hold is not None
        assert hold.reader is not None
        leaving = locks.dialect.leave_readers(NAME, hold.token, hold.reader)
        reader.release()
        assert run(locks, _execute(leaving)) == 0
        assert locks.show(NAME).readers == 1


def _execute(query: Query[int]) -> Procedure[int]:
    return query.read((yield Execute(query)))


# --- what is told of it --------------------------------------------------------------------------


def test_it_is_shown(new_locks: NewLocks, engine: Engine) -> None:
    locks, others = new_locks(), new_locks()
    with locks.lease(NAME, LONG):
        assert locks.show(NAME).readers is None
    with locks.shared(NAME, LONG, label="first") as one:
        assert locks.show(NAME).readers == 1
        assert "shared by 1 reader, first by" in locks.show(NAME).describe()
        with others.shared(NAME, LONG):
            (state,) = locks.list()
            assert (state.readers, state.status, state.fence) == (2, "held", one.fence)
            assert "shared by 2 readers, first by" in state.describe()
            assert one.token not in repr(state)
            with (
                pytest.raises(NotAcquired, match="shared by 2 readers"),
                new_locks().lease(NAME, LONG, 0),
            ):
                raise AssertionError("not reached")
    assert locks.show(NAME).readers is None
    assert lock_row(engine, locks, NAME).token is None


def test_force_frees_it_of_all_readers(new_locks: NewLocks) -> None:
    locks = new_locks()
    readers = [new_locks().shared(NAME, LONG) for _ in range(2)]
    for reader in readers:
        reader.acquire()
    assert locks.release(NAME, force=True)
    assert not locks.release(NAME, force=True)
    assert locks.lease(NAME, LONG).acquire(blocking=False)
    for reader in readers:
        with pytest.raises(LockLost):
            reader.release()


def test_it_says_what_it_is(locks: Locks) -> None:
    shared = locks.shared(NAME, LONG)
    assert "SharedLease 'report'" in repr(shared)
    assert "not held" in repr(shared)
    with shared:
        assert "not held" not in repr(shared)
    assert SharedLease.strategy == "shared"
