"""The danger and the loss of a held lease are told in time, whatever hangs (promise 8)."""

from __future__ import annotations

import logging
import threading
from weakref import ref

import pytest
from sqlalchemy.engine import Engine

from dblock import Danger, LockLost, Locks, NotHeld
from dblock.holding.keeper import Keeper, warn
from dblock.io.runtime import Event
from dblock.protocol.faults import Fault, StatementError
from tests.contract.renewals import TTL, Renewals, Told, latch, moved
from tests.support import LONG, SECONDS, Threads, eventually, expire
from tests.worlds.behind import inside
from tests.worlds.world import World

# --- lost --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["forced", "expired and taken", "expired"])
def test_it_is_told_unprompted(locks: Locks, others: Locks, engine: Engine, how: str) -> None:
    told = Told()
    lease = locks.lease("report", ttl=TTL, on_lost=told)
    assert lease.acquire()
    lost = lease.lost
    if how == "forced":
        others.release("report", force=True)
    else:
        expire(engine, locks, "report")
    if how == "expired and taken":
        assert others.lease("report", ttl=LONG, wait=SECONDS).acquire() or lost.is_set()
    assert lost.wait(SECONDS)
    eventually(lambda: len(told.all) == 1)
    reasons = {"expired and taken": ["forced", "expired"]}  # or the renewal came between
    assert told.losses[0] in reasons.get(how, [how])
    assert told.threads == {"dblock callbacks"}
    assert not lease.held
    for use in (lease.check, lease.release):
        with pytest.raises(LockLost) as caught:
            use()
        assert caught.value is told.all[0]
    with pytest.raises(NotHeld):
        lease.release()


def test_danger_then_loss_then_another_holder(
    locks: Locks, others: Locks, threads: Threads
) -> None:
    order: list[str] = []
    dangers: list[Danger] = []

    def on_danger(danger: Danger) -> None:
        dangers.append(danger)
        order.append("danger" if lease.held else "danger, too late")

    lease = locks.lease(
        "report",
        ttl=2 * TTL,
        renew=False,
        on_danger=on_danger,
        on_lost=lambda loss: order.append(loss.reason),
    )
    assert lease.acquire()
    fence = lease.fence

    def rival() -> None:
        with others.lease("report", ttl=LONG, wait=SECONDS):
            order.append("another")

    threads.start(rival).result(SECONDS)
    assert order == ["danger", "expired", "another"]
    (danger,) = dangers
    assert (danger.name, danger.fence) == ("report", fence)
    assert 0 < danger.remaining <= 2 * TTL * (0.9 - 2 / 3)
    assert danger.cause == "it is not renewed (renew=False)"


def test_unreachable(locks: Locks, renewals: Renewals) -> None:
    told = Told()

    def fail() -> None:
        raise StatementError(Fault.UNREACHABLE, "connection refused, as if")

    renewals.before = fail
    lease = locks.lease("report", ttl=TTL, on_danger=told, on_lost=told)
    assert lease.acquire()
    assert lease.lost.wait(SECONDS)
    eventually(lambda: len(told.all) == 2)
    assert [danger.cause for danger in told.dangers] == ["connection refused, as if"]
    assert told.losses == ["unreachable"]
    assert len(renewals.sizes) > 1  # it was tried again in between


def hangs(locks: Locks, renewals: Renewals, when: str) -> None:
    told = Told()
    with latch() as hanging:
        setattr(renewals, when, hanging)
        lease = locks.lease("report", ttl=TTL, on_danger=told, on_lost=told)
        assert lease.acquire()
        lost, hold = lease.lost, inside(lease)._holds.find()
        assert hold is not None
        term = hold.lease.term
        assert hanging.reached.wait(SECONDS)
        assert lost.wait(SECONDS)
        eventually(lambda: len(told.all) == 2)
        assert told.losses == ["unreachable"]
        assert not lease.held
    eventually(lambda: not hold.renewing)
    assert hold.lease.term is term
    assert not lease.held
    assert lease.remaining == 0.0
    with pytest.raises(LockLost):
        lease.renew()
    with pytest.raises(LockLost):
        lease.check()


def test_the_loss_is_told_in_time_while_a_renewal_hangs(locks: Locks, renewals: Renewals) -> None:
    hangs(locks, renewals, "before")


def test_an_answer_that_comes_late_revives_nothing(locks: Locks, renewals: Renewals) -> None:
    hangs(locks, renewals, "after")


def test_what_the_holder_can_see_needs_no_keeper(
    locks: Locks, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    class Idle(Keeper):
        def keep(self, hold: object) -> None:
            pass

    world.use_keeper(monkeypatch, Idle)
    told = Told()
    lease = locks.lease("report", ttl=TTL, on_lost=told)
    assert lease.acquire()
    eventually(lambda: not lease.held)
    assert lease.remaining == 0.0
    assert told.all == []
    with pytest.raises(LockLost, match="expired"):
        lease.check()
    assert told.threads == {threading.current_thread().name}
    assert lease.lost.is_set()


def test_a_coroutine_function_is_no_callback() -> None:
    async def callback(loss: LockLost) -> None: ...

    with (
        Locks("sqlite:////nowhere/file") as locks,
        pytest.raises(TypeError, match="nobody would await it"),
    ):
        locks.lease("report", on_lost=callback)  # type: ignore[arg-type] # what is tested


# --- callbacks ---------------------------------------------------------------------------------


def test_a_callback_that_fails_harms_nobody(
    locks: Locks, others: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(loss: LockLost) -> None:
        raise KeyError("of the callback")

    failing = locks.lease("a", ttl=TTL, renew=False, on_danger=fail, on_lost=fail)  # type: ignore[arg-type]
    assert failing.acquire()
    told = Told()
    fine = locks.lease("b", ttl=TTL, renew=False, on_lost=told)
    assert fine.acquire()
    assert failing.lost.wait(SECONDS)
    eventually(lambda: told.losses == ["expired"])
    # In the user's own thread too: what is told is the loss.
    with caplog.at_level(logging.ERROR, "dblock"), locks.lease("c", on_lost=fail) as lease:
        others.release("c", force=True)
        with pytest.raises(LockLost):
            lease.renew()
        assert lease.acquire()
    eventually(lambda: caplog.text.count("of the callback") >= 3)


def test_a_callback_that_blocks_harms_nobody(locks: Locks, others: Locks, engine: Engine) -> None:
    with latch() as blocking:
        first = locks.lease("a", ttl=TTL, renew=False, on_danger=lambda danger: blocking())
        kept = locks.lease("b", ttl=3 * TTL)  # a busy machine is no reason to lose it
        assert first.acquire()
        assert kept.acquire()
        assert blocking.reached.wait(SECONDS)
        assert first.lost.wait(SECONDS)  # told in time
        for _ in range(3):
            eventually(moved(engine, locks, "b"))
        kept.release()


def test_lost_is_set_for_all_before_anybody_is_called(locks: Locks, world: World) -> None:
    events: list[Event] = []
    seen: list[list[bool]] = []
    leases = [
        locks.lease(
            f"report {number}",
            ttl=TTL,
            renew=False,
            on_lost=lambda loss: seen.append([event.is_set() for event in events]),
        )
        for number in range(3)
    ]
    for lease in leases:
        assert lease.acquire()
    holds = [inside(lease)._holds.find() for lease in leases]
    term = holds[0].lease.term  # type: ignore[union-attr]
    for hold in holds:
        assert hold is not None
        world.keeper().moved(hold, term)  # all at one moment
    events += [lease.lost for lease in leases]
    eventually(lambda: len(seen) == 3)
    assert seen == [[True] * 3] * 3


def test_no_danger_is_told_of_what_was_given_back(locks: Locks) -> None:
    """The callbacks run one after the other, so its turn may come after the release."""
    told: list[Danger] = []
    lease = locks.lease("report", ttl=LONG, on_danger=told.append)
    assert lease.acquire()
    hold = inside(lease)._current()
    assert hold is not None
    lease.release()
    warn(ref(hold), Danger("report", 1, 1.0, None))
    assert not told
