"""The keeper: what is kept is looked at in time, and what is dropped is left alone."""

from __future__ import annotations

import contextlib

from dblock import Danger, Lease, LockLost
from dblock.holding.keeper import Keeper
from dblock.holding.lease_hold import LeaseHold

from .exploring import scenario
from .leases import Leases
from .scheduler import Run

KEEPER = (Keeper, LeaseHold, Lease.renew, Lease._end, Lease._give_back, Lease._lose)
MOMENT = 0.01


def told_in_order(leases: Leases) -> None:
    """What the holder of one lease was told: a danger once, a loss once, and then no more."""
    kinds = [type(one) for one in leases.told]
    assert kinds in ([], [Danger], [LockLost], [Danger, LockLost]), kinds


@scenario(*KEEPER, preemptions=1, early=False)
def two_are_kept(run: Run) -> None:
    """Two are taken at the same time, one of which is due soon."""
    leases = Leases(run)
    run.idle = leases.idle
    long, short = leases.lease(30.0), leases.lease(1.5)

    def hold(lease: Lease) -> None:
        with lease:
            run.sleep(0.6)

    run.start("long", lambda: hold(long))
    run.start("short", lambda: hold(short))
    run.go()
    assert len(leases.keeper) == 0
    assert not leases.told


@scenario(*KEEPER, preemptions=1, early=False)
def released_while_renewed(run: Run) -> None:
    """It is released in the moment in which its renewal is due."""
    leases = Leases(run)
    run.idle = leases.idle
    lease = leases.held(1.0 - MOMENT, ttl=3.0)
    hold = lease._current()
    assert hold is not None

    def release() -> None:
        run.sleep(MOMENT)
        lease.release()
        run.expect(not hold.renewing, "it is renewed after its release")
        run.expect(not lease.locked(), "it was renewed after its release")

    run.start("user", release)
    run.go()
    assert not lease.locked()
    assert not leases.told
    assert len(leases.keeper) == 0


@scenario(*KEEPER, preemptions=1, early=False)
def moved_while_renewed(run: Run) -> None:
    """The holder renews it, for less time, in the moment in which its renewal is due."""
    leases = Leases(run)
    run.idle = leases.idle
    lease = leases.held(10.0 - MOMENT)

    def renew() -> None:
        run.sleep(MOMENT)
        lease.renew(1.5)
        run.sleep(0.6)
        lease.release()

    run.start("user", renew)
    run.go()
    assert not leases.told
    assert len(leases.keeper) == 0


@scenario(*KEEPER, preemptions=1, early=False)
def forced_while_renewed(run: Run) -> None:
    """It is taken from its holder in the moment in which its renewal is due."""
    leases = Leases(run)
    run.idle = leases.idle
    lease = leases.held(1.0 - MOMENT, ttl=3.0)

    def force() -> None:
        run.sleep(MOMENT)
        leases.locks.release(lease.name, force=True)
        lease.lost.wait()
        with contextlib.suppress(LockLost):
            lease.release()
            run.expect(False, "what was lost is released")

    run.start("user", force)
    run.go()
    assert [type(one) for one in leases.told] == [LockLost]
    assert len(leases.keeper) == 0


@scenario(*KEEPER, preemptions=1)
def runs_out_while_released(run: Run) -> None:
    """It is released in the moment in which it is over."""
    leases = Leases(run)
    lease = leases.held(27.0 - MOMENT, renew=False)
    lost = lease.lost

    def release() -> None:
        run.sleep(MOMENT)
        try:
            lease.release()
        except LockLost:
            run.expect(lost.is_set(), "its loss is told late")
        else:
            run.expect(False, "what has run out is released")

    run.start("user", release)
    run.go()
    told_in_order(leases)
    assert sum(type(one) is LockLost for one in leases.told) == 1
    assert len(leases.keeper) == 0


@scenario(*KEEPER, Lease.check, preemptions=1)
def runs_out_while_checked(run: Run) -> None:
    """Its holder finds out itself in the moment in which it is to be told."""
    leases = Leases(run)
    lease = leases.held(27.0 - MOMENT, renew=False)

    def check() -> None:
        run.sleep(MOMENT)
        with contextlib.suppress(LockLost):
            lease.check()
            run.expect(False, "what has run out is held")

    run.start("user", check)
    run.go()
    told_in_order(leases)
    assert sum(type(one) is LockLost for one in leases.told) == 1
    assert len(leases.keeper) == 0


@scenario(*KEEPER, preemptions=1)
def endangered_while_lost(run: Run) -> None:
    """A renewal finds that it was lost in the moment in which its holder is told of the danger."""
    leases = Leases(run)
    lease = leases.held(20.0 - MOMENT)
    leases.locks.release(lease.name, force=True)
    run.go()
    told_in_order(leases)
    assert lease.lost.is_set()
    assert len(leases.keeper) == 0
