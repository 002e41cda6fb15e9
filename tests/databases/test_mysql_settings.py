"""MySQL servers whose settings are unusual: dblock works there, or says what is missing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import create_engine

from dblock import Locks
from tests.conftest import Database, NewDatabase, OwnServers
from tests.faults.conftest import GRANT, RENEW
from tests.faults.proxy import Lose, Proxy
from tests.servers import MySQL, execute
from tests.support import LONG


@pytest.fixture
def derived(own_server: OwnServers, new_database: NewDatabase) -> Database:
    """A server that rewrites subqueries, also those that lock a row."""
    server = own_server(lambda: MySQL(options=["--optimizer-switch=subquery_to_derived=on"]))
    return new_database("mysql", migrated=True, server=server)


@pytest.fixture
def hypergraph(own_server: OwnServers, new_database: NewDatabase) -> Database:
    """A server with another optimizer, whose plans read, and lock, whole tables."""
    server = own_server(lambda: MySQL(options=["--optimizer-switch=hypergraph_optimizer=on"]))
    return new_database("mysql", migrated=True, server=server)


@pytest.fixture
def unprepared(own_server: OwnServers, new_database: NewDatabase) -> Database:
    """A server that prepares no statement: EndSession cannot run there."""
    db = new_database("mysql", migrated=True, server=own_server(MySQL))
    execute(db.url, "SET GLOBAL max_prepared_stmt_count = 0")
    return db


def test_a_lost_reply_is_settled_where_a_session_cannot_be_ended(unprepared: Database) -> None:
    with Proxy(unprepared.url) as proxy, Locks(proxy.url) as locks, Locks(unprepared.url) as direct:
        for lose, fence in ((Lose.REPLY, 1), (Lose.REQUEST, 2)):
            lost = proxy.lose(lose, GRANT)
            lease = locks.lease("report", ttl=LONG)
            assert lease.acquire()
            assert lost.done.is_set()
            assert lease.fence == direct.show("report").fence == fence
            lost = proxy.lose(Lose.REPLY, RENEW)
            lease.renew()
            assert lost.done.is_set()
            lease.release()
        assert direct.list() == []


def test_a_rewritten_subquery_locks_the_row_of_one_name(derived: Database) -> None:
    """In dblock's own sessions and in the user's."""
    engine = create_engine(derived.url)
    with Locks(derived.url) as locks, engine.connect() as mine, engine.connect() as other:
        for name in ("a", "b", "c", "d"):
            with locks.row(name):
                pass
        with locks.row("a", wait=0), locks.row("b", wait=0), locks.row("c", on=mine, wait=0):
            with locks.lease("d", ttl=LONG, wait=0) as lease, lease.guard(other):
                assert locks.lease("new", ttl=LONG, wait=0).acquire()
                lease.renew()
            other.rollback()
            locked = [state.name for state in locks.list() if state.status == "locked"]
            assert locked == ["a", "b", "c"]
            mine.rollback()
    engine.dispose()


def test_a_renewal_locks_the_rows_of_its_own_names(hypergraph: Database) -> None:
    engine = create_engine(hypergraph.url)
    with Locks(hypergraph.url) as locks, engine.connect() as on:
        for number in range(8):
            with locks.row(f"n{number}"):
                pass
        with locks.lease("mine", ttl=LONG, wait=0) as lease, locks.row("n7", on=on, wait=0):
            lease.renew()
            with locks.row("unused", wait=0):
                pass
        on.rollback()
    engine.dispose()


def test_old_records_are_deleted_where_subqueries_are_rewritten(derived: Database) -> None:
    """Otherwise the server refuses a DELETE whose condition has a subquery."""
    engine = create_engine(derived.url)
    with Locks(derived.url) as locks:
        with engine.begin() as on, locks.once(on, "key") as once:
            once.result = 1
        execute(derived.url, "UPDATE dblock_once SET expires_at = '2020-01-01'")
        assert locks.prune(timedelta(days=1)).keys == 1
        with locks.row("unused"):
            pass
        assert locks.prune_names(60) == 1
    engine.dispose()
