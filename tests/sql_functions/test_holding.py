"""The promises of a lease, kept for callers of the SQL functions and users of dblock together."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future
from contextlib import ExitStack

import psycopg
import pytest

from dblock import Locks, NotAcquired
from dblock.dialects.tickets import TICKET, UNCALLED
from dblock.schema import upgrade
from tests.conftest import Database, NewDatabase
from tests.faults.database import epoch, lapse
from tests.servers import execute
from tests.sql_functions.caller import Acquired, Caller, token
from tests.support import LONG, SECONDS, Threads, eventually
from tests.worlds.world import World

# Whether a session waits for a lock of another's, by its process.
WAITS = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
TICKETS = f"""UPDATE dblock_lock SET waiters = (SELECT pg_catalog.array_agg(
    rpad('{UNCALLED}' || n, {TICKET}, '-')) FROM generate_series(1, 1000) AS n)"""


def waits(caller: Caller, by: Caller) -> bool:
    return by.run(WAITS, caller.connection.info.backend_pid) == [(True,)]


def test_a_caller_and_a_user_of_dblock_keep_each_other_out(
    db: Database, caller: Caller, world: World
) -> None:
    """And the fences go on, whichever way the name was held before."""
    mine = token()
    with world.locks(db.url) as locks:
        for turn in range(3):
            got = caller.acquire("report", mine, owner="psql of Ada")
            assert got.fence == 2 * turn + 1
            with pytest.raises(NotAcquired, match="psql of Ada"), locks.lease("report", wait=0):
                pass
            with pytest.raises(NotAcquired), locks.row("report", wait=0):
                pass
            assert caller.release("report", mine)
            with locks.lease("report", wait=0) as lease:
                assert lease.fence == 2 * turn + 2
                refused = caller.acquire("report", mine)
                assert refused.fence is None
                assert refused.holder == locks.show("report").owner
            with locks.row("report", wait=0):
                assert caller.acquire("report", mine) == Acquired(None, None, None, 0.0)


def test_a_refusal_tells_the_holder_and_when_the_name_is_free(
    caller: Caller, other: Caller
) -> None:
    got = caller.acquire("report", token(), LONG, owner="ada")
    refused = other.acquire("report", token(), LONG, owner="bob")
    assert got == Acquired(1, got.expires_in, None, None)
    assert refused == Acquired(None, None, "ada", refused.frees_in)
    assert got.expires_in is not None
    assert refused.frees_in is not None
    assert 0 < refused.frees_in < got.expires_in <= LONG


def test_a_repeat_with_the_token_is_the_same_hold(caller: Caller, other: Caller) -> None:
    """It renews. With the token of another call it is another's."""
    mine = token()
    first = caller.acquire("report", mine, LONG)
    repeated = other.acquire("report", mine, 10 * LONG)
    assert repeated.fence == first.fence == 1
    assert repeated.expires_in is not None
    assert repeated.expires_in > LONG
    assert (repeated.holder, repeated.frees_in) == (None, None)
    assert other.acquire("report", token()).fence is None
    assert other.release("report", mine)
    assert other.acquire("report", mine).fence == 2


@pytest.mark.parametrize("known", [False, True])
def test_a_repeat_waits_for_the_try_that_is_under_way(
    caller: Caller, other: Caller, db: Database, threads: Threads, known: bool
) -> None:
    """A client that lost its connection asks again before the server has ended the first try."""
    mine = token()
    if known:
        caller.acquire("report", mine)
        caller.release("report", mine)
    caller.run("BEGIN")
    first = caller.acquire("report", mine)
    repeat: Future[Acquired] = threads.start(other.acquire, "report", mine)
    with Caller(db.url) as watching:
        eventually(lambda: waits(other, watching))
    caller.run("COMMIT")
    assert repeat.result(SECONDS).fence == first.fence


@pytest.mark.parametrize("known", [False, True])
def test_a_release_waits_for_the_try_that_is_under_way(
    caller: Caller, other: Caller, db: Database, threads: Threads, known: bool
) -> None:
    """So a client that gives up leaves nothing behind."""
    mine = token()
    if known:
        caller.acquire("report", mine)
        caller.release("report", mine)
    caller.run("BEGIN")
    assert caller.acquire("report", mine).fence is not None
    released: Future[bool] = threads.start(other.release, "report", mine)
    with Caller(db.url) as watching:
        eventually(lambda: waits(other, watching))
    caller.run("COMMIT")
    assert released.result(SECONDS)
    assert caller.show("report").holder is None


def test_a_waiter_of_dblock_gets_what_a_caller_releases(
    db: Database, caller: Caller, world: World, threads: Threads
) -> None:
    """It is in the queue, so it is woken: its own polls are further apart than the test is long."""
    mine = token()
    caller.acquire("report", mine, 10 * LONG)
    with world.locks(db.url) as locks:
        waiter = locks.lease("report", ttl=LONG)
        waits: Future[bool] = threads.start(waiter.acquire)
        eventually(lambda: caller.show("report").waiters == 1)
        queued = "SELECT cardinality(waiters) FROM dblock_lock"
        eventually(lambda: execute(db.url, queued) == [(1,)])
        assert caller.release("report", mine)
        assert waits.result(SECONDS)
        assert waiter.fence == 2
        assert caller.acquire("report", mine).fence is None
        waiter.release()
    assert caller.acquire("report", mine).fence == 3


def test_a_caller_does_not_overtake_the_waiters(caller: Caller) -> None:
    """Of a name that has expired those in the queue have the first chance."""
    first = token()
    caller.acquire("report", first)
    caller.run("UPDATE dblock_lock SET expires_at = clock_timestamp()")
    assert caller.acquire("report", token()).fence == 2
    caller.run("UPDATE dblock_lock SET expires_at = clock_timestamp()")
    caller.run(TICKETS)
    assert caller.acquire("report", token()) == Acquired(None, None, None, 0.0)


def test_a_release_is_of_the_tokens_hold_alone(caller: Caller, other: Caller) -> None:
    mine, others = token(), token()
    caller.acquire("report", mine)
    assert not other.release("report", others)
    assert caller.release("report", mine)
    assert not caller.release("report", mine)
    assert other.acquire("report", others).fence == 2
    assert not caller.release("report", mine)
    assert not caller.release("never", mine)
    assert caller.show("report").holder == "a caller"


def test_a_renewal_sets_the_expiry_and_tells_a_loss(caller: Caller, other: Caller) -> None:
    mine = token()
    fence = caller.acquire("report", mine, LONG).fence
    same, expires_in = caller.renew("report", mine, 10 * LONG)
    assert (same, expires_in is not None and expires_in > LONG) == (fence, True)
    same, expires_in = caller.renew("report", mine, LONG)
    assert (same, expires_in is not None and expires_in <= LONG) == (fence, True)
    assert other.renew("report", token()) == (None, None)
    assert other.renew("never", mine) == (None, None)
    caller.run("UPDATE dblock_lock SET expires_at = clock_timestamp()")
    assert caller.renew("report", mine) == (None, None)
    assert other.acquire("report", token()).fence == 2
    assert caller.renew("report", mine) == (None, None)


def test_a_renewal_waits_for_a_row_in_use(
    caller: Caller, other: Caller, db: Database, threads: Threads
) -> None:
    """A lease whose row another session has locked for a moment is not lost."""
    mine = token()
    caller.acquire("report", mine)
    other.run("BEGIN")
    other.run("SELECT FROM dblock_lock FOR UPDATE")
    renewed: Future[tuple[int | None, float | None]] = threads.start(caller.renew, "report", mine)
    with Caller(db.url) as watching:
        eventually(lambda: waits(caller, watching))
    other.run("ROLLBACK")
    assert renewed.result(SECONDS)[0] == 1


def test_a_guard_does_not_delay_a_renewal(db: Database, caller: Caller, other: Caller) -> None:
    mine = token()
    caller.acquire("report", mine)
    other.run("BEGIN")
    other.run("SELECT FROM dblock_lock FOR KEY SHARE")
    assert caller.renew("report", mine)[0] == 1
    other.run("ROLLBACK")


def test_a_longer_ttl_is_recorded_before_it_is_granted(db: Database, caller: Caller) -> None:
    """After a crash nothing is granted for that long. Nothing but the functions records it here."""
    mine = token()
    caller.acquire("report", mine, 10.0)
    assert epoch(db.url).longest_ttl == 10.0
    caller.renew("report", mine, 20.0)
    assert epoch(db.url).longest_ttl == 20.0
    caller.acquire("report", mine, 40.0)
    caller.acquire("other", token(), 30.0)
    assert epoch(db.url).longest_ttl == 40.0


def test_a_day_later_the_ttl_is_recorded_again(db: Database, caller: Caller) -> None:
    mine = token()
    assert caller.acquire("report", mine, 10.0).fence == 1
    lapse(db.url)
    assert caller.renew("report", mine, 10.0)[0] == 1
    lapse(db.url)
    assert caller.release("report", mine)
    assert caller.acquire("report", mine, 10.0).fence == 2
    query = "SELECT valid_until > clock_timestamp() FROM dblock_witness"
    assert execute(db.url, query) == [(True,)]


def test_in_a_transaction_the_name_is_taken_and_released_with_it(
    db: Database, caller: Caller, other: Caller
) -> None:
    mine = token()
    caller.run("BEGIN")
    assert caller.acquire("report", mine).fence == 1
    assert other.show("report").holder is None
    caller.run("ROLLBACK")
    assert caller.acquire("report", mine).fence == 1
    caller.run("BEGIN")
    assert caller.acquire("new", mine).fence == 1
    caller.run("COMMIT")
    assert other.acquire("new", token()).holder == "a caller"
    caller.run("BEGIN")
    assert caller.release("report", mine)
    assert other.acquire("report", token()).fence is None
    caller.run("ROLLBACK")
    assert other.show("report").holder == "a caller"


def test_the_transaction_of_a_caller_keeps_its_settings(caller: Caller) -> None:
    """But for a grant, which is durable whatever the session says: so is its transaction then."""
    mine = token()
    settings = "SELECT current_setting('lock_timeout'), current_setting('search_path')"
    durable = "SELECT current_setting('synchronous_commit')"
    before = caller.run(settings)
    caller.acquire("report", mine)
    caller.run("BEGIN")
    caller.renew("report", mine)
    caller.release("report", mine)
    caller.release("report", mine)
    assert caller.run(durable) == [("on",)]
    assert caller.run(settings) == before
    caller.run("COMMIT")
    caller.run("SET synchronous_commit = off")
    caller.run("BEGIN")
    caller.acquire("report", mine)
    assert caller.run(durable) == [("on",)]
    caller.run("COMMIT")
    assert caller.run(durable) == [("off",)]


def test_in_a_savepoint_nothing_is_recorded(db: Database, caller: Caller, other: Caller) -> None:
    """Nobody would believe such a record, and every hold would end with its epoch."""
    mine, others = token(), token()
    caller.run("BEGIN")
    caller.run("SAVEPOINT here")
    with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="savepoint"):
        caller.acquire("report", mine)
    caller.run("ROLLBACK")
    assert other.acquire("other", others, 10.0).fence == 1
    before = epoch(db.url)
    caller.run("BEGIN")
    caller.run("SAVEPOINT here")
    with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="savepoint"):
        caller.acquire("report", mine, 20.0)
    caller.run("ROLLBACK TO here")
    assert caller.acquire("report", mine, 10.0).fence == 1  # nothing has to be recorded
    caller.run("COMMIT")
    assert epoch(db.url) == before
    assert other.renew("other", others, 10.0)[0] == 1
    assert other.show("report").holder == "a caller"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_stricter_isolation_level_is_refused(caller: Caller, level: str) -> None:
    mine = token()
    caller.acquire("report", mine)
    calls = ((caller.acquire, "new"), (caller.renew, "report"), (caller.release, "report"))
    for call, name in calls:
        caller.run(f"BEGIN ISOLATION LEVEL {level}")
        with pytest.raises(psycopg.errors.InvalidTransactionState, match=level):
            call(name, mine)
        caller.run("ROLLBACK")
    caller.run(f"BEGIN ISOLATION LEVEL {level}")
    assert caller.show("report").holder == "a caller"
    caller.run("ROLLBACK")


def test_under_unusual_settings_of_the_server_and_the_role(
    new_database: NewDatabase, world: World
) -> None:
    """None changes what a function means. The role's isolation level has to be set back."""
    db = new_database("hostile postgresql")
    upgrade(db.url, functions=True)
    mine, others = token(), token()
    with Caller(db.locks_url) as caller, world.locks(db.locks_url) as locks:
        with pytest.raises(psycopg.errors.InvalidTransactionState, match="SERIALIZABLE"):
            caller.acquire("report", mine)
        caller.run("SET default_transaction_isolation = 'read committed'")
        for turn in range(3):
            assert caller.acquire("report", mine, 10.0 + turn).fence == 2 * turn + 1
            assert caller.acquire("report", mine, 20.0 + turn).fence == 2 * turn + 1
            assert caller.acquire("report", others).holder == "a caller"
            assert caller.renew("report", mine, 30.0 + turn)[0] == 2 * turn + 1
            with pytest.raises(NotAcquired), locks.lease("report", wait=0):
                pass
            assert caller.release("report", mine)
            with locks.lease("report", wait=0) as lease:
                assert lease.fence == 2 * turn + 2
                assert caller.acquire("report", mine).fence is None
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            caller.acquire("report", "\\" * 32)
        assert caller.gate("report", 2) == 2
        with pytest.raises(psycopg.DatabaseError, match="stale"):
            caller.gate("report", 1)


def test_what_is_shown_of_a_name(db: Database, caller: Caller) -> None:
    mine = token()
    assert caller.show("report") == (None, 0, None, None, 0)
    caller.acquire("report", mine, LONG, owner="ada")
    holder, fence, since, expires_in, waiting = caller.show("report")
    with Locks(db.url) as locks:
        told = locks.show("report")
    assert (holder, fence, since, waiting) == ("ada", 1, told.acquired_at, 0)
    assert expires_in is not None
    assert 0 < expires_in <= LONG
    caller.release("report", mine)
    assert caller.show("report") == (None, 1, None, None, 0)


@pytest.mark.parametrize("rival", ["callers", "both"])
def test_many_at_once(db: Database, threads: Threads, rival: str) -> None:
    """At most one holder at a time, and its fence is above that of the one before."""
    names, count = ("a", "b", "c"), 60
    holders: dict[str, str] = {}
    fences: dict[str, list[int]] = {name: [] for name in names}
    guard = threading.Lock()
    left = iter(range(count))

    def hold(name: str, who: str, fence: int) -> None:
        with guard:
            assert holders.setdefault(name, who) == who, "two holders"
            fences[name].append(fence)
        with guard:
            assert holders.pop(name) == who

    def call(seed: int) -> None:
        draw = random.Random(seed)
        with Caller(db.url) as caller:
            while next(left, None) is not None:
                name, mine = draw.choice(names), token()
                while (got := caller.acquire(name, mine)).fence is None:
                    assert got.frees_in is not None
                hold(name, mine, got.fence)
                assert caller.release(name, mine)

    def use(seed: int) -> None:
        draw = random.Random(seed)
        while next(left, None) is not None:
            name = draw.choice(names)
            with locks.lease(name, ttl=LONG) as lease:
                hold(name, lease.token, lease.fence)

    with ExitStack() as stack:
        locks = stack.enter_context(Locks(db.url))
        for seed in range(3):
            threads.start(call, seed)
            threads.start(call if rival == "callers" else use, seed + 10)
        threads.join()
    assert sum(map(len, fences.values())) == count
    for seen in fences.values():
        assert seen == sorted(set(seen))
