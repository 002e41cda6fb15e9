"""What a lock costs: statements, round trips, writes and syncs, counted where they happen."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, make_url

from dblock import Lease, LockLost, Locks
from dblock.protocol import commands
from tests.conftest import Database, NewDatabase, OwnServers
from tests.faults.database import QUEUED
from tests.faults.proxy import SECONDS, Proxy
from tests.servers import PostgreSQL, execute
from tests.support import Threads, eventually

REFUSED = 50
PAIRS = 100
HAND_OFFS = 50

#: Ends a request to PostgreSQL, unless that is a simple query.
SYNC = b"S\0\0\0\4"


# --- statements --------------------------------------------------------------------------------


class Counter:
    """Counts what one Locks sends: flights on the wire, or statements where there is none."""

    def __init__(self, locks: Locks, sent: Callable[[], int]) -> None:
        self.locks = locks
        self._sent = sent

    def of(self, call: Callable[[], object]) -> int:
        before = self._sent()
        call()
        return self._sent() - before


@contextmanager
def counting(db: Database) -> Iterator[Counter]:
    if db.kind == "sqlite":
        traced: list[str] = []

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(str(make_url(db.url).database), check_same_thread=False)
            connection.set_trace_callback(traced.append)
            return connection

        with Locks(create_engine(db.url, creator=connect)) as locks:
            # A PRAGMA is a setting of the connection: it reads no file.
            yield Counter(locks, lambda: sum(not one.startswith("PRAGMA") for one in traced))
        return
    with Proxy(db.url) as proxy, Locks(proxy.url) as locks:
        yield Counter(locks, lambda: len(proxy.requests))


def test_an_uncontended_lease_is_one_statement_to_take_and_one_to_give_back(db: Database) -> None:
    with counting(db) as counter:
        with counter.locks.lease("first"):  # makes the connection and looks at the schema
            pass
        for name in ("new", "first", "another new", "new"):
            lease = counter.locks.lease(name)
            assert counter.of(lease.acquire) == 1, name
            assert counter.of(lease.check) == 0
            assert counter.of(lease.renew) == 1
            assert counter.of(lease.release) == 1, name


def test_a_lease_by_its_token_is_one_statement_for_each_call(db: Database) -> None:
    with counting(db) as counter:
        with counter.locks.lease("report"):  # makes the connection, and the name's row
            pass
        detached = counter.locks.detached("report")
        assert counter.of(detached.take) == 1
        assert counter.of(detached.renew) == 1
        assert counter.of(detached.take) == 3  # it was refused, looked, and renewed the hold
        assert counter.of(detached.release) == 1


def test_to_show_a_name_only_the_tables_are_read_that_can_have_a_part_of_it(db: Database) -> None:
    with counting(db) as counter:
        with counter.locks.lease("report"):
            counter.locks.show("report")  # from then on it is known where the tables are
            assert counter.of(lambda: counter.locks.show("report")) == 3  # row, waiters, run
        # A row lock is looked for where the database shows it without a waiter.
        looks_for_row_lock = int(counter.locks._database.dialect.traits.sees_row_locks)
        free = counter.of(lambda: counter.locks.show("report"))
        new = counter.of(lambda: counter.locks.show("new"))  # without a run, as it had no lease
        assert (free, new) == (3 + looks_for_row_lock, 2 + looks_for_row_lock)


def test_a_row_lock_in_the_users_transaction(new_database: NewDatabase) -> None:
    """It has a savepoint around it only where there is something that it has to keep."""
    db = new_database("postgresql", migrated=True)
    with Proxy(db.url) as proxy, Locks(db.url) as locks:
        engine = create_engine(proxy.url)

        def requests(*before: str) -> int:
            with engine.connect() as on:
                for statement in before:
                    on.exec_driver_sql(statement)
                sent = len(proxy.requests)
                assert locks.row("report", on=on).acquire()
                # A request may arrive in two parts. Its end is what the client waits after.
                return sum(
                    part.count(SYNC) + part.startswith(b"Q") for part in proxy.requests[sent:]
                )

        with locks.row("report"):  # there is a row from now on
            pass
        requests()  # of the first the server is asked what it is
        assert requests() == 1  # BEGIN goes along
        assert requests("SELECT 1") == 3  # the savepoint, the statement, the savepoint's end
        engine.dispose()


def test_a_takeover_is_one_statement(db: Database) -> None:
    with counting(db) as counter:
        before = counter.locks.lease("report", ttl=0.1, renew=False)
        assert before.acquire()
        with Locks(db.url) as other:
            deadline = time.monotonic() + SECONDS
            while other.lease("report").locked():
                assert time.monotonic() < deadline
        # Another Locks is another process to dblock: this thread waits for nobody it knows.
        lease = counter.locks.lease("report")
        assert counter.of(lease.acquire) == 1
        assert lease.fence == before.fence + 1


def test_who_was_refused_looks_before_it_asks_again(db: Database) -> None:
    with Locks(db.url) as other, counting(db) as counter:
        held = other.lease("report")
        mine = counter.locks.lease("report", wait=0)
        with held:
            assert not mine.acquire()
            assert counter.of(mine.acquire) == 1
            assert not mine.held
        assert counter.of(mine.acquire) == 2  # it looks once more, and takes it
        mine.release()
        assert counter.of(mine.acquire) == 1


def test_no_statement_of_one_name_reads_the_whole_table(new_database: NewDatabase) -> None:
    """Not even where PostgreSQL has never counted its rows, and takes it for a small one.

    A renewal is for many names.
    """
    db = new_database("postgresql", migrated=True)
    with Locks(db.url) as locks:
        name, token, owner, ttl, ticket = "report", "token", "owner", 30.0, "0123456789abcdef"
        dialect = locks._database.dialect
        locks.show(name)  # from then on it is known where the tables are
        queries = (
            dialect.query(commands.Grant(name, token, owner, ttl)),
            dialect.query(commands.Join(name, token, owner, ttl, ticket)),
            dialect.query(commands.Take(name, token, owner, ttl)),
            dialect.query(commands.Release(name, token)),
            dialect.query(commands.PassOn(name, token)),
            dialect.query(commands.Leave(name, token, ticket)),
            dialect.query(commands.Guard(name, token, 1)),
            dialect.query(commands.Look((name,))),
            dialect.query(commands.LookQueued(name, token, ticket)),
            dialect.query(commands.Create(name)),
            dialect.query(commands.SelectForUpdate(name, None, borrowed=False)),
            dialect.query(commands.SelectForUpdate(name, None, borrowed=True)),
        )
    with psycopg.connect(
        make_url(db.url).set(drivername="postgresql").render_as_string(hide_password=False),
        autocommit=True,
    ) as connection:
        for query in queries:
            plan = connection.execute(f"EXPLAIN {query.sql}", query.params).fetchall()
            assert not [line for (line,) in plan if "Seq Scan on dblock_lock" in line], query.sql


# --- a refused try writes nothing --------------------------------------------------------------


def refuse(db: Database, times: int = REFUSED) -> None:
    """Try a name in vain."""
    with Locks(db.url) as locks:
        for _ in range(times):
            assert not locks.lease("busy").acquire(blocking=False)


@pytest.fixture
def quiet(own_server: OwnServers) -> PostgreSQL:
    """A durable server which writes no WAL, and syncs none, of its own accord."""
    server = own_server(lambda: PostgreSQL(durable=True))
    execute(
        server.url,
        *(
            f"ALTER SYSTEM SET {setting}"
            for setting in (
                "autovacuum = off",
                "checkpoint_timeout = '1d'",
                "wal_writer_delay = '10s'",
                "wal_level = minimal",  # else the background writer logs running transactions
                "max_wal_senders = 0",
            )
        ),
    )
    server.restart()
    return server


STATE = {
    "postgresql": "SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot()), "
    "ctid, xmin, xmax, l.* FROM dblock_lock AS l",
    "mariadb": "SELECT (SELECT variable_value FROM information_schema.global_status "
    "WHERE variable_name = 'Innodb_rows_updated'), (SELECT variable_value FROM "
    "information_schema.global_status WHERE variable_name = 'Innodb_rows_inserted'), "
    "l.* FROM dblock_lock AS l",
}


@pytest.mark.parametrize("strategy", ["lease", "row"])
def test_a_refused_try_writes_nothing_on_postgresql(
    quiet: PostgreSQL, new_database: NewDatabase, strategy: str
) -> None:
    db = new_database("postgresql", migrated=True, server=quiet)
    with Locks(db.url) as locks:
        locks.lease("busy").acquire()
        if strategy == "row":
            locks.release("busy", force=True)
        holder = locks.row("busy") if strategy == "row" else None
        refuse(db, 0)
        if holder is not None:
            assert holder.acquire()
        before = execute(db.url, "CHECKPOINT", STATE[db.kind])
        refuse(db)
        assert execute(db.url, STATE[db.kind]) == before
        if holder is not None:
            holder.release()


def exhaust(db: Database, times: int = REFUSED) -> None:
    """Ask for places of a rate limit that there are not."""
    with Locks(db.url) as locks:
        for _ in range(times):
            assert not locks.rate("api", 1, per=3600).acquire()


def test_a_refused_call_writes_nothing_on_postgresql(
    quiet: PostgreSQL, new_database: NewDatabase
) -> None:
    db = new_database("postgresql", migrated=True, server=quiet)
    state = STATE[db.kind].replace("dblock_lock", "dblock_value")
    with Locks(db.url) as locks:
        assert locks.rate("api", 1, per=3600).acquire()
    exhaust(db, 1)
    before = execute(db.url, "CHECKPOINT", state)
    exhaust(db)
    assert execute(db.url, state) == before


def test_a_refused_call_writes_nothing_on_mariadb(new_database: NewDatabase) -> None:
    db = new_database("mariadb", migrated=True)
    state = STATE[db.kind].replace("dblock_lock", "dblock_value")
    with Locks(db.url) as locks:
        assert locks.rate("api", 1, per=3600).acquire()
    before = execute(db.url, state)
    exhaust(db)
    assert execute(db.url, state) == before


def test_a_refused_try_writes_nothing_on_mariadb(new_database: NewDatabase) -> None:
    db = new_database("mariadb", migrated=True)
    with Locks(db.url) as locks:
        assert locks.lease("busy").acquire()
        before = execute(db.url, STATE[db.kind])
        refuse(db)
        assert execute(db.url, STATE[db.kind]) == before


def test_a_refused_try_writes_nothing_on_sqlite(new_database: NewDatabase) -> None:
    db = new_database("sqlite", migrated=True)
    file = str(make_url(db.url).database)
    connections: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        connections.append(sqlite3.connect(file, check_same_thread=False))
        return connections[-1]

    with Locks(db.url) as locks, Locks(create_engine(db.url, creator=connect)) as other:
        assert locks.lease("busy").acquire()
        onlooker = sqlite3.connect(file)

        def state() -> tuple[object, ...]:
            (version,) = onlooker.execute("PRAGMA data_version").fetchone()
            return version, Path(f"{file}-wal").stat().st_size, Path(file).read_bytes()

        assert not other.lease("busy").acquire(blocking=False)
        before = state()
        for _ in range(REFUSED):
            assert not other.lease("busy").acquire(blocking=False)
        assert state() == before
        assert [connection.total_changes for connection in connections] == [0]
        onlooker.close()


# --- syncs -------------------------------------------------------------------------------------


def syncs(server: PostgreSQL) -> int:
    """How often the server has synced its WAL; right when no session has unreported work."""
    ((version,),) = execute(server.url, "SELECT current_setting('server_version_num')::int")
    query = "SELECT wal_sync FROM pg_stat_wal"
    if version >= 180000:
        query = "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'"
    ((count,),) = execute(server.url, query)
    return int(count)


def sessions_gone(url: str) -> None:
    """Wait for the end of the other sessions: they report their numbers when they go."""
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
        "AND pid <> pg_backend_pid()"
    )
    deadline = time.monotonic() + SECONDS
    while execute(url, others) != [(0,)]:
        assert time.monotonic() < deadline


def release_even_if_lost(lease: Lease) -> None:
    """A disk that stalls for longer than the first term of a hold may lose it: the next waiter is
    granted the name all the same, and it is one more sync."""
    try:
        lease.release()
    except LockLost as loss:
        if loss.reason != "expired":
            raise


def test_a_hand_off_is_on_disk_before_it_is_told(
    quiet: PostgreSQL, new_database: NewDatabase, threads: Threads
) -> None:
    """And nothing else of it is: who joins the queue may be lost in a crash."""
    db = new_database("postgresql", migrated=True, server=quiet)
    sessions_gone(quiet.url)
    before = syncs(quiet)
    with Locks(db.url) as one, Locks(db.url) as other:
        holder, waiter = one.lease("report", ttl=SECONDS), other.lease("report", ttl=SECONDS)
        assert holder.acquire()
        for _ in range(HAND_OFFS):
            waiting = threads.start(waiter.acquire, timeout=SECONDS)
            eventually(lambda: execute(db.url, QUEUED) == [(1,)])
            release_even_if_lost(holder)
            assert waiting.result(SECONDS)
            holder, waiter = waiter, holder
        threads.run(release_even_if_lost, holder)
    sessions_gone(quiet.url)
    assert HAND_OFFS <= syncs(quiet) - before <= 1.5 * HAND_OFFS


def test_a_pair_of_acquire_and_release_is_one_sync(
    quiet: PostgreSQL, new_database: NewDatabase
) -> None:
    db = new_database("postgresql", migrated=True, server=quiet)
    sessions_gone(quiet.url)
    before = syncs(quiet)
    with Locks(db.url) as locks:
        lease = locks.lease("report")
        for _ in range(PAIRS):
            assert lease.acquire()
            lease.release()
    sessions_gone(quiet.url)
    # At least one each, or the grants were not on disk when they were told.
    assert PAIRS <= syncs(quiet) - before <= 1.2 * PAIRS
