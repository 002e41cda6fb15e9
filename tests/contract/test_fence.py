"""Fences only grow, in the order of the holds, whatever ended the hold before."""

from __future__ import annotations

import threading
from itertools import pairwise

from sqlalchemy.engine import Engine

from tests.contract.conftest import NewLocks
from tests.support import EAGER, LONG, Threads, blocked, expire, lock_row


def test_over_release_takeover_force_and_new_locks(new_locks: NewLocks, engine: Engine) -> None:
    fences = []
    for _ in range(3):
        locks = new_locks()  # another program, as far as the database can tell
        with locks.lease("report", ttl=LONG) as released:
            fences.append(released.fence)
        forced = locks.lease("report", ttl=LONG)
        assert forced.acquire()
        fences.append(forced.fence)
        locks.release("report", force=True)
        lapsed = new_locks().lease("report", ttl=LONG)
        assert lapsed.acquire()
        fences.append(lapsed.fence)
        expire(engine, locks, "report")
        with new_locks().row("report"):  # which has no fence, and disturbs none
            pass
        assert lock_row(engine, locks, "report").fence == fences[-1]
    assert fences == list(range(1, 10))


def test_it_is_that_of_the_hold(new_locks: NewLocks, engine: Engine) -> None:
    locks = new_locks()
    first, second = locks.lease("report", ttl=LONG), new_locks().lease("report", ttl=LONG)
    assert first.acquire()
    expire(engine, locks, "report")
    assert second.acquire()
    assert first.fence < second.fence == lock_row(engine, locks, "report").fence
    second.renew()
    assert lock_row(engine, locks, "report").fence == second.fence


def test_names_have_fences_of_their_own(new_locks: NewLocks) -> None:
    locks = new_locks()
    for fence in (1, 2, 3):
        with locks.lease("a", ttl=LONG) as a:
            assert a.fence == fence
    with locks.lease("b", ttl=LONG) as b:
        assert b.fence == 1


def test_a_refused_try_takes_none(new_locks: NewLocks) -> None:
    holders, others = new_locks(), new_locks()
    with holders.lease("report", ttl=LONG) as lease:
        fence = lease.fence
        for _ in range(20):
            assert not others.lease("report").acquire(blocking=False)
    with others.lease("report", ttl=LONG) as later:
        assert later.fence == fence + 1


def test_in_the_order_of_the_grants(new_locks: NewLocks, engine: Engine, threads: Threads) -> None:
    """Tries begin early and are granted late, behind one another and behind a locked row.

    A number drawn when a try begins would be out of order: trap 4 of the field notes.
    """
    workers, holds = 8, 20
    programs = [new_locks(retry=EAGER) for _ in range(workers)]
    with programs[0].lease("report", ttl=LONG) as first:
        fences = [first.fence]  # appended to by the holder alone
    together = threading.Barrier(workers + 1)
    done = threading.Event()

    def work(number: int) -> None:
        together.wait(LONG)
        for _ in range(holds):
            with programs[number].lease("report", ttl=LONG) as lease:
                fences.append(lease.fence)

    def disturb() -> None:
        while not done.is_set():
            with blocked(engine, programs[0], "report"):
                done.wait(0.02)
            done.wait(0.02)

    with blocked(engine, programs[0], "report"):
        workings = [threads.start(work, number) for number in range(workers)]
        together.wait(LONG)
        threading.Event().wait(0.1)  # all have begun, none is granted
        assert len(fences) == 1
    disturbing = threads.start(disturb)
    try:
        for working in workings:
            working.result(120)
    finally:
        done.set()
    disturbing.result(LONG)
    assert len(fences) == 1 + workers * holds
    assert all(earlier < later for earlier, later in pairwise(fences))
