"""A held lease is renewed, and its danger and loss are told, without anybody asking (promise 8)."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from dblock import Danger, Lease, LockLost, Locks, Timeouts, Unavailable
from dblock.dialects.query import Query
from dblock.holding.keeper import Keeper, WorkerMaker
from dblock.holding.worker import Worker
from dblock.io.runtime import Runtime
from dblock.protocol import commands
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.lease import Held
from dblock.protocol.renew import Asked, RenewalFailed, renew_all
from dblock.protocol.schedule import Plan
from dblock.protocol.state import Renewal
from dblock.protocol.steps import Execute, Procedure, Reply
from dblock.protocol.term import Term
from dblock.system import clock
from tests.conftest import SERVERS
from tests.contract.conftest import NewLocks
from tests.contract.renewals import TTL, Renewals, Told, latch, moved
from tests.contract.sessions import away
from tests.support import LONG, ROUNDING, SECONDS, Threads, blocked, eventually, expire, lock_row
from tests.worlds.behind import inside, run
from tests.worlds.world import World

# --- renewed -----------------------------------------------------------------------------------


def test_it_outlives_its_ttl(locks: Locks, others: Locks, engine: Engine) -> None:
    told = Told()
    with locks.lease("report", ttl=TTL, on_danger=told, on_lost=told) as lease:
        fence, token = lease.fence, lease.token
        for _ in range(5):
            eventually(moved(engine, locks, "report"))
            lease.check()
            assert not others.lease("report").acquire(blocking=False)
        assert (lease.fence, lease.token) == (fence, token)
        assert not lease.lost.is_set()
    assert not others.lease("report").locked()
    # A busy machine may have renewed it late, but then that was told, and nothing worse.
    assert all(isinstance(one, Danger) for one in told.all)


def test_it_is_renewed_as_often_as_asked_for(locks: Locks, engine: Engine) -> None:
    """Without renew_every it would be renewed in eight hours."""
    with locks.lease("report", ttl=24 * 3600, renew_every=0.1) as lease:
        for _ in range(4):
            eventually(moved(engine, locks, "report"))
            lease.check()
        assert lease.renew_every == 0.1


def test_many_are_renewed_together(locks: Locks, engine: Engine, renewals: Renewals) -> None:
    count = 30
    leases = [locks.lease(f"report {number}", ttl=15 * TTL) for number in range(count)]
    with latch() as held_up:
        renewals.before = held_up
        for lease in leases:
            assert lease.acquire()
        assert held_up.reached.wait(SECONDS)
        # By then all are due.
        threading.Event().wait(2 * TTL)
        have_moved = [moved(engine, locks, lease.name) for lease in leases]
        renewals.before = lambda: None
    eventually(lambda: all(has_moved() for has_moved in have_moved))
    assert sum(renewals.sizes[:2]) >= count
    for lease in leases:
        lease.release()


def test_an_error_that_passes_is_survived(locks: Locks, engine: Engine, renewals: Renewals) -> None:
    told = Told()
    failures = iter([Fault.UNREACHABLE, Fault.CANCELED, Fault.REFUSED])

    def fail() -> None:
        for fault in failures:
            raise StatementError(fault, "as if")

    renewals.before = fail
    with locks.lease("report", ttl=2 * TTL, on_lost=told) as lease:
        eventually(moved(engine, locks, "report"))
        assert len(renewals.sizes) >= 4
        lease.check()
    assert told.all == []


def test_a_defect_is_logged_and_survived(
    locks: Locks, engine: Engine, renewals: Renewals, caplog: pytest.LogCaptureFixture
) -> None:
    defects = iter([KeyError("a defect")])

    def fail() -> None:
        for defect in defects:
            raise defect

    renewals.before = fail
    with locks.lease("report", ttl=2 * TTL) as lease:
        eventually(moved(engine, locks, "report"))
        lease.check()
    assert "a defect" in caplog.text


@pytest.mark.parametrize(
    ("world", "db"), [("threads", "postgresql"), ("asyncio", "mariadb")], indirect=True
)
def test_a_busy_row_does_not_keep_the_others_from_renewal(locks: Locks, engine: Engine) -> None:
    leases = [locks.lease(f"report {number}", ttl=4 * TTL) for number in range(5)]
    for lease in leases:
        assert lease.acquire()
    busy = leases.pop(2)
    with blocked(engine, locks, busy.name):
        for _ in range(2):
            have_moved = [moved(engine, locks, lease.name) for lease in leases]
            eventually(lambda: all(has_moved() for has_moved in have_moved))  # noqa: B023
    for lease in leases:
        lease.release()
    with contextlib.suppress(LockLost):
        busy.release()


@pytest.mark.parametrize("db", SERVERS, indirect=True)
def test_one_busy_row_is_the_only_one_missed(locks: Locks, engine: Engine) -> None:
    """In the batch itself: the keeper tries each of the others again, by then without it."""
    leases = held(locks, 5)
    with blocked(engine, locks, leases[2].name):
        outcomes = renewed(locks, leases)
    assert outcomes == [Term, Term, RenewalFailed, Term, Term]
    for lease in leases:
        lease.release()


def test_one_that_was_lost_is_the_only_one_not_renewed(
    locks: Locks, others: Locks, engine: Engine
) -> None:
    leases = held(locks, 3)
    expire(engine, locks, leases[1].name)
    assert others.lease(leases[1].name).acquire()
    assert renewed(locks, leases) == [Term, LockLost, Term]
    for lease in (leases[0], leases[2]):
        lease.release()


@pytest.mark.parametrize("db", ["mariadb"], indirect=True)
def test_a_row_that_is_busy_after_its_renewal(
    locks: Locks, engine: Engine, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has waited for the row gets it with the commit. What is asked then locks nothing."""
    (lease,) = held(locks, 1)
    renew = commands.Renew((Renewal(lease.name, lease.token, 2 * LONG),))
    query, updated = locks._database.dialect.query, "WHERE expires_at > SYSDATE(6);"
    assert query(renew).sql.count(updated) == 1

    def waiting(command: commands.Command[Any]) -> Query[Any]:
        found = query(command)
        sql = found.sql.replace(updated, f"{updated} DO GET_LOCK('gate', 60);")
        return found._replace(sql=sql) if command == renew else found

    def renewal() -> Procedure[dict[str, int | None]]:
        reply: Reply[dict[str, int | None]] = yield Execute(renew)
        return reply.answer

    monkeypatch.setattr(locks._database.dialect, "query", waiting)

    has_moved = moved(engine, locks, lease.name)
    with engine.connect() as gate:
        assert gate.scalar(text("SELECT GET_LOCK('gate', 0)")) == 1
        renewing = threads.start(run, locks, renewal())
        eventually(has_moved)
        with blocked(engine, locks, lease.name):
            gate.execute(text("DO RELEASE_LOCK('gate')"))
            assert renewing.result(LONG) == {lease.token: 1}
    lease.release()


def held(locks: Locks, number: int) -> list[Lease]:
    leases = [locks.lease(f"report {index}", ttl=LONG) for index in range(number)]
    for lease in leases:
        assert lease.acquire()
    return leases


def renewed(locks: Locks, leases: Sequence[Lease]) -> list[type]:
    """Renew them in one batch; return what came of each."""
    term = Term(clock.now(), LONG)
    asked = [
        Asked(Renewal(lease.name, lease.token, LONG), Held(lease.fence, term)) for lease in leases
    ]
    outcomes, _ = run(locks, renew_all(locks._database.dialect, asked))
    return [type(outcome) for outcome in outcomes]


# --- given back --------------------------------------------------------------------------------


def test_a_release_waits_for_the_renewal_under_way(
    locks: Locks, others: Locks, renewals: Renewals, threads: Threads
) -> None:
    lease = locks.lease("report", ttl=LONG)
    with latch() as held_up:
        renewals.before = held_up
        own = inside(lease)
        own._options = own._options._replace(plan=Plan(3 * TTL))
        assert lease.acquire()
        assert held_up.reached.wait(SECONDS)
        releasing = threads.start(lambda: threads.run(lease.release))
        threading.Event().wait(TTL / 4)
        assert not releasing.done()
        assert others.show("report").held
    releasing.result(SECONDS)
    assert not others.show("report").held
    count = len(renewals.sizes)
    assert count == 1


def test_a_release_does_not_wait_for_ever_and_is_not_undone(
    new_locks: NewLocks, others: Locks, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = new_locks(timeouts=Timeouts(query=0.2, socket=0.4))
    renewals, lease = Renewals(locks, monkeypatch), locks.lease("report", ttl=3 * TTL)
    with latch() as hanging:
        renewals.before = hanging
        assert lease.acquire()
        assert hanging.reached.wait(SECONDS)
        lease.release()
        assert not others.show("report").held
        with others.lease("report", ttl=LONG):
            before = lock_row(engine, locks, "report")
            heard = threading.Event()
            renewals.after = heard.set
            hanging.open.set()
            assert heard.wait(SECONDS)
            assert lock_row(engine, locks, "report") == before
    assert not lease.held


def test_a_release_that_failed_is_not_renewed(
    locks: Locks, others: Locks, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be tried again, and meanwhile runs out."""
    lease = locks.lease("report", ttl=2 * TTL)
    assert lease.acquire()
    with away(monkeypatch), pytest.raises(Unavailable):
        lease.release()
    assert not lease.held
    assert others.lease("report", ttl=LONG, wait=SECONDS).acquire()
    with pytest.raises(LockLost):
        lease.release()


def test_a_lease_whose_handle_is_dropped_runs_out(locks: Locks, others: Locks) -> None:
    lease = locks.lease("report", ttl=TTL)
    assert lease.acquire()
    del lease
    gc.collect()
    assert others.lease("report", ttl=LONG, wait=SECONDS).acquire()


def test_closed_locks_renew_nothing(new_locks: NewLocks, others: Locks) -> None:
    told = Told()
    locks = new_locks()
    lease = locks.lease("report", ttl=3 * TTL, on_danger=told, on_lost=told)
    assert lease.acquire()
    locks.close()
    assert lease.lost.wait(SECONDS)
    eventually(lambda: len(told.all) == 2)
    (danger,) = told.dangers
    assert danger.cause == "its Locks were closed"
    assert told.losses == ["expired"]
    assert others.lease("report", ttl=LONG, wait=SECONDS).acquire()


# --- limits ------------------------------------------------------------------------------------


def test_at_most_so_many_renewals(locks: Locks, engine: Engine, renewals: Renewals) -> None:
    lease = locks.lease("report", ttl=2 * TTL, max_renewals=2)
    assert lease.acquire()
    assert lease.lost.wait(SECONDS)
    assert renewals.sizes == [1, 1]
    with pytest.raises(LockLost, match="renewed 2 times") as caught:
        lease.check()
    assert caught.value.reason == "expired"


def test_never_held_longer(locks: Locks, engine: Engine, renewals: Renewals) -> None:
    """By the server's clock it is later by what a renewal takes to get there, at most."""
    sent, took = list[float](), list[float]()
    renewals.before = lambda: sent.append(clock.now())
    renewals.after = lambda: took.append(clock.now() - sent[-1])
    lease = locks.lease("report", ttl=2 * TTL, max_hold=4 * TTL)
    assert lease.acquire()
    assert lease.lost.wait(SECONDS)
    row = lock_row(engine, locks, "report")
    assert row.expires_at is not None
    assert row.acquired_at is not None
    held = (row.expires_at - row.acquired_at).total_seconds()
    assert 2 * TTL < held <= 4 * TTL + max(took) + ROUNDING
    with pytest.raises(LockLost, match="held for 4 s"):
        lease.check()


def test_held_shorter_than_its_ttl(locks: Locks, engine: Engine) -> None:
    with locks.lease("report", ttl=LONG, max_hold=2.5) as lease:
        assert lease.remaining <= 2.5
        lease.renew(LONG)
        assert lease.remaining <= 2.5


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"renew": 1}, TypeError, "renew is True or False"),
    ({"renew": None}, TypeError, "renew is True or False"),
    ({"ttl": 30, "renew_every": 15.1}, ValueError, "at most half of the TTL of 30 s"),
    ({"renew_every": 0.01}, ValueError, "renew_every is at least 0.05 s"),
    ({"renew_every": True}, TypeError, "renew_every"),
    ({"renew_every": 5, "renew": False}, ValueError, "does nothing with renew=False"),
    ({"max_renewals": -1}, ValueError, "max_renewals is between 0 and"),
    ({"max_renewals": 1.5}, TypeError, "max_renewals is an int, not float"),
    ({"max_renewals": True}, TypeError, "max_renewals is an int, not bool"),
    ({"max_hold": 0.01}, ValueError, r"max_hold is at least 0\.1 seconds"),
    ({"max_hold": float("inf")}, ValueError, "For no limit, give None"),
    ({"max_hold": float("nan")}, ValueError, "max_hold cannot be NaN"),
    ({"max_hold": "1"}, TypeError, "max_hold is a number of seconds or a timedelta"),
    ({"on_danger": "print"}, TypeError, "on_danger is a function, not str"),
    ({"on_lost": 1}, TypeError, "on_lost is a function, not int"),
]


@pytest.mark.parametrize(("options", "error", "says"), WRONG)
def test_wrong_arguments(
    world: World, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with (
        world.locks("postgresql://nobody@127.0.0.1:1/nothing") as locks,
        pytest.raises(error, match=says),
    ):
        locks.lease("report", **options)


# --- threads -----------------------------------------------------------------------------------


class Sleeper:
    """A timer that only notes that it was woken: the test looks for it, when the test likes."""

    running = True

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_leases_that_come_and_go_do_not_wake_the_timer(
    locks: Locks, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    keeper, timer = world.use_keeper(monkeypatch, Keeper), Sleeper()
    monkeypatch.setattr(keeper, "_timer", timer)
    for _ in range(3):
        with locks.lease("report"):
            pass
        keeper._watch()  # after each: it finds none
    assert timer.woken == 1
    keeper._watch()  # none came, so it may sleep for ever
    with locks.lease("report"):
        pass
    assert timer.woken == 2


def brisk(runtime: Runtime, worker: WorkerMaker | None = None) -> Keeper:
    """A keeper whose threads do not stay long; tasks never do."""
    return Keeper(runtime, partial(Worker, linger=0.05) if worker is None else worker)


def test_the_threads_end_when_nothing_is_held(
    locks: Locks, engine: Engine, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    keeper = world.use_keeper(monkeypatch, brisk)
    for _ in range(2):  # and begin again
        with locks.lease("report", ttl=TTL):
            eventually(moved(engine, locks, "report"))
            assert len(keeper) == 1
            assert keeper._timer.running
        assert len(keeper) == 0
        eventually(lambda: not keeper._timer.running and not keeper._renewers)
