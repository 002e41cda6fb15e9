"""MariaDB as a node of a Galera cluster: dblock notices that, and writes guards' rows only there.

What that is good for, across nodes, is tested in `tests/clusters/`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import NullPool, create_engine

from dblock import Locks
from dblock.schema import upgrade
from tests.conftest import NODE, NewDatabase, OwnServers
from tests.servers.base import execute
from tests.servers.mariadb import AS_A_NODE, MariaDB
from tests.support import LONG, Threads, eventually


class Tried:
    """Some locks, and how often a name's guard was written."""

    def __init__(self, locks: Locks, url: str) -> None:
        self.locks = locks
        self._url = url

    def writes(self) -> int:
        ((found,),) = execute(
            self._url, "SELECT COALESCE(SUM(writes), 0) FROM dblock_guard WHERE lock_name = 'tried'"
        )
        return int(found)


@pytest.fixture(params=["mariadb", NODE])
def tried(request: pytest.FixtureRequest, new_database: NewDatabase) -> Iterator[Tried]:
    db = new_database(request.param, migrated=True)
    with Locks(db.url) as locks:
        yield Tried(locks, db.url)


def test_whatever_locks_a_guard_writes_it_in_a_cluster(
    tried: Tried, request: pytest.FixtureRequest
) -> None:
    locks, once = tried.locks, 1 if NODE in request.node.name else 0
    with locks.lease("first", ttl=LONG):  # before it nobody knows what the server is
        pass
    engine = create_engine(locks._database.engine.url, poolclass=NullPool)
    with engine.connect() as connection:
        lease = locks.lease("tried", ttl=LONG)
        assert lease.acquire()
        assert tried.writes() == once
        with lease.guard(connection):
            pass
        connection.commit()
        assert tried.writes() == 2 * once
        assert not locks.lease("tried", wait=0).acquire()
        assert not locks.row("tried", wait=0).acquire()
        lease.renew()
        attached = locks.attach(lease.detach())
        assert tried.writes() == 2 * once
        assert attached.acquire()
        assert tried.writes() == 3 * once
        attached.release()
        with locks.row("tried", wait=0):
            pass
        assert tried.writes() == 4 * once
        with locks.row("tried", on=connection):
            connection.commit()
        with locks.row("tried", on=connection, wait=0):
            connection.commit()
        assert tried.writes() == 6 * once


def test_the_first_statement_is_for_a_cluster(tried: Tried, request: pytest.FixtureRequest) -> None:
    """dblock makes it when its first connection has read what the server is."""
    with tried.locks.lease("tried", ttl=LONG):
        assert tried.writes() == (1 if NODE in request.node.name else 0)


def test_locks_notice_that_their_server_has_joined_a_cluster(own_server: OwnServers) -> None:
    server = own_server(MariaDB)
    server.create_database("app")
    url = server.url_for("app")
    upgrade(url)
    with Locks(url) as locks:
        tried = Tried(locks, url)
        for name in ("first", "tried"):
            with locks.lease(name, ttl=LONG):
                pass
        assert tried.writes() == 0
        server.stop()
        server.options = AS_A_NODE
        server.start()
        with locks.lease("first", ttl=LONG):
            pass
        with locks.lease("tried", ttl=LONG):
            assert tried.writes() == 1


def test_row_lockers_wait_for_each_other_without_a_deadlock(
    new_database: NewDatabase, threads: Threads
) -> None:
    db = new_database(NODE, migrated=True)
    # Not innodb_trx: who reads that all the time gets to see nothing new.
    waits = "SHOW GLOBAL STATUS LIKE 'innodb_row_lock_current_waits'"
    deadlocks = "SHOW GLOBAL STATUS LIKE 'innodb_deadlocks'"
    with Locks(db.url) as locks:
        first = locks.row("tried")
        assert first.acquire()
        before = execute(db.url, deadlocks)

        def lock() -> None:
            with locks.row("tried", wait=LONG):
                pass

        waiting = [threads.start(lock) for _ in range(2)]
        eventually(lambda: execute(db.url, waits)[0][1] == "2")
        first.release()
        for each in waiting:
            each.result()
    assert execute(db.url, deadlocks) == before != []
