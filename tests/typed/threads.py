"""What a program with threads uses of dblock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from decimal import Decimal
from typing import Any, assert_type

import alembic.op as op
from sqlalchemy import Column, Integer, MetaData, Table, create_engine
from sqlalchemy.engine import Connection
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from tenacity import stop_after_attempt, wait_fixed

import dblock
from dblock import (
    AttachedLease,
    Attempt,
    Conflict,
    ConnectTimeout,
    Counter,
    Cron,
    CronJob,
    Danger,
    DBLockError,
    DeadlockDetected,
    DetachedHold,
    DetachedLease,
    DetachedSemaphore,
    Election,
    InProgress,
    KeyReused,
    Leader,
    Leadership,
    Lease,
    LimitMismatch,
    LockLost,
    Locks,
    LockState,
    MemberStatus,
    Misconfigured,
    MultiLock,
    NotAcquired,
    NotEnough,
    NotHeld,
    Observation,
    Once,
    OutcomeUnknown,
    Pruned,
    QueryTimeout,
    Quorum,
    QuorumLease,
    Rate,
    RateLimited,
    RetryPolicy,
    RowLock,
    RowLockState,
    RunState,
    SchemaMissing,
    Semaphore,
    SharedLease,
    SlotsState,
    SocketTimeout,
    StaleFence,
    Timeouts,
    Unavailable,
    Unsupported,
    WaiterState,
    retry_on_conflict,
)
from dblock.contrib.opentelemetry import instrument
from dblock.doctor import Finding, Level, examine
from dblock.events import Kind, LockEvent, listen
from dblock.fencing import gate, table
from dblock.schema import (
    Downgraded,
    Upgraded,
    create,
    downgrade,
    drop,
    leave_ours,
    migration_lock,
    migrations,
    sql,
    statements,
    tables,
    upgrade,
)
from dblock.testing import Another, Faults


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "product"

    id: Mapped[int] = mapped_column(primary_key=True)
    stock: Mapped[int]
    price: Mapped[Decimal]
    version: Mapped[int]


metadata = MetaData()
shelf = Table("shelf", metadata, Column("id", Integer, primary_key=True), Column("n", Integer))

engine = create_engine("postgresql+psycopg://app@db/app")
sessions = sessionmaker(engine)


def say(attempt: Attempt) -> None:
    print(attempt.name, attempt.number, attempt.elapsed, attempt.sleep)


policy = RetryPolicy(wait=wait_fixed(1), stop=stop_after_attempt(4), before_sleep=say)
locks = Locks(
    engine,
    timeouts=Timeouts(connect=3, query=5, socket=10),
    retry=RetryPolicy.textbook(),
    schema=None,
    prefix="dblock_",
    label="web",
)
Locks(42)  # type: ignore[arg-type]
Locks("sqlite:///locks.db", timeouts=3)  # type: ignore[arg-type]
Locks("sqlite:///locks.db", prefixes="a_")  # type: ignore[call-arg]


def warn(danger: Danger) -> None:
    assert_type(danger.name, str)


def stop(loss: LockLost) -> None:
    print(loss)


# --- leases ------------------------------------------------------------------------------------


def leases() -> None:
    lease = locks.lease(
        "report",
        ttl=30,
        wait=5.0,
        reentrant=False,
        fair=True,
        retry=policy,
        label="report",
        renew=True,
        renew_every=5,
        max_renewals=3,
        max_hold=600,
        on_danger=warn,
        on_lost=stop,
    )
    assert_type(lease, Lease)
    assert_type(lease.acquire(), bool)
    assert_type(lease.acquire(blocking=False), bool)
    assert_type(lease.acquire(timeout=2.5), bool)
    with lease as held:
        assert_type(held, Lease)
    assert_type(lease.name, str)
    assert_type(lease.ttl, float)
    assert_type(lease.renew_every, float)
    assert_type(lease.wait, float | None)
    assert_type(lease.reentrant, bool)
    assert_type(lease.held, bool)
    assert_type(lease.locked(), bool)
    assert_type(lease.fence, int)
    assert_type(lease.token, str)
    assert_type(lease.remaining, float)
    assert_type(lease.margin, float)
    assert_type(lease.lost.is_set(), bool)
    assert_type(lease.lost.wait(1), bool)
    lease.check()
    lease.renew()
    lease.renew(60)
    with Session(engine) as session, lease.guard(session) as fence:
        assert_type(fence, int)
    text = lease.detach(ttl=10)
    assert_type(text, str)
    lease.release()
    lease.release(after=5)
    attached = locks.attach(text, ttl=30, label="worker", max_hold=60)
    assert_type(attached, AttachedLease)
    attached.check()
    detached = locks.detached("report", "f" * 32, owner="worker")
    assert_type(detached, DetachedLease)
    assert_type((detached.name, detached.token, detached.owner), tuple[str, str, str])
    hold = detached.take(ttl=30, wait=5)
    assert_type(hold, DetachedHold)
    assert_type((hold.name, hold.fence), tuple[str, int])
    assert_type((hold.expires_in, hold.repeated), tuple[float, bool])
    assert_type(detached.renew(30), DetachedHold)
    assert_type(locks.detached_from(text), DetachedLease)
    detached.release()
    detached.proclaim({"address": "10.0.0.7"})
    assert_type(locks.detached("report", shared=True), DetachedLease)
    slots = locks.detached_semaphore("api", 3, "f" * 32, owner="worker")
    assert_type(slots, DetachedSemaphore)
    assert_type((slots.name, slots.limit, slots.token), tuple[str, int, str])
    assert_type(slots.take(30), DetachedHold)
    locks.detached("report", b"token")  # type: ignore[arg-type]
    shared = locks.shared("prices", ttl=30, wait=5)
    assert_type(shared, SharedLease)
    locks.lease("report", ttl="30")  # type: ignore[arg-type]
    locks.lease(42)  # type: ignore[arg-type]
    locks.lease("report", wait="5")  # type: ignore[arg-type]
    locks.lease("report", waits=5)  # type: ignore[call-arg]
    locks.lease("report", on_lost=warn)  # type: ignore[arg-type]
    lease.fence = 3  # type: ignore[misc]
    lease.guard("session")  # type: ignore[arg-type]
    locks.shared("prices", ttl=None)  # type: ignore[arg-type]


@locks.lease("nightly", wait=0)
def nightly(day: int) -> str:
    return str(day)


@locks.skip("cleanup", ttl=60, label="janitor")
def cleanup(day: int) -> str:
    return str(day)


def decorated() -> None:
    assert_type(nightly(1), str)
    assert_type(cleanup(1), str | None)
    nightly("1")  # type: ignore[arg-type]
    cleanup("1")  # type: ignore[arg-type]
    cleanup(1).upper()  # type: ignore[union-attr]
    locks.skip("cleanup", wait=5)  # type: ignore[call-arg]
    locks.skip("cleanup", label=5)  # type: ignore[arg-type]


# --- row locks, several at once, semaphores ----------------------------------------------------


def others(connection: Connection, session: Session) -> None:
    row = locks.row("order:42", wait=2, on=session, retry=policy)
    assert_type(row, RowLock)
    assert_type(row.acquire(), bool)
    assert_type(row.borrowed, bool)
    assert_type(row.held, bool)
    row.check()
    row.release()
    with locks.row("order:42", on=connection), locks.row("order:43"):
        pass
    both = locks.all(locks.lease("a"), row, wait=5)
    assert_type(both, MultiLock)
    assert_type(both.acquire(), bool)
    assert_type(both.held, bool)
    both.release()
    semaphore = locks.semaphore("api", limit=3, ttl=30, wait=5, fair=True)
    assert_type(semaphore, Semaphore)
    with semaphore as slot:
        assert_type(slot, Lease)
    assert_type(semaphore.acquire(), bool)
    assert_type(semaphore.limit, int)
    assert_type(semaphore.slot, Lease)
    assert_type(semaphore.resize(4), int)
    semaphore.release()
    rate = locks.rate("api", 100, per=60, burst=10, cost=2, wait=None)
    assert_type(rate, Rate)
    with rate as taken:
        assert_type(taken, Rate)
    assert_type(rate.acquire(timeout=3), bool)
    assert_type((rate.limit, rate.per, rate.burst, rate.cost), tuple[int, float, int, int])
    assert_type(rate(int)("3"), int)
    try:
        rate.acquire()
    except RateLimited as refused:
        assert_type(refused.retry_after, float)
    locks.rate("api", 100)  # type: ignore[call-arg]
    locks.row("order:42", on="session")  # type: ignore[arg-type]
    locks.all("a", "b")  # type: ignore[arg-type]
    locks.semaphore("api", limit="3")  # type: ignore[arg-type]
    locks.semaphore("api")  # type: ignore[call-arg]


# --- elections ---------------------------------------------------------------------------------


def lead(term: Leadership) -> None:
    term.check()
    term.proclaim({"url": "http://10.0.0.7"})
    term.resign()


def elections() -> None:
    election = locks.election("scheduler", ttl=10, label="web", max_hold=3600, on_lost=stop)
    assert_type(election, Election)
    assert_type(election.name, str)
    assert_type(election.ttl, float)
    with election.campaign(wait=5) as term:
        assert_type(term, Leadership)
        assert_type(term.fence, int)
    leader = election.leader()
    assert_type(leader, Leader | None)
    if leader is not None:
        assert_type(leader.owner, str | None)
        assert_type(leader.since, datetime)
    observation = election.observe()
    assert_type(observation, Observation)
    for seen in observation:
        print(seen)
    election.run(lead)
    election.campaign(wait="5")  # type: ignore[arg-type]
    locks.election("scheduler", reentrant=True)  # type: ignore[call-arg]


# --- counters ----------------------------------------------------------------------------------

stock = locks.counter(Product.stock, key=Product.id, version=Product.version, floor=0, retry=policy)
prices = locks.counter(Product.price, key=Product.id, floor=Decimal("0.01"))
shelves = locks.counter(shelf.c.n, key=shelf.c.id, floor=None, stripes=8)


def raised(price: Decimal) -> Decimal:
    return price * 2


def counters(session: Session, connection: Connection) -> None:
    assert_type(stock, Counter)
    assert_type(stock.take(session, 7, 3), bool)
    assert_type(stock.take(session, 7, 3, idempotency_key="order:42"), bool)
    assert_type(stock.add(connection, "7", 2.5), bool)
    assert_type(prices.add(session, 7, Decimal("0.10")), bool)
    assert_type(prices.update(session, 7, raised), Decimal)
    assert_type(stock.compare_and_update(session, 7, seen=3, new=4), bool)
    left: int = stock.value(session, 7)
    print(left)
    shelves.spread(session, 7)
    stock.take(session, 7, "3")  # type: ignore[arg-type]
    stock.add(session, 7, None)  # type: ignore[arg-type]
    stock.add(session, 7, "3", idempotency_key="order:42")  # type: ignore[arg-type]
    stock.compare_and_update(session, 7, seen="3", new=4)  # type: ignore[arg-type]
    stock.compare_and_update(session, 7, seen=3, new=None)  # type: ignore[arg-type]
    stock.update(session, 7, str)  # type: ignore[type-var]
    stock.take("session", 7, 3)  # type: ignore[arg-type]
    locks.counter(Product.stock, key=Product.id, floor="0")  # type: ignore[arg-type]
    locks.counter("stock", key=Product.id)  # type: ignore[arg-type]


# --- jobs, once, conflicts ---------------------------------------------------------------------


@locks.cron("figures", once_per="day", at_least=300, at_most=3600, tz="Europe/Berlin")
def figures(day: int) -> str:
    return str(day)


@retry_on_conflict(sessions, retry=policy)
def rename(session: Session, product: int, name: str) -> int:
    return product


def jobs(session: Session) -> None:
    assert_type(locks.cron("figures", once_per="day"), Cron)
    job: CronJob[[int], str] = figures
    assert_type(job(1), str | None)
    assert_type(figures.last_run(), RunState | None)
    figures("1")  # type: ignore[arg-type]
    once = locks.once(session, "order:42", fingerprint={"n": 1}, keep=3600, wait=5)
    with once as call:
        assert_type(call, Once)
        assert_type(call.replayed, bool)
        assert_type(call.active, bool)
        assert_type(call.key, str)
        call.result = {"id": 7}
    assert_type(rename(7, "shelf"), int)
    rename("7", "shelf")  # type: ignore[arg-type]
    locks.once("order:42", "key")  # type: ignore[arg-type]


# --- looking, and letting go -------------------------------------------------------------------


def operate() -> None:
    with locks as same:
        assert_type(same.timeouts, Timeouts)
    print(locks.engine.url)
    states = locks.list()
    assert_type(states, list[LockState])
    state = locks.show("report")
    assert_type(state.held, bool)
    assert_type(state.status, str)
    assert_type(state.describe(), str)
    assert_type(state.waiters, tuple[WaiterState, ...])
    assert_type(state.row_lock, RowLockState | None)
    assert_type(state.slots, SlotsState | None)
    assert_type(state.run, RunState | None)
    if state.slots is not None:
        assert_type(state.slots.full, bool)
    assert_type(locks.release("report", force=True), bool)
    run = locks.last_run("figures")
    if run is not None:
        assert_type(run.outcome, str)
        assert_type(run.seconds, float | None)
    assert_type(locks.runs("figures", limit=10), list[RunState])
    assert_type(locks.last_runs(), list[RunState])
    assert_type(locks.reopen("figures", "2026-11-23"), bool)
    pruned = locks.prune(older_than=86400)
    assert_type(pruned, Pruned)
    print(pruned.runs)
    assert_type(locks.prune_names(idle=86400), int)
    assert_type(locks.pause(), float)
    locks.close()
    locks.release("report")  # type: ignore[call-arg]
    state.fence = 3  # type: ignore[misc]


def errors() -> None:
    try:
        nightly(1)
    except NotAcquired as refused:
        assert_type(refused.holder, LockState | None)
        assert_type(refused.name, str | None)
    except NotEnough as few:
        print(few.available)
    except (LockLost, NotHeld, DeadlockDetected, OutcomeUnknown, Conflict):
        pass
    except (ConnectTimeout, QueryTimeout, SocketTimeout, Misconfigured, Unavailable):
        pass
    except (SchemaMissing, Unsupported, LimitMismatch, InProgress, KeyReused, StaleFence):
        pass
    except DBLockError as error:
        print(error.name, dblock.__version__)


# --- the rest ----------------------------------------------------------------------------------


def majority(url: str) -> None:
    with Quorum([url, url, engine], timeouts=Timeouts(), label="me") as quorum:
        lease = quorum.lease("report", ttl=30, wait=0, on_lost=print)
        assert_type(lease, QuorumLease)
        with lease as held:
            assert_type(held, QuorumLease)
            assert_type(held.fence, int)
            held.renew(5)
        election = quorum.election("main", ttl=30, max_hold=60, on_lost=print)
        assert_type(election, Election)
        with election.campaign(wait=5) as term:
            term.proclaim({"address": "10.0.0.1"})
        (member,) = quorum.check()
        assert_type(member, MemberStatus)
        assert_type(quorum.rejoin(0), float)
        assert_type(quorum.show("report"), LockState)
        assert_type(quorum.list(), list[LockState])
        assert_type(quorum.release("report", force=True), bool)
        quorum.lease("report", color="red")  # type: ignore[call-arg]
    Quorum(42)  # type: ignore[arg-type]


def note(event: LockEvent) -> None:
    assert_type(event.kind, Kind)
    assert_type(event.name, str)


def around(connection: Connection, session: Session) -> None:
    end: Callable[[], None] = listen(note)
    end()
    instrument(label=str.upper)()
    for finding in examine(locks):
        assert_type(finding, Finding)
        assert_type(finding.level, Level)
    fences = table(metadata)
    gate(connection, "report", 7, table=fences)
    gate(connection, "report", "7")  # type: ignore[arg-type]
    listen("note")  # type: ignore[arg-type]


def schema(connection: Connection) -> None:
    assert_type(upgrade(engine), Upgraded)
    assert_type(downgrade(engine), Downgraded)
    assert_type(tables(metadata, prefix="dblock_"), dict[str, Table])
    create(op, "dblock_0013")
    drop(op, "dblock_0013")
    print(
        sql("postgresql+psycopg://"),
        statements("postgresql+psycopg://", "dblock_0013"),
        migrations(),
    )
    leave_ours()
    held: AbstractContextManager[Any] = migration_lock(connection, name="migrations")
    with held:
        pass
    upgrade(42)  # type: ignore[arg-type]


def faults() -> None:
    with Faults() as made:
        made.instead_of(locks)
        made.advance(3)
        made.pause(3)
        another = made.held_by_another("report")
        assert_type(another, Another)
        assert_type(another.fence, int)
        assert_type(another.held, bool)
        another.die()
        another.release()
        made.expire("report")
        made.take_over("report", ttl=5)
        with made.miss_renewals("report"), made.unreachable():
            pass
        made.reachable()
        made.fail_guard("report", conflict=True)
        made.lose_request("acquire")
        made.lose_reply("release", then_unreachable=True)
        made.wanted_by_another("report")
        assert_type(made.locks, Locks)
        made.lose_reply("aquire")  # type: ignore[arg-type]
        made.close()
