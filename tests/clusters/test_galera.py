"""A Galera cluster: what dblock tells of a node that has lost the majority, and how it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, NullPool, Table, create_engine, insert

from dblock import DBLockError, LockLost, Locks, NotAcquired, OutcomeUnknown, Timeouts, Unavailable
from dblock.aio import AsyncLocks
from dblock.schema import upgrade
from tests.aio.support import async_url
from tests.clusters.galera import Galera, Node
from tests.conftest import find_or_skip
from tests.faults.proxy import Proxy
from tests.servers.base import execute
from tests.support import LONG, Threads, eventually

product = Table("product", MetaData(), Column("id", Integer, primary_key=True))
product.append_column(Column("stock", Integer))


@pytest.fixture(scope="module")
def galera() -> Iterator[Galera]:
    with contextlib.closing(find_or_skip(Galera)) as cluster:
        cluster.start()
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
    for node in galera.nodes:
        node.resume()
    for node in galera.nodes:
        eventually(partial(has_majority, node))


def has_majority(node: Node) -> bool:
    with contextlib.suppress(Exception):
        return node.status("wsrep_cluster_status") == "Primary" and node.synced
    return False


def isolate(galera: Galera) -> None:
    """Take the majority from the first node."""
    for node in galera.nodes[1:]:
        node.pause()
    eventually(lambda: not has_majority(galera.nodes[0]))


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


def test_a_change_that_is_too_large_for_the_cluster(galera: Galera, locks: Locks) -> None:
    url = galera.nodes[0].url
    execute(url, "SET GLOBAL wsrep_max_ws_size = 1024")
    try:
        with pytest.raises(Unavailable, match="writeset size"):
            locks.lease("n" * 255, wait=0).acquire()
    finally:
        execute(url, "SET GLOBAL wsrep_max_ws_size = 2147483647")
