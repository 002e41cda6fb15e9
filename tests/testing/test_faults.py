"""Each thing that can happen to a lock, told in all the ways in which it is in production."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from dblock import (
    Conflict,
    Danger,
    Lease,
    LockLost,
    Locks,
    NotAcquired,
    OutcomeUnknown,
    RateLimited,
    Semaphore,
    SharedLease,
    Unavailable,
)
from dblock.events import Kind, LockEvent, listen
from dblock.protocol import commands
from dblock.testing import Faults
from dblock.testing.wire import DOES, Unwired
from tests.support import SECONDS, Threads


def test_the_locks_are_real_ones(dblock_locks: Locks) -> None:
    with dblock_locks.lease("report", ttl=30) as lease:
        assert lease.fence == 1
        assert lease.remaining == pytest.approx(27, abs=0.01)
        assert dblock_locks.show("report").held
        assert not dblock_locks.lease("report", wait=0).acquire()
    with dblock_locks.row("report"):
        pass
    with dblock_locks.all(dblock_locks.lease("order"), dblock_locks.lease("import")):
        pass
    with dblock_locks.lease("report") as lease:
        assert lease.fence == 2


@pytest.mark.parametrize("end", ["expire", "take_over"])
def test_a_loss_is_told_in_all_ways(dblock_locks: Locks, dblock_faults: Faults, end: str) -> None:
    told: list[LockLost] = []
    events: list[LockEvent] = []
    stop = listen(events.append)
    lease = dblock_locks.lease("report", ttl=30, on_lost=told.append)
    other = dblock_locks.lease("other")
    other.acquire()

    def lose() -> None:
        with lease:
            lost = lease.lost
            getattr(dblock_faults, end)("report")
            assert not lease.held
            assert lease.remaining == 0.0
            assert lost.is_set()
            assert [loss.reason for loss in told] == ["expired"]
            with pytest.raises(LockLost):
                lease.check()

    with pytest.raises(LockLost, match="expired") as raised:
        lose()
    stop()
    assert raised.value is told[0]
    assert [event.kind for event in events if event.name == "report"] == [Kind.ACQUIRED, Kind.LOST]
    assert other.held


def test_who_takes_over_has_it(dblock_locks: Locks, dblock_faults: Faults) -> None:
    lease = dblock_locks.lease("report")
    lease.acquire()
    another = dblock_faults.take_over("report")
    assert another.held
    assert another.fence == 2
    with pytest.raises(NotAcquired, match="held by another process"):
        dblock_locks.lease("report", wait=0).__enter__()
    another.release()
    assert dblock_locks.lease("report", wait=0).acquire()


def test_a_lease_that_another_thread_took_is_lost_too(
    dblock_locks: Locks, dblock_faults: Faults, threads: Threads
) -> None:
    lease = dblock_locks.lease("report")
    assert threads.run(lease.acquire)
    dblock_faults.expire("report")
    with pytest.raises(LockLost):
        lease.check()


@pytest.mark.parametrize("method", ["expire", "take_over", "wanted_by_another"])
def test_what_nobody_holds_cannot_be_lost(
    dblock_locks: Locks, dblock_faults: Faults, method: str
) -> None:
    with pytest.raises(ValueError, match=r"nobody holds 'report'.*$"):
        getattr(dblock_faults, method)("report")
    with dblock_locks.lease("raport"), pytest.raises(ValueError, match="that are held: 'raport'"):
        getattr(dblock_faults, method)("report")


def test_what_the_test_holds_nobody_else_can(dblock_locks: Locks, dblock_faults: Faults) -> None:
    with dblock_locks.lease("report"), pytest.raises(ValueError, match="take_over"):
        dblock_faults.held_by_another("report")


def test_during_a_row_lock_nobody_else_can_write(
    dblock_locks: Locks, dblock_faults: Faults
) -> None:
    with (
        dblock_faults.held_by_another("report"),
        dblock_locks.row("order"),
        pytest.raises(RuntimeError, match="the one writer"),
    ):
        dblock_faults.expire("report")


def test_a_name_that_another_holds(dblock_locks: Locks, dblock_faults: Faults) -> None:
    with dblock_faults.held_by_another("report") as another:
        for wait in (0, 5):
            with pytest.raises(NotAcquired, match="another process") as raised:
                dblock_locks.lease("report", wait=wait).__enter__()
            assert raised.value.holder is not None
            assert raised.value.holder.owner == "another process"
        dblock_faults.advance(3600)  # it lives, and renews
        assert another.held
    with dblock_locks.lease("report", wait=0) as lease:
        assert lease.fence == 2


def test_another_gives_it_back_in_time(dblock_locks: Locks, dblock_faults: Faults) -> None:
    dblock_faults.held_by_another("report", seconds=3)
    assert not dblock_locks.lease("report", wait=2).acquire()
    with dblock_locks.lease("report", wait=2) as lease:
        assert lease.fence == 2


def test_another_dies(dblock_locks: Locks, dblock_faults: Faults) -> None:
    another = dblock_faults.held_by_another("report", ttl=10)
    another.die()
    assert not another.held
    assert not dblock_locks.lease("report", wait=9).acquire()
    assert dblock_locks.lease("report", wait=2).acquire()


def test_another_waits(dblock_locks: Locks, dblock_faults: Faults) -> None:
    with dblock_locks.lease("report"):
        another = dblock_faults.wanted_by_another("report")
        (waiter,) = dblock_locks.show("report").waiters
        assert waiter.owner == "another process"
        dblock_faults.advance(60)
        assert not another.held
    dblock_faults.advance(2)
    assert another.held
    with another:
        assert not dblock_locks.show("report").waiters
    assert dblock_locks.lease("report", wait=0).acquire()


def test_another_dies_waiting(dblock_locks: Locks, dblock_faults: Faults) -> None:
    with dblock_locks.lease("report"):
        another = dblock_faults.wanted_by_another("report")
        another.die()
    assert dblock_locks.show("report").waiters  # until it has given no sign of life for long
    assert not dblock_locks.lease("report", wait=0).acquire()  # its place is kept for a moment
    dblock_faults.advance(60)
    assert not dblock_locks.show("report").waiters
    assert not another.held
    assert dblock_locks.lease("report", wait=0).acquire()


def test_renewals_that_are_missed(dblock_locks: Locks, dblock_faults: Faults) -> None:
    dangers: list[Danger] = []
    losses: list[LockLost] = []
    lease = dblock_locks.lease("report", ttl=30, on_danger=dangers.append, on_lost=losses.append)
    other = dblock_locks.lease("other", ttl=30, on_danger=dangers.append)
    lease.acquire()
    other.acquire()
    with dblock_faults.miss_renewals("report"):
        dblock_faults.advance(19)
        assert not dangers
        dblock_faults.advance(2)
        assert [danger.name for danger in dangers] == ["report"]
        assert lease.held
    dblock_faults.advance(60)
    assert lease.held  # they arrived in time
    dblock_faults.miss_renewals("report")
    dblock_faults.advance(30)
    assert len(dangers) == 2
    assert [loss.reason for loss in losses] == ["expired"]
    assert not lease.held
    assert other.held


def test_unreachable(dblock_locks: Locks, dblock_faults: Faults) -> None:
    dangers: list[Danger] = []
    losses: list[LockLost] = []
    lease = dblock_locks.lease("report", ttl=30, on_danger=dangers.append, on_lost=losses.append)
    lease.acquire()
    with dblock_faults.unreachable():
        with pytest.raises(Unavailable):
            dblock_locks.lease("other", wait=5).acquire()
        dblock_faults.advance(15)
        assert len(dangers) == 1
        assert lease.held
    dblock_faults.advance(60)
    assert lease.held
    dblock_faults.unreachable()
    dblock_faults.advance(30)
    assert [loss.reason for loss in losses] == ["unreachable"]
    with pytest.raises(LockLost):
        lease.release()
    dblock_faults.reachable()
    assert dblock_locks.lease("report", wait=0).acquire()


def test_others_reach_the_database_meanwhile(dblock_locks: Locks, dblock_faults: Faults) -> None:
    lease = dblock_locks.lease("report", ttl=30)
    lease.acquire()
    another = dblock_faults.wanted_by_another("report")
    dblock_faults.unreachable()
    dblock_faults.advance(28)
    assert not lease.held
    assert not another.held  # the holder stopped believing before
    dblock_faults.advance(5)
    assert another.held


Break = Callable[[Faults], object]
BREAKS: dict[str, Break] = {
    "request": lambda faults: faults.lose_request("acquire"),
    "reply": lambda faults: faults.lose_reply("acquire"),
    "whichever": lambda faults: faults.lose_reply(),
}


@pytest.mark.parametrize("break_", BREAKS.values(), ids=BREAKS)
def test_a_lost_statement_is_settled(
    dblock_locks: Locks, dblock_faults: Faults, break_: Break
) -> None:
    break_(dblock_faults)
    with dblock_locks.lease("report", wait=0) as lease:
        assert (lease.fence, lease.held) == (1, True)
    break_(dblock_faults)
    with dblock_locks.row("order", wait=0):
        pass


def test_an_outcome_that_stays_unknown(dblock_locks: Locks, dblock_faults: Faults) -> None:
    dblock_faults.lose_reply("acquire", then_unreachable=True)
    with pytest.raises(OutcomeUnknown):
        dblock_locks.lease("report").acquire()
    dblock_faults.reachable()
    assert dblock_locks.show("report").held


def test_a_place_whose_statement_is_lost(dblock_locks: Locks, dblock_faults: Faults) -> None:
    rate = dblock_locks.rate("api", 3, per=60)
    for lose in (dblock_faults.lose_request, dblock_faults.lose_reply):
        lose("acquire")
        assert rate.acquire()  # it has asked again, and used one place up
    assert [rate.acquire(), rate.acquire()] == [True, False]
    dblock_faults.advance(20)
    dblock_faults.lose_reply("acquire", then_unreachable=True)
    with pytest.raises(OutcomeUnknown):
        rate.acquire()
    dblock_faults.reachable()
    assert not rate.acquire()
    dblock_faults.unreachable()
    with pytest.raises(Unavailable):
        rate.acquire()


def test_time_passes_for_a_place(dblock_locks: Locks, dblock_faults: Faults) -> None:
    rate = dblock_locks.rate("api", 1, per=60)
    assert rate.acquire()
    with pytest.raises(RateLimited) as refused, rate:
        pass
    assert refused.value.retry_after == pytest.approx(60)
    dblock_faults.advance(60)
    assert rate.acquire()
    assert rate.acquire(timeout=100)  # time passes while it waits
    assert not rate.acquire()


def test_a_lost_release(dblock_locks: Locks, dblock_faults: Faults) -> None:
    lease = dblock_locks.lease("report", wait=0)
    for lose in (dblock_faults.lose_request, dblock_faults.lose_reply):
        with lease:
            lose("release")
    row = dblock_locks.row("order")
    row.acquire()
    dblock_faults.lose_reply("release")
    with pytest.raises(LockLost):  # what a commit came to is not known
        row.release()


def test_a_lost_renewal(dblock_locks: Locks, dblock_faults: Faults) -> None:
    with dblock_locks.lease("report", ttl=30) as lease:
        dblock_faults.lose_reply("renew")
        dblock_faults.advance(60)
        lease.renew()


Make = Callable[[Locks], Lease | SharedLease | Semaphore]
MAKE: dict[str, Make] = {
    "lease": lambda locks: locks.lease("report", ttl=30, wait=0),
    "shared": lambda locks: locks.shared("report", ttl=30, wait=0),
    "semaphore": lambda locks: locks.semaphore("report", 2, ttl=30, wait=0),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize("beside", [False, True])
def test_each_kind_of_lease_loses_statements(
    dblock_locks: Locks, dblock_faults: Faults, threads: Threads, make: Make, beside: bool
) -> None:
    """Alone, and beside another that shares the name or has another slot."""
    wire = dblock_faults._process.wire
    another = make(dblock_locks)
    for lose in (dblock_faults.lose_request, dblock_faults.lose_reply):
        if beside and not isinstance(another, Lease):
            assert threads.start(another.acquire).result(SECONDS)
        lock = make(dblock_locks)
        for _ in range(2):  # the second one is of a name that is known
            lose("acquire")
            lock.acquire()
            assert not wire.losses
            lose("renew")
            dblock_faults.advance(11)
            assert not wire.losses
            lose("release")
            lock.release()
            assert not wire.losses
        if beside and not isinstance(another, Lease):
            another.release()


#: What is neither a grant nor a renewal nor a release.
OTHERS = {
    commands.LookAround,
    commands.SeeHidden,
    commands.LookAtSlots,
    commands.SetLimit,
    commands.Leave,
    commands.CallReaders,
    commands.WaitInServer,
    commands.UnlockAll,
    commands.Look,
    commands.LookQueued,
    commands.ListHeld,
    commands.ListRowLocks,
    commands.ReadWitness,
    commands.WriteWitness,
    commands.Distrust,
    commands.AnnounceTtl,
    commands.RecordTtl,
    commands.Create,
    commands.Begin,
    commands.Rollback,
    commands.Probe,
    commands.Savepoint,
    commands.UndoSavepoint,
    commands.EndSavepoint,
    commands.Guard,
    commands.Apply,
    commands.Unapply,
    commands.Gate,
    commands.ClaimOnce,
    commands.FinishOnce,
    commands.ForgetOnce,
    commands.Register,
    commands.Unregister,
    commands.Sweep,
    commands.ListWaiters,
    commands.ListBlocked,
    commands.ReadClock,
    commands.BeginRun,
    commands.EndRun,
    commands.ForgetRun,
    commands.ListRuns,
    commands.ListLastRuns,
    commands.ListHeldRuns,
    commands.PruneApplied,
    commands.PruneOnce,
    commands.PruneRuns,
    commands.LookForUnused,
    commands.RaiseFloor,
    commands.ReadMember,
    commands.WriteMember,
    commands.RaiseFences,
    commands.Stamp,
    commands.Retire,
    commands.PruneValues,
    commands.WriteValue,
    commands.ReadLeader,
    commands.CallObservers,
    commands.EndSession,
}


def test_what_every_statement_does_is_known() -> None:
    """One that nobody has thought of could not be lost, and no test would be told."""
    every = set(commands.Command.__subclasses__()) - {Unwired}
    assert every == DOES.keys() | OTHERS
    assert not DOES.keys() & OTHERS


def test_a_loss_that_never_happens() -> None:
    faults = Faults()
    faults.lose_reply("renew")
    with faults.locks.lease("report", wait=0):
        pass
    with pytest.raises(AssertionError, match=r"lose_reply\('renew'\): no such statement"):
        faults.__exit__(None, None, None)
    faults = Faults()
    faults.lose_reply()
    faults.__exit__(KeyError, KeyError(), None)  # the test's own failure is told


def test_no_such_statement(dblock_faults: Faults) -> None:
    with pytest.raises(ValueError, match="acquire, release, renew"):
        dblock_faults.lose_reply("look")  # type: ignore[arg-type]


def proves(lease: Lease, engine: Engine) -> bool:
    """Whether a lease is proved in a transaction of the application's."""
    with Session(engine) as session, session.begin(), lease.guard(session) as fence:
        return fence == lease.fence


def test_a_guard_that_fails(dblock_locks: Locks, dblock_faults: Faults, engine: Engine) -> None:
    lease = dblock_locks.lease("report")
    lease.acquire()
    assert proves(lease, engine)
    dblock_faults.fail_guard("report")
    lease.check()
    with pytest.raises(LockLost) as raised:
        proves(lease, engine)
    assert raised.value.reason == "forced"
    assert not lease.held
    with pytest.raises(LockLost):
        lease.release()


def test_a_guard_that_comes_too_late_for_its_snapshot(
    dblock_locks: Locks, dblock_faults: Faults, engine: Engine
) -> None:
    dblock_faults.fail_guard("report", conflict=True)
    with dblock_locks.lease("report") as lease:
        with pytest.raises(Conflict, match="Retry the whole transaction"):
            proves(lease, engine)
        assert proves(lease, engine)


def test_a_guard_of_a_lease_that_is_lost(
    dblock_locks: Locks, dblock_faults: Faults, engine: Engine
) -> None:
    lease = dblock_locks.lease("report")
    lease.acquire()
    dblock_faults.expire("report")
    with pytest.raises(LockLost):
        proves(lease, engine)


def test_a_forced_release_is_told_with_the_next_renewal(
    dblock_locks: Locks, dblock_faults: Faults
) -> None:
    losses: list[LockLost] = []
    lease = dblock_locks.lease("report", ttl=30, on_lost=losses.append)
    lease.acquire()
    dblock_locks.release("report", force=True)
    assert lease.held
    dblock_faults.advance(10)
    assert [loss.reason for loss in losses] == ["forced"]
    assert not lease.held


def test_a_handover(dblock_locks: Locks, dblock_faults: Faults) -> None:
    with dblock_locks.lease("report", ttl=30) as lease:
        fence, text = lease.fence, lease.detach(ttl=60)
    dblock_faults.advance(40)
    dblock_faults.lose_reply("acquire")
    with dblock_locks.attach(text, ttl=30) as taken:
        assert taken.fence == fence
        dblock_faults.advance(100)
        taken.check()
        text = taken.detach(ttl=60)
    dblock_faults.lose_reply("acquire", then_unreachable=True)
    with pytest.raises(OutcomeUnknown):
        dblock_locks.attach(text).acquire()


def test_a_handover_that_comes_too_late(dblock_locks: Locks, dblock_faults: Faults) -> None:
    with dblock_locks.lease("report", ttl=30) as lease:
        text = lease.detach(ttl=60)
    dblock_faults.advance(61)
    with pytest.raises(LockLost) as raised:
        dblock_locks.attach(text).acquire()
    assert raised.value.reason == "expired"
