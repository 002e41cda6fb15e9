"""The SQL functions under faults: no two holders, fences in order, nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.errors import ObjectNotInPrerequisiteState
from sqlalchemy import make_url

from dblock import LockLost, Locks
from dblock.dialects.query import Query
from dblock.protocol import commands
from dblock.schema import upgrade
from tests.conftest import Database, NewDatabase, OwnServers, find_or_skip
from tests.faults.database import WAITING, epoch, forget, pause, shorten_pause
from tests.faults.proxy import Lose, Proxy
from tests.servers import PgBouncer, PostgreSQL, execute
from tests.sql_functions.caller import Caller, token
from tests.support import LONG, SECONDS, SHORT, Threads, eventually


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    """A server that tests crash, and leave running."""
    with find_or_skip(PostgreSQL) as server:
        yield server


@pytest.fixture
def url(server: PostgreSQL, new_database: NewDatabase) -> str:
    """A database that only functions use."""
    made = new_database("postgresql", server=server).url
    upgrade(made, functions=True)
    return made


def backend(server: PostgreSQL) -> None:
    server.crash_backend()


def immediate(server: PostgreSQL) -> None:
    server.stop_immediately()
    server.start()


CRASHES = (backend, immediate, PostgreSQL.restart)


@pytest.mark.parametrize("crash", CRASHES)
def test_durable_holds_outlive_a_crash(
    server: PostgreSQL, url: str, crash: Callable[[PostgreSQL], None]
) -> None:
    """The first call after it, of whichever function, writes the witness again."""
    mine, others = token(), token()
    with Caller(url) as caller:
        caller.acquire("report", mine, LONG)
        caller.acquire("other", others, LONG)
    before = epoch(url)
    crash(server)
    with Caller(url) as caller:
        assert caller.renew("report", mine, LONG)[0] == 1
        assert caller.acquire("report", others).fence is None
        assert caller.acquire("new", others, LONG).fence == 1
    crash(server)
    with Caller(url) as caller:
        assert caller.acquire("report", mine, LONG).fence == 1  # it had it all the time
        assert caller.release("report", mine)
    crash(server)
    with Caller(url) as caller:
        assert caller.acquire("report", others, LONG).fence == 2
        assert caller.renew("other", others, LONG)[0] == 1
    assert epoch(url) == before


@pytest.mark.parametrize("crash", CRASHES[:2])
def test_after_a_crash_of_volatile_tables_there_is_a_pause(
    server: PostgreSQL, url: str, crash: Callable[[PostgreSQL], None]
) -> None:
    upgrade(url, durability="volatile")
    mine, others = token(), token()
    with Caller(url) as caller:
        fence = caller.acquire("report", mine, 10 * LONG).fence
        assert fence is not None
    crash(server)
    with Caller(url) as caller:
        refused = caller.acquire("report", others, LONG)
        assert (refused.fence, refused.holder) == (None, None)
        assert refused.frees_in is not None
        assert LONG < refused.frees_in <= 10 * LONG
        assert caller.renew("report", mine, LONG) == (None, None)
        assert not caller.release("report", mine)
        with Locks(url) as locks:
            assert "nothing is granted for another" in str(locks.lease("report")._acquire(0))
        shorten_pause(url, SHORT)
        eventually(lambda: pause(url) < 0)
        later = caller.acquire("report", others, LONG).fence
        assert later is not None
        assert later > fence


def test_a_promoted_standby_grants_nothing_for_the_longest_ttl(
    own_server: OwnServers, new_database: NewDatabase
) -> None:
    """The functions alone find out, and begin the pause. Who held a name has lost it."""
    primary = own_server(PostgreSQL)
    standby = primary.standby()
    db = new_database("postgresql", server=primary)
    upgrade(db.url, functions=True)
    mine, others = token(), token()
    with Caller(db.url) as caller:
        fence = caller.acquire("report", mine, 10 * LONG).fence
    assert fence is not None
    name = str(make_url(db.url).database)
    written = primary.flushed()
    eventually(lambda: standby.has_replayed(written))
    with Caller(standby.url_for(name)) as caller, pytest.raises(psycopg.Error):
        caller.acquire("report", mine)  # it is no primary yet
    primary.kill()
    standby.promote()
    url = standby.url_for(name)
    with Caller(url) as caller:
        assert caller.renew("report", mine, LONG) == (None, None)
        refused = caller.acquire("other", others, LONG)
        assert (refused.fence, refused.holder) == (None, None)
        assert refused.frees_in is not None
        assert LONG < refused.frees_in <= 10 * LONG
        execute(url, "UPDATE dblock_lock SET expires_at = clock_timestamp()")
        shorten_pause(url, SHORT)
        eventually(lambda: pause(url) < 0)
        assert caller.renew("report", mine, LONG) == (None, None)
        later = caller.acquire("report", others, LONG).fence
        assert later is not None
        assert later > fence


def test_a_failover_that_a_function_finds_is_one_for_users_of_dblock(url: str) -> None:
    """And the reverse: both write the same witness."""
    with Locks(url) as locks, Caller(url) as caller:
        mine = token()
        lease = locks.lease("report", ttl=LONG, renew=False)
        assert lease.acquire()
        assert caller.acquire("other", mine, LONG).fence is not None
        execute(url, "UPDATE dblock_epoch SET server = 'another'")
        forget(url)
        assert caller.acquire("new", token(), LONG).frees_in is not None
        with pytest.raises(LockLost):
            lease.renew()
        assert caller.renew("other", mine, LONG) == (None, None)


MOMENTS = {"before": Lose.REQUEST, "after": Lose.REPLY, "late": Lose.TIMELINESS}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("function", ["acquire", "renew", "release"])
def test_a_call_whose_reply_was_lost_is_repeated(url: str, function: str, moment: str) -> None:
    """With the same token, on another connection: no second hold, and nothing stays behind."""
    mine = token()
    with Proxy(url) as proxy, Caller(url) as direct:
        rule = proxy.lose(MOMENTS[moment], f"dblock_{function}".encode())
        with Caller(proxy.url) as caller:
            if function != "acquire":
                assert direct.acquire("report", mine, LONG).fence == 1
            with pytest.raises(psycopg.OperationalError):
                getattr(caller, function)("report", mine)
        assert rule.done.wait(SECONDS)
        with Caller(proxy.url) as caller:
            if function == "acquire":
                assert caller.acquire("report", mine, LONG).fence == 1
            elif function == "renew":
                assert caller.renew("report", mine, LONG)[0] == 1
            else:
                assert caller.release("report", mine) == (moment != "after")
            if moment == "late":
                rule.deliver()
            if function != "release":
                assert caller.show("report").fence == 1
                assert caller.release("report", mine)
        assert direct.show("report").holder is None
        assert direct.acquire("report", token()).fence == 2


def test_a_session_that_ends_in_its_transaction_leaves_nothing(url: str) -> None:
    with Caller(url) as watching:
        with Caller(url) as caller:
            caller.run("BEGIN")
            assert caller.acquire("report", token(), LONG).fence == 1
            pid = caller.connection.info.backend_pid
            watching.run("SELECT pg_terminate_backend(%s)", pid)
        eventually(lambda: watching.acquire("report", token()).fence == 1)


def test_behind_a_pooler(url: str, server: PostgreSQL) -> None:
    """Each call may be in another session."""
    name = str(make_url(url).database)
    with find_or_skip(lambda: PgBouncer(server)) as pooler, Caller(pooler.url_for(name)) as caller:
        mine = token()
        assert caller.acquire("report", mine, LONG).fence == 1
        assert caller.renew("report", mine, LONG)[0] == 1
        assert caller.acquire("report", token(), LONG).holder == "a caller"
        assert caller.release("report", mine)


def test_volatile_tables_with_synchronous_standbys_are_refused(own_server: OwnServers) -> None:
    """There a TTL has to be on a standby before it is granted, which takes two transactions."""
    server = own_server(PostgreSQL)
    url = server.url
    upgrade(url, durability="volatile", functions=True)
    with Caller(url) as caller:
        assert caller.acquire("report", token(), 10.0).fence == 1
        before = epoch(url)
        execute(
            url,
            "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
            "SELECT pg_reload_conf()",
        )
        named = "SELECT current_setting('synchronous_standby_names')"
        eventually(lambda: caller.run(named) == [("nobody",)])
        caller.run("BEGIN")
        with pytest.raises(ObjectNotInPrerequisiteState, match="synchronous standbys"):
            caller.acquire("other", token(), 20.0)
        caller.run("ROLLBACK")
        assert epoch(url) == before
        assert caller.acquire("other", token(), 10.0).fence == 1


def test_a_witness_that_cannot_be_written_is_told(url: str) -> None:
    execute(url, "ALTER TABLE dblock_witness SET LOGGED", "TRUNCATE dblock_witness")
    with (
        Caller(url) as caller,
        pytest.raises(ObjectNotInPrerequisiteState, match="has to be UNLOGGED"),
    ):
        caller.acquire("report", token())


def test_a_call_gives_up_on_a_row_that_is_in_use_for_long(url: str) -> None:
    """It fails rather than telling something untrue, and rather than waiting for ever."""
    mine = token()
    with Caller(url) as caller, Caller(url) as other:
        caller.acquire("report", mine, 10 * LONG)
        other.run("BEGIN")
        other.run("SELECT FROM dblock_lock FOR UPDATE")
        calls: tuple[Callable[[], Any], ...] = (
            lambda: caller.renew("report", mine),
            lambda: caller.release("report", mine),
        )
        for call in calls:
            with pytest.raises(psycopg.errors.LockNotAvailable):
                call()
        assert caller.acquire("report", token()).holder == "a caller"
        other.run("ROLLBACK")
        assert caller.release("report", mine)


@pytest.mark.parametrize("asks", ["a function", "dblock"])
def test_transactions_that_record_a_ttl_wait_for_each_other(
    db: Database, threads: Threads, asks: str
) -> None:
    """One of them was late to write the witness, and so has locked the epoch's row."""
    longest = 3 * LONG

    def waiting() -> None:
        eventually(lambda: execute(db.url, WAITING) == [(1,)])

    with (
        Locks(db.url) as locks,
        Caller(db.url) as first,
        Caller(db.url) as late,
        Caller(db.url) as other,
    ):
        locks.list()  # it knows its tables from now on

        def send(caller: Caller, query: Query[int]) -> None:
            caller.connection.execute(query.sql, query.params)

        def ask() -> None:
            if asks == "dblock":  # it has announced the TTL in an earlier transaction
                send(other, locks._database.dialect.query(commands.RecordTtl(longest)))
            else:
                assert other.acquire("other", token(), longest).fence is not None

        execute(db.url, "TRUNCATE dblock_witness")
        first.run("BEGIN")
        assert first.acquire("first", token(), LONG).fence is not None
        send(first, locks._database.dialect.query(commands.AnnounceTtl(longest)))
        late.run("BEGIN")
        granted = threads.start(late.acquire, "late", token(), LONG)
        waiting()
        first.run("COMMIT")
        assert granted.result(SECONDS).fence is not None
        asking = threads.start(ask)
        waiting()
        assert late.acquire("later", token(), 2 * LONG).fence is not None
        late.run("COMMIT")
        asking.result(SECONDS)


def test_many_begin_at_once(db: Database, threads: Threads) -> None:
    """All of them find no witness, and one of them writes it; each records a longer TTL."""

    def call(number: int) -> int | None:
        with Caller(db.url) as caller:
            for turn in range(5):
                if turn % 2 == 0:
                    execute(db.url, "TRUNCATE dblock_witness") if number == 0 else None
                mine = token()
                got = caller.acquire(f"name {number}", mine, 10.0 * (turn + 1) + number)
                if got.fence is not None:
                    caller.release(f"name {number}", mine)
        return None

    before = epoch(db.url).epoch
    for number in range(6):
        threads.start(call, number)
    threads.join()
    assert epoch(db.url).epoch == before  # nothing was lost
    with Caller(db.url) as caller:
        assert caller.acquire("name 1", token(), 55.0).fence is not None
