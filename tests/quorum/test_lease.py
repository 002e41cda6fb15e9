"""A lease at a majority of databases keeps the promises of a lease at one."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from contextlib import closing

import pytest

from dblock import (
    DeadlockDetected,
    LockLost,
    Locks,
    NotAcquired,
    NotHeld,
    Quorum,
    Unavailable,
    Unsupported,
)
from dblock.quorum.quorum import OneDatabase
from dblock.schema import upgrade
from tests.patience import SECONDS
from tests.quorum.conftest import PATIENT, held_at, writer
from tests.support import Threads, eventually

#: A TTL that no test waits for.
LONG = 60.0


def test_one_holder_at_a_time(quorum: Quorum, three: list[str]) -> None:
    with Quorum(three, timeouts=PATIENT) as other:
        with quorum.lease("report", ttl=LONG, wait=0) as lease:
            assert lease.held
            assert other.lease("report").locked()
            refused = other.lease("report", wait=0)
            assert not refused.acquire()
            with pytest.raises(NotAcquired) as told, refused:
                pass
            assert told.value.holder is not None
            assert told.value.holder.owner
        assert not other.lease("report").locked()
        with other.lease("report", wait=SECONDS):
            pass


def test_fences_grow_from_hold_to_hold_whoever_holds(quorum: Quorum, three: list[str]) -> None:
    fences = []
    with Quorum(list(reversed(three)), timeouts=PATIENT) as other:
        for handles in itertools.islice(itertools.cycle((quorum, other)), 6):
            with handles.lease("report", ttl=LONG, wait=SECONDS) as lease:
                fences.append(lease.fence)
    assert fences == sorted(set(fences))


def test_fences_that_differ_are_raised_to_the_largest(quorum: Quorum, three: list[str]) -> None:
    """Whichever members are the majority, it has one of those that have seen more holds."""
    with quorum.lease("report", ttl=LONG, wait=0) as lease:
        before = lease.fence
    alone = []
    for url, holds in zip(three[1:], (5, 3), strict=True):
        with Locks(url) as locks:
            for _ in range(holds):
                with locks.lease("report", wait=SECONDS) as hold:
                    fence = hold.fence
        alone.append(fence)
    with quorum.lease("report", ttl=LONG, wait=SECONDS) as lease:
        assert lease.fence > max(before, min(alone))
        eventually(lambda: has_fence(three, lease.fence) >= 2)


def has_fence(urls: list[str], fence: int) -> int:
    """At how many databases the name's fence is at least this."""
    count = 0
    for url in urls:
        with Locks(url) as locks:
            count += locks.show("report").fence >= fence
    return count


def test_a_waiter_gets_the_name_after_its_release(
    quorum: Quorum, three: list[str], threads: Threads
) -> None:
    def wait() -> int:
        with Quorum(three, timeouts=PATIENT) as other, other.lease("report", wait=SECONDS) as lease:
            return lease.fence

    with quorum.lease("report", ttl=LONG, wait=0) as lease:
        fence = lease.fence
        waiting: Future[int] = threads.start(wait)
        eventually(lambda: any(state.waiters for state in quorum.list()))
    assert waiting.result(SECONDS) > fence


def test_many_waiters_get_it_one_after_the_other(three: list[str], threads: Threads) -> None:
    inside: list[int] = []
    fences: list[int] = []

    def work() -> None:
        with Quorum(three, timeouts=PATIENT) as quorum:
            for _ in range(3):
                with quorum.lease("report", ttl=LONG, wait=SECONDS) as lease:
                    inside.append(1)
                    assert len(inside) == 1
                    fences.append(lease.fence)
                    inside.pop()

    for _ in range(4):
        threads.start(work)
    threads.join()
    assert fences == sorted(set(fences))
    assert len(fences) == 12


def test_the_end_waits_for_the_release_at_each_member(files: list[str]) -> None:
    """A process that ends after it would otherwise leave the name taken there."""
    quorum = Quorum(files, timeouts=PATIENT)
    lease = quorum.lease("report", ttl=LONG, wait=SECONDS)
    assert lease.acquire()
    eventually(lambda: held_at(files) == 3)
    with Locks(files[2]) as locks, closing(writer(files[2])) as other:
        lease.release()
        assert locks.show("report").held
        writing = threading.Timer(1.0, other.rollback)
        writing.start()
        quorum.close()
        assert not locks.show("report").held
        writing.join()


def test_a_wait_ends_in_time(quorum: Quorum, three: list[str]) -> None:
    with Quorum(three, timeouts=PATIENT) as other, quorum.lease("report", ttl=LONG, wait=0):
        assert not other.lease("report").acquire(timeout=0.2)
    eventually(lambda: not quorum.list())


def test_the_keeper_renews_it(quorum: Quorum, three: list[str]) -> None:
    with quorum.lease("report", ttl=1.5, wait=0) as lease:
        first = lease._holds.get().lease.term
        eventually(lambda: lease._holds.get().lease.term.start > first.deadline)
        lease.check()


def test_it_is_renewed_by_hand(quorum: Quorum) -> None:
    with quorum.lease("report", ttl=LONG, renew=False, wait=0) as lease:
        lease.renew(2 * LONG)
        assert lease.remaining > LONG
        # A member that forgets the hold pauses for as long as the hold may last.
        views, _ = quorum._members.records.read()
        recorded = [view.longest >= 2000 * LONG for view in views if view is not None]
        assert sum(recorded) >= 2
    with pytest.raises(NotHeld):
        lease.renew()


def test_a_minority_that_lost_it_is_no_loss(quorum: Quorum, three: list[str]) -> None:
    with quorum.lease("report", ttl=LONG, wait=0) as lease:
        eventually(lambda: held_at(three) == 3)  # the slowest too
        with Locks(three[0]) as one:
            assert one.release("report", force=True)
        lease.renew()
        lease.check()


def test_a_majority_that_lost_it_is_a_loss(quorum: Quorum, three: list[str]) -> None:
    lease = quorum.lease("report", ttl=LONG, wait=0)
    assert lease.acquire()
    eventually(lambda: held_at(three) == 3)
    for url in three[:2]:
        with Locks(url) as one:
            assert one.release("report", force=True)
    with pytest.raises(LockLost) as told:
        lease.renew()
    assert told.value.reason == "forced"
    assert lease.lost.is_set()


def test_force_frees_it_everywhere(quorum: Quorum, three: list[str]) -> None:
    lease = quorum.lease("report", ttl=LONG, wait=0)
    assert lease.acquire()
    eventually(lambda: held_at(three) == 3)
    with pytest.raises(ValueError, match="force=True"):
        quorum.release("report", force=False)
    assert quorum.release("report", force=True)
    with pytest.raises(LockLost):
        lease.release()
    assert not quorum.release("report", force=True)
    assert quorum.list() == []


def test_show_and_list_say_what_a_majority_has(quorum: Quorum, three: list[str]) -> None:
    assert quorum.show("report").status == "free"
    with quorum.lease("report", ttl=LONG, label="night", wait=0):
        assert quorum.show("report").held
        (state,) = quorum.list()
        assert state.name == "report"
        assert "night" in str(state.owner)
    with Locks(three[2]) as alone, alone.lease("sales"):
        assert not quorum.show("sales").held


def test_a_thread_does_not_wait_for_itself(quorum: Quorum) -> None:
    with quorum.lease("report", ttl=LONG, wait=0), pytest.raises(DeadlockDetected):
        quorum.lease("report").acquire()
    nested = quorum.lease("report", ttl=LONG, reentrant=True, wait=0)
    with nested, nested:
        assert nested.held
    assert not nested.held


def test_what_it_does_not_have_says_what_to_use(quorum: Quorum) -> None:
    for method in [name for name in vars(OneDatabase) if not name.startswith("_")]:
        with pytest.raises(Unsupported, match=r"dblock\.fencing\.gate"):
            getattr(quorum, method)("report")
    lease = quorum.lease("report", ttl=LONG, wait=0)
    with lease, pytest.raises(Unsupported, match=r"dblock\.fencing\.gate"), lease.guard(None):
        pass


def test_several_leases_are_taken_as_one(files: list[str]) -> None:
    with Quorum(files, timeouts=PATIENT) as quorum, Quorum(files, timeouts=PATIENT) as other:
        both = quorum.all(quorum.lease("b", ttl=LONG), quorum.lease("a", ttl=LONG), wait=SECONDS)
        with both:
            assert both.held
            assert [lease.name for lease in both.locks] == ["a", "b"]
            assert not other.lease("b", wait=0).acquire()
        with other.lease("b", ttl=LONG, wait=SECONDS):
            assert not both.acquire(blocking=False)
            assert not other.lease("a").locked()
        with pytest.raises(ValueError, match="given twice"):
            quorum.all(quorum.lease("a"), quorum.lease("a"))
        with pytest.raises(TypeError, match="takes leases of this Quorum"):
            quorum.all("a")  # type: ignore[arg-type]


def test_wrong_targets_are_refused_before_any_io() -> None:
    nowhere = [f"postgresql+psycopg://app@127.0.0.1:{port}/app" for port in (1, 2, 3)]
    with pytest.raises(ValueError, match="odd number"):
        Quorum(nowhere[:2])
    with pytest.raises(ValueError, match="odd number"):
        Quorum([])
    with pytest.raises(ValueError, match="given twice"):
        Quorum([*nowhere[:2], nowhere[0]])
    with pytest.raises(TypeError, match="list of databases"):
        Quorum(nowhere[0])
    with Quorum(nowhere) as quorum, pytest.raises(TypeError, match="no option"):
        quorum.lease("report", color="red")  # type: ignore[call-arg]
    with Quorum(nowhere, timeouts=PATIENT) as quorum, pytest.raises(Unavailable):
        quorum.lease("report", wait=0).acquire()


def test_the_same_tables_twice_are_refused(files: list[str]) -> None:
    same = files[0].replace("/a.db", "/./a.db")
    with Quorum([files[0], files[1], same]) as quorum, pytest.raises(ValueError, match="same set"):
        quorum.lease("report", wait=0).acquire()


def test_another_list_of_members_is_refused(
    quorum: Quorum, files: list[str], three: list[str], new_database: object, tmp_path: object
) -> None:

    with quorum.lease("report", ttl=LONG, wait=0):
        pass
    other = f"sqlite:///{tmp_path}/other.db"
    upgrade(other)
    with Quorum([*three[:2], other]) as wrong, pytest.raises(ValueError, match="another quorum"):
        wrong.lease("report", wait=0).acquire()
    assert [status.state for status in quorum.check()] == ["votes"] * 3
