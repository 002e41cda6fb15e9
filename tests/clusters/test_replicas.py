"""Semi-synchronous replication, and MySQL's group replication: another server has every grant that
dblock has reported."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from dblock import DBLockError, Lease, LockLost, Locks, OutcomeUnknown, Timeouts, Unavailable
from dblock.doctor import Finding, Level, examine
from dblock.schema import upgrade
from tests.clusters.group import Group
from tests.clusters.one_writer import OneWriter
from tests.clusters.replicas import NODES, Replicas
from tests.conftest import EVER, find_or_skip
from tests.servers import execute
from tests.support import LONG, Threads, eventually
from tests.worlds.portal import WORLDS

BRIEF = Timeouts(query=1, connect=1, socket=2)
BOTH = "SELECT lock_name, fence FROM dblock_lock"


CLUSTERS: dict[str, Callable[[], OneWriter[Any]]] = {
    **{kind: partial(Replicas, kind) for kind in NODES},
    "mysql-group": Group,
}


@pytest.fixture(params=CLUSTERS)
def replicas(request: pytest.FixtureRequest) -> Iterator[OneWriter[Any]]:
    with find_or_skip(CLUSTERS[request.param]) as cluster:
        cluster.create_database("app")
        upgrade(cluster.url_for("app"))
        yield cluster


@pytest.fixture
def held(replicas: OneWriter[Any]) -> Iterator[list[Lease]]:
    """A lease in each world, which does not renew itself."""
    with ExitStack() as stack:
        leases = []
        for name, make in WORLDS.items():
            world = stack.enter_context(make())
            locks = stack.enter_context(world.locks(replicas.url_for("app")))
            leases.append(locks.lease(f"held {name}", ttl=EVER, renew=False))
            assert leases[-1].acquire()
        yield leases


def all_are_lost(held: list[Lease]) -> None:
    for lease in held:
        with pytest.raises(LockLost) as lost:
            lease.renew()
        assert lost.value.reason == "failover"


def test_the_promoted_replica_has_every_grant(
    replicas: OneWriter[Any], held: list[Lease], threads: Threads
) -> None:
    """Grants are under way when it hears no more and the primary dies."""
    granted: dict[str, int] = {}
    over = threading.Event()

    def work(name: str) -> None:
        with Locks(replicas.url_for("app"), timeouts=BRIEF) as locks:
            while not over.is_set():
                with contextlib.suppress(DBLockError), locks.lease(name, ttl=LONG, wait=0) as lease:
                    assert lease.fence > granted.get(name, 0)
                    granted[name] = lease.fence

    working = [threads.start(work, f"name {number}") for number in range(4)]
    eventually(lambda: sum(granted.values()) > 100)
    replicas.freeze_replicas()
    eventually(lambda: replicas.primary.is_waiting)
    over.set()
    replicas.fail_over()
    for each in working:
        each.result()
    rows = execute(replicas.primary.url_for("app"), BOTH)
    fences = {name.decode(): fence for name, fence in rows}
    assert len(granted) == 4
    assert all(fences[name] >= fence for name, fence in granted.items())
    all_are_lost(held)
    with Locks(replicas.url_for("app")) as locks:
        for name, fence in granted.items():
            locks.release(name, force=True)
            with locks.lease(name, ttl=LONG) as lease:
                assert lease.fence > fence


def test_holders_are_told_that_the_replica_is_the_primary(
    replicas: OneWriter[Any], held: list[Lease]
) -> None:
    replicas.switch_over()
    all_are_lost(held)


def test_nothing_is_granted_while_no_replica_hears(replicas: OneWriter[Any]) -> None:
    """Not even when dblock has ended the session that waits, and the primary has committed."""
    url = replicas.url_for("app")
    with Locks(url, timeouts=BRIEF) as locks:
        replicas.freeze_replicas()
        lease = locks.lease("name", ttl=LONG, wait=0)
        with pytest.raises((OutcomeUnknown, Unavailable)):
            lease.acquire()
        assert not lease.held
        if replicas.primary.kind == "mariadb":  # on MySQL it is not seen before a replica has it
            eventually(lambda: bool(execute(replicas.primary.url_for("app"), BOTH)))
        waiting = locks.lease("name", ttl=LONG, wait=1)
        with contextlib.suppress(DBLockError):
            waiting.acquire()
        assert not waiting.held
        replicas.resume()
        locks.release("name", force=True)
        with locks.lease("name", ttl=LONG):
            pass


@pytest.mark.parametrize("replicas", ["mysql-group"], indirect=True)
def test_a_primary_that_its_group_has_left_behind_grants_nothing(replicas: OneWriter[Any]) -> None:
    """It was frozen meanwhile, and takes itself for the primary when it goes on."""
    old = replicas.primary
    with Locks(old.url_for("app"), timeouts=BRIEF) as locks:
        assert not locks.show("name").held  # it is connected
        old.pause()
        replicas.settle()
        assert replicas.primary is not old
        with Locks(replicas.url_for("app")) as others, others.lease("name", ttl=LONG) as lease:
            old.resume()
            behind = locks.lease("name", ttl=LONG, wait=0)
            with contextlib.suppress(DBLockError):
                behind.acquire()
            assert not behind.held
            lease.renew()


@pytest.mark.parametrize("replicas", ["mariadb"], indirect=True)
def test_the_doctor_looks_whether_commits_wait(replicas: Replicas) -> None:
    primary, replica = replicas.primary, replicas.replica

    def found() -> Finding:
        with Locks(primary.url_for("app"), timeouts=BRIEF) as locks:
            (finding,) = (each for each in examine(locks) if each.what == "replication")
        return finding

    assert found() == Finding("replication", Level.OK, "semi-synchronous")
    execute(primary.url, "SET GLOBAL rpl_semi_sync_master_wait_no_slave = OFF")
    assert found().level is Level.NOTE
    execute(primary.url, *found().fix.splitlines()[1:])  # as it stands
    assert found().level is Level.OK
    execute(primary.url, "SET GLOBAL rpl_semi_sync_master_timeout = 10")
    assert found().level is Level.NOTE
    replica.pause()
    execute(primary.url, "CREATE DATABASE unheard")
    assert "do not wait" in found().found
    replica.resume()
    eventually(lambda: found().level is Level.NOTE)
    execute(primary.url, *found().fix.splitlines()[1:])  # as it stands
    assert found().level is Level.OK
    replica.kill()
    eventually(lambda: "no replica is connected" in found().found)
    execute(primary.url, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
    assert found() == Finding("replication", Level.OK, "no replica is seen")
    execute(primary.url, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
    assert found().level is Level.WRONG
    replica.start()  # it finds its primary again
    eventually(lambda: found().level is Level.OK)
    execute(replica.url, "SET GLOBAL rpl_semi_sync_slave_enabled = OFF")
    execute(replica.url, "STOP SLAVE IO_THREAD", "START SLAVE IO_THREAD")
    execute(primary.url, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
    eventually(lambda: found().found == "1 asynchronous")
    ours, theirs = found().fix.splitlines()[1:3], found().fix.splitlines()[3:]
    execute(primary.url, *ours)
    execute(replica.url, *theirs)
    eventually(lambda: found().level is Level.OK)
