"""Shared handles: a hold is released by one, lost once, and renewed by one at a time."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from dblock import Lease, LockLost, NotHeld, RowLock
from dblock.holding.callers import ThreadHolds
from dblock.holding.handle_holds import HandleHolds
from dblock.holding.holds import Hold, RowHold
from dblock.holding.lease_hold import LeaseHold
from dblock.io.driver import OwnTransaction

from .exploring import scenario
from .leases import Leases
from .scheduler import Run
from .standard import RunRuntime

RELEASING = (HandleHolds, LeaseHold, Lease._release, Lease._end, Lease._give_back)


@scenario(*RELEASING)
def released_by_two(run: Run) -> None:
    """One of them has released it, the other is told that there was nothing to release."""
    leases = Leases(run)
    lease = leases.unkept()
    outcomes: list[str] = []

    def release() -> None:
        try:
            lease.release()
        except NotHeld:
            outcomes.append("not held")
        else:
            outcomes.append("released")

    for name in ("one", "two"):
        run.start(name, release, alike=lease)
    run.go()
    assert sorted(outcomes) == ["not held", "released"]
    assert not lease.held
    assert not lease.locked()
    assert len(leases.keeper) == 0


@scenario(HandleHolds)
def each_has_its_own(run: Run) -> None:
    """Two threads hold by one handle: each finds and releases its own."""
    holds: HandleHolds[Hold] = HandleHolds("lease", "name", ThreadHolds())
    ended: list[Hold] = []

    def hold() -> None:
        mine = Hold("name", RunRuntime(run), run.now)
        holds.add(mine)
        run.expect(holds.find() is mine, "it finds another's hold")
        found = holds.get(ending=True)
        run.expect(found is mine, "it releases another's hold")
        run.expect(holds.take(found), "its hold was released by another")
        ended.append(found)

    for name in ("one", "two"):
        run.start(name, hold, alike=holds)
    run.go()
    assert len(ended) == 2
    assert holds.find() is None


@scenario(HandleHolds)
def put_back(run: Run) -> None:
    """One that could not be released is there for another try, by anybody."""
    holds: HandleHolds[Hold] = HandleHolds("lease", "name", ThreadHolds())
    holds.add(Hold("name", RunRuntime(run), run.now))
    ended: list[Hold] = []

    def release(fails: bool) -> None:
        while not ended:
            hold = holds.find()
            if hold is None or not holds.take(hold):
                run.wait(lambda: bool(holds._holds or ended))
            elif fails:
                holds.put_back(hold)
                return
            else:
                ended.append(hold)

    run.start("one", partial(release, fails=True))
    run.start("two", partial(release, fails=False))
    run.go()
    assert len(ended) == 1
    assert holds.find() is None


@scenario(Hold, LeaseHold)
def lost_by_two(run: Run) -> None:
    """The first loss counts, and whoever waits for it is told."""
    leases = Leases(run)
    hold = leases.unkept()._current()
    assert hold is not None
    first: list[LockLost] = []

    def lose(loss: LockLost) -> None:
        if hold.lose(loss):
            first.append(loss)

    def wait() -> None:
        lost = hold.lost
        lost.wait()
        run.expect(hold.loss is not None, "it is told before it is known")

    for reason in ("expired", "forced"):
        run.start(reason, partial(lose, LockLost("", name="name", reason=reason)))
    run.start("user", wait)
    run.go()
    assert first == [hold.loss]
    assert hold.lost.is_set()


@scenario(*RELEASING, Hold, Lease.renew, Lease.check, Lease._lose, preemptions=1, early=False)
def used_while_released(run: Run) -> None:
    """One renews and checks what another gives back: it may be told that it has none, and nothing
    is lost."""
    leases = Leases(run)
    lease = leases.unkept()
    lost = lease.lost

    def use() -> None:
        with suppress(NotHeld):
            lease.renew()
            lease.check()

    run.start("user", use)
    run.start("other", lease.release)
    run.go()
    assert not leases.told
    assert not lost.is_set()
    assert not lease.locked()


class Checked(OwnTransaction):
    """The transaction of a row lock, on a connection that two may not use at the same time."""

    def __init__(self, run: Run) -> None:
        self._run, self._used, self._connection = run, False, None

    def check(self) -> None:
        self._run.expect(not self._used, "two use the connection at the same time")
        self._used = True
        self._run.pause("asking")
        self._used = False

    finish = check


@scenario(Hold, HandleHolds, RowLock._release, RowLock.check, early=False)
def checked_while_released(run: Run) -> None:
    """One checks the row lock that another gives back."""
    leases = Leases(run)
    row = leases.locks.row(f"{id(run)}")
    hold = RowHold(row.name, RunRuntime(run), run.now, transaction=Checked(run))
    row._holds.add(hold)

    def check() -> None:
        with suppress(NotHeld):
            row.check()

    run.start("user", check)
    run.start("other", row.release)
    run.go()
    assert hold.loss is None
    assert not row.held


@scenario(Hold, LeaseHold, early=False)
def renewed_by_two(run: Run) -> None:
    """One renewal at a time; and none, once a release goes on."""
    leases = Leases(run)
    hold = leases.unkept()._current()
    assert hold is not None
    renewals: list[str] = []

    def renew(name: str) -> None:
        with hold.renewed_here(10.0):
            renewals.append(name)
            run.expect(len(renewals) == 1, "two renew it at the same time")
            run.pause("renewing")
            renewals.remove(name)

    def end() -> None:
        hold.end(10.0, 0.0)
        run.expect(not renewals, "it is given back while it is renewed")

    for name in ("one", "two"):
        run.start(name, partial(renew, name), alike=hold)
    run.start("three", end)
    run.go()
