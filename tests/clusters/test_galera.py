"""A Galera cluster: what dblock tells of a node that has lost the majority, and how it goes on; and
what excludes what across nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    NullPool,
    Table,
    create_engine,
    insert,
    select,
    text,
)
from sqlalchemy.exc import OperationalError

from dblock import DBLockError, LockLost, Locks, NotAcquired, OutcomeUnknown, Timeouts, Unavailable
from dblock.aio import AsyncLocks
from dblock.doctor import Finding, Level, examine
from dblock.schema import upgrade
from tests.aio.support import async_url
from tests.clusters.galera import Galera, Node
from tests.conftest import find_or_skip
from tests.faults.proxy import Proxy
from tests.servers.base import execute
from tests.soak import report
from tests.soak.galera import WithoutANode
from tests.soak.nemesis import EVERYWHERE, Fault
from tests.soak.run import DATABASE, Settings, soak
from tests.support import LONG, Threads, eventually, expire
from tests.worlds.portal import WORLDS
from tests.worlds.world import World

product = Table("product", MetaData(), Column("id", Integer, primary_key=True))
product.append_column(Column("stock", Integer))


@pytest.fixture(scope="module")
def galera() -> Iterator[Galera]:
    with find_or_skip(lambda: Galera("one")) as cluster:
        execute(cluster.nodes[0].url, "CREATE DATABASE app")
        url = cluster.nodes[0].url_for("app")
        upgrade(url)
        engine = create_engine(url, poolclass=NullPool)
        product.metadata.create_all(engine)
        with engine.begin() as connection:
            connection.execute(insert(product).values(id=7, stock=1000))
        yield cluster


@pytest.fixture(autouse=True)
def whole(galera: Galera) -> Iterator[None]:
    """After each test all nodes are together again."""
    yield
    galera.resume()
    galera.settle()


def isolate(galera: Galera) -> None:
    """Take the majority from the first node."""
    for node in galera.nodes[1:]:
        node.pause()
    eventually(lambda: not galera.nodes[0].writable)


@pytest.fixture
def locks(galera: Galera) -> Iterator[Locks]:
    patient = Timeouts(query=1, connect=1)
    with Locks(galera.nodes[0].url_for("app"), timeouts=patient) as locks:
        yield locks


@pytest.fixture
def engine(galera: Galera) -> Iterator[Engine]:
    engine = create_engine(galera.nodes[0].url_for("app"))
    yield engine
    engine.dispose()


async def acquire_in_a_task(url: str) -> None:
    async with AsyncLocks(async_url(url)) as locks:
        await locks.lease("free", wait=0).acquire()


def test_every_call_says_that_the_node_is_away(
    galera: Galera, locks: Locks, engine: Engine
) -> None:
    """Not by the driver's error, on sessions that were open before as on new ones."""
    held = locks.lease("held", ttl=LONG)
    brief = locks.lease("brief", ttl=10)
    assert held.acquire()
    assert brief.acquire()
    stock = locks.counter(product.c.stock, key=product.c.id)
    with engine.connect() as mine, engine.connect() as other:
        for connection in (mine, other):
            connection.exec_driver_sql("SELECT 1")
        isolate(galera)
        calls: dict[str, Callable[[], object]] = {
            "acquire": lambda: locks.lease("free", wait=0).acquire(),
            "wait": lambda: locks.lease("another", wait=0.2).acquire(),
            "renew": brief.renew,
            "show": lambda: locks.show("held"),
            "list": locks.list,
            "row lock": lambda: locks.row("row", wait=0.2).acquire(),
            "semaphore": lambda: locks.semaphore("slots", limit=2, wait=0).acquire(),
            "shared": lambda: locks.shared("read", wait=0).acquire(),
            "guard": lambda: held.guard(mine).__enter__(),
            "row lock in a transaction": lambda: locks.row("row", on=mine, wait=0).acquire(),
            "counter": lambda: stock.take(other, 7, 1),
            "forced release": lambda: locks.release("held", force=True),
            "release": held.release,
        }
        for name, call in calls.items():
            with pytest.raises((Unavailable, LockLost)) as told:
                call()
            assert not isinstance(told.value, LockLost) or name in ("renew", "guard", "release")
            assert isinstance(told.value, LockLost) or "WSREP" in str(told.value)
        with pytest.raises(Unavailable, match="WSREP"):
            asyncio.run(acquire_in_a_task(galera.nodes[0].url_for("app")))
        for connection in (mine, other):
            connection.invalidate()


def test_a_statement_under_way_is_looked_after(
    galera: Galera, locks: Locks, threads: Threads
) -> None:
    """Who takes and gives back leases while the majority goes sees dblock's errors alone."""
    ended: list[DBLockError] = []

    def work(name: str) -> None:
        while not ended:
            try:
                with locks.lease(name, ttl=LONG, wait=0):
                    pass
            except NotAcquired:
                pass
            except DBLockError as error:
                ended.append(error)

    working = [threads.start(work, f"name {number % 2}") for number in range(4)]
    isolate(galera)
    for each in working:
        each.result()
    assert all(isinstance(error, Unavailable | OutcomeUnknown) for error in ended)


def test_the_doctor_looks_at_the_node(galera: Galera) -> None:
    url = galera.nodes[0].url_for("app")

    def found() -> dict[str, Finding]:
        with Locks(url) as locks:
            return {finding.what: finding for finding in examine(locks)}

    assert found()["replication"].found == "a Galera cluster of 3"
    assert not {"node", "nodes"} & found().keys()
    advice = found()["reads"].fix.splitlines()[1:]
    execute(galera.nodes[0].url, *advice)  # as it stands
    try:
        assert found()["reads"].level is Level.OK
    finally:
        execute(galera.nodes[0].url, "SET GLOBAL wsrep_sync_wait = 0")
    execute(galera.nodes[0].url, "SET GLOBAL wsrep_dirty_reads = ON")  # else it cannot be asked
    try:
        isolate(galera)
        assert found()["replication"].level is Level.WRONG
        assert "without the majority" in found()["replication"].found
    finally:
        execute(galera.nodes[0].url, "SET GLOBAL wsrep_dirty_reads = OFF")


def test_another_node_serves(galera: Galera) -> None:
    """As behind a proxy that leads to a node of the majority. Fences go on there.

    A holder loses its lease: dblock takes another node for what it may be, a server that has
    missed the last grants.
    """
    with Proxy(galera.nodes[0].url_for("app")) as proxy, Locks(proxy.url) as locks:
        held = locks.lease("outlives", ttl=10)
        assert held.acquire()
        fence = held.fence
        galera.nodes[0].pause()
        proxy.lead_to(galera.nodes[1].url_for("app"))
        with pytest.raises(LockLost):
            held.renew()
        with locks.lease("outlives", ttl=LONG) as again:
            assert again.fence > fence


# --- across nodes ---------------------------------------------------------------------------------


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with WORLDS[request.param]() as made:
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """One that no other test has, in no other world: they share a database."""
    return str(request.node.name)


class Side:
    """What a program has that is connected to one node: locks, and a transaction."""

    def __init__(self, world: World, node: Node, stack: contextlib.ExitStack) -> None:
        url = node.url_for("app")
        self.node = node
        self.locks = stack.enter_context(world.locks(url, timeouts=PATIENT))
        self.engine = world.engine(url)
        stack.callback(self.engine.dispose)
        self.transaction = stack.enter_context(self.engine.connect())
        self.stock = self.locks.counter(product.c.stock, key=product.c.id)

    def sell(self) -> None:
        self.transaction.execute(text("UPDATE product SET stock = stock - 1 WHERE id = 7"))

    def in_stock(self) -> int:
        """As this node knows once it has caught up with the others."""
        with self.engine.begin() as connection:
            connection.execute(text("SET SESSION wsrep_sync_wait = 1"))
            left: int = connection.execute(select(product.c.stock)).scalar_one()
        return left

    def cannot_commit(self) -> None:
        with pytest.raises(OperationalError, match="1213"):
            self.transaction.commit()
        self.transaction.rollback()


PATIENT = Timeouts(query=1, connect=1, socket=3)


@pytest.fixture
def sides(world: World, galera: Galera) -> Iterator[tuple[Side, Side]]:
    with contextlib.ExitStack() as stack:
        yield Side(world, galera.nodes[0], stack), Side(world, galera.nodes[1], stack)


def take_over(name: str, left: Side, right: Side) -> None:
    """Let a lease of the left side's expire, and the right one take it."""
    expire(create_engine(left.node.url_for("app"), poolclass=NullPool), left.locks, name)
    assert right.locks.lease(name, ttl=LONG, wait=LONG).acquire()


def test_a_stale_guard_cannot_commit(name: str, sides: tuple[Side, Side]) -> None:
    left, right = sides
    before = left.in_stock()
    lease = left.locks.lease(name, ttl=LONG)
    assert lease.acquire()
    with lease.guard(left.transaction):
        left.sell()
    lease.renew()  # which no guard keeps off
    left.transaction.commit()
    with lease.guard(left.transaction):
        left.sell()
    take_over(name, left, right)
    left.cannot_commit()
    assert left.in_stock() == right.in_stock() == before - 1


def test_a_guard_on_another_node_sees_who_has_taken_the_name(
    name: str, sides: tuple[Side, Side]
) -> None:
    """The guard's transaction is on a node that knows of it, and dblock's look on one that lags."""
    left, right = sides
    lease = left.locks.lease(name, ttl=LONG)
    assert lease.acquire()
    lagging = create_engine(left.node.url, poolclass=NullPool)
    with lagging.connect() as connection:
        connection.exec_driver_sql("FLUSH TABLES WITH READ LOCK")
        right.locks.release(name, force=True)
        assert right.locks.lease(name, ttl=LONG).acquire()
        with pytest.raises(Unavailable), lease.guard(right.transaction):
            raise AssertionError("not reached")
        right.transaction.rollback()
        connection.exec_driver_sql("UNLOCK TABLES")
    with pytest.raises(LockLost), lease.guard(right.transaction):
        raise AssertionError("not reached")


def test_two_row_locks_do_not_both_commit(name: str, sides: tuple[Side, Side]) -> None:
    left, right = sides
    before = left.in_stock()
    for side in sides:
        assert side.locks.row(name, on=side.transaction).acquire()
    left.sell()
    left.transaction.commit()
    right.cannot_commit()
    assert left.in_stock() == right.in_stock() == before - 1


def test_of_two_row_locks_one_is_lost(name: str, sides: tuple[Side, Side]) -> None:
    left, right = (side.locks.row(name) for side in sides)
    assert left.acquire()
    assert right.acquire()
    left.release()
    with pytest.raises(LockLost, match="another node") as told:
        right.release()
    assert told.value.reason == "taken over"


def test_a_row_lock_and_a_lease_exclude_each_other(name: str, sides: tuple[Side, Side]) -> None:
    left, right = sides
    with left.locks.row(name, on=left.transaction):
        left.sell()
    # Not wait=0: the name's row comes from the other node, and is in use until it is there.
    assert right.locks.lease(name, ttl=LONG, wait=LONG).acquire()
    left.cannot_commit()


def test_a_hold_goes_on_elsewhere_without_a_guard_of_before(
    name: str, sides: tuple[Side, Side]
) -> None:
    left, right = sides
    lease = left.locks.lease(name, ttl=LONG)
    assert lease.acquire()
    with lease.guard(left.transaction):
        left.sell()
    assert right.locks.attach(lease.detach()).acquire()
    left.cannot_commit()


def test_a_call_is_made_once(name: str, sides: tuple[Side, Side]) -> None:
    left, right = sides
    for side in sides:
        with side.locks.once(side.transaction, name) as call:
            assert not call.replayed
            call.result = side.node.port
    left.transaction.commit()
    right.cannot_commit()
    with right.locks.once(right.transaction, name) as call:
        assert call.replayed
        assert call.result == left.node.port


def test_a_counter_loses_nothing(name: str, sides: tuple[Side, Side]) -> None:
    left, right = sides
    before = left.in_stock()
    for side in sides:
        side.stock.take(side.transaction, 7, 1)
    left.transaction.commit()
    right.cannot_commit()
    assert left.in_stock() == right.in_stock() == before - 1


def test_a_change_that_is_too_large_for_the_cluster(galera: Galera, locks: Locks) -> None:
    url = galera.nodes[0].url
    execute(url, "SET GLOBAL wsrep_max_ws_size = 1024")
    try:
        with pytest.raises(Unavailable, match="writeset size"):
            locks.lease("n" * 255, wait=0).acquire()
    finally:
        execute(url, "SET GLOBAL wsrep_max_ws_size = 2147483647")


# --- with all that programs do at once -----------------------------------------------------------


@pytest.mark.parametrize("profile", ["galera-one", "galera-all"])
def test_a_node_that_dies_breaks_no_promise(
    profile: str, galera: Galera, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short form of these soaks: of what happens to nodes, only this."""

    def kinds(nemesis: WithoutANode) -> dict[str, dict[str, Fault]]:
        return {EVERYWHERE: {"node killed": all_of_them(nemesis)[EVERYWHERE]["node killed"]}}

    all_of_them = WithoutANode.kinds
    monkeypatch.setattr(WithoutANode, "kinds", kinds)
    galera.drop_database(DATABASE)
    history = soak(Settings.of(profile, 0, 1), galera, tmp_path)
    report.demand(history, tmp_path)
