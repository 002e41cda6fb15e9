"""Locks in Django's own transactions and beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from dblock import DeadlockDetected, LockLost, Locks, NotAcquired, Unsupported
from dblock.contrib.django import locks, using
from tests.conftest import Database, NewDatabase
from tests.contrib.django.conftest import Site, of
from tests.support import LONG, SECONDS, Threads


def table() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE facts (id INTEGER PRIMARY KEY)")


def add(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO facts VALUES (%s)", [number])


def facts() -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM facts")
        return {row[0] for row in cursor.fetchall()}


@pytest.fixture
def others(dj: Database) -> Iterator[Locks]:
    """Those of a program without Django."""
    with Locks(dj.url) as made:
        yield made


def is_free(others: Locks, name: str, threads: Threads) -> bool:
    def attempt() -> bool:
        try:
            with others.lease(name, wait=0):
                return True
        except NotAcquired:
            return False

    return threads.run(attempt)


def test_a_row_lock_is_in_the_atomic_block(dj: Database, others: Locks, threads: Threads) -> None:
    table()
    row = locks.row("order:42")
    with transaction.atomic():
        add(1)
        with row:
            assert row.held
            add(2)
        assert row.held  # until the block ends
        assert not is_free(others, "order:42", threads)
        with locks.row("order:42"):  # again
            pass
    assert not row.held
    assert is_free(others, "order:42", threads)
    assert facts() == {1, 2}


def test_it_goes_with_a_rollback(dj: Database, others: Locks, threads: Threads) -> None:
    table()
    row = locks.row("order:42")

    def view() -> None:
        with transaction.atomic(), row:
            add(1)
            raise KeyError("of the view")

    with pytest.raises(KeyError):
        view()
    assert not row.held
    assert is_free(others, "order:42", threads)
    assert facts() == set()


def test_without_a_block_it_has_a_transaction_of_its_own(
    dj: Database, others: Locks, threads: Threads
) -> None:
    row = locks.row("order:42")
    with row:
        assert row.held
        assert not connection.in_atomic_block
        assert not is_free(others, "order:42", threads)
    assert is_free(others, "order:42", threads)
    with pytest.raises(ValueError, match="in no transaction"):
        locks.row("order:42", on=connection).acquire()


def test_a_refusal_leaves_the_block_usable(dj: Database, others: Locks) -> None:
    table()
    held = others.lease("order:42", ttl=LONG)
    assert held.acquire()
    with transaction.atomic():
        add(1)
        with pytest.raises(NotAcquired, match="held by"), locks.row("order:42", wait=0):
            raise AssertionError("not reached")
        add(2)
        with transaction.atomic():
            assert not locks.row("order:42").acquire(blocking=False)
            add(3)
    assert facts() == {1, 2, 3}
    held.release()


def test_it_shows_in_djangos_log_and_in_its_savepoints(pg: Database) -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as log:
        with locks.row("order:42"):
            pass
        assert connection.savepoint_ids == []
    assert any("FOR UPDATE" in query["sql"] for query in log.captured_queries)
    assert any("SAVEPOINT" in query["sql"] for query in log.captured_queries)


def test_a_thread_that_would_wait_for_itself_is_told(dj: Database) -> None:
    with (
        transaction.atomic(),
        locks.row("order:42"),
        pytest.raises(DeadlockDetected),
        locks.lease("order:42"),
    ):
        raise AssertionError("not reached")
    with locks.lease("order:42"):  # it is free again
        pass


def test_a_failed_block(dj: Database) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(ValueError, match="already failed"):
            locks.row("order:42").acquire()


def test_a_guard(dj: Database, others: Locks) -> None:
    table()
    lease = locks.lease("report", ttl=LONG)

    def work() -> None:
        with lease:
            with transaction.atomic(), lease.guard() as fence:
                assert fence == lease.fence
                add(1)
            assert others.release("report", force=True)
            with transaction.atomic(), lease.guard():
                raise AssertionError("not reached")

    with pytest.raises(LockLost):
        work()
    assert facts() == {1}


def test_a_lease_is_given_back_after_the_commit(
    dj: Database, others: Locks, threads: Threads
) -> None:
    with transaction.atomic():
        with locks.lease("report", ttl=LONG):
            pass
        assert not is_free(others, "report", threads)
    assert is_free(others, "report", threads)


def test_a_lease_is_given_back_after_a_rollback(
    dj: Database, others: Locks, threads: Threads
) -> None:
    def view() -> None:
        with transaction.atomic():
            with locks.lease("report", ttl=LONG):
                pass
            assert not is_free(others, "report", threads)
            raise KeyError("of the view")

    with pytest.raises(KeyError):
        view()
    assert is_free(others, "report", threads)


def test_a_semaphore(dj: Database, others: Locks, threads: Threads) -> None:
    with locks.semaphore("api", 2, ttl=LONG) as one, locks.semaphore("api", 2, ttl=LONG) as two:
        assert {one.name, two.name} == {"api#1", "api#2"}
        assert not others.semaphore("api", 2).acquire(blocking=False)
    with transaction.atomic():
        with locks.semaphore("api", 2, ttl=LONG) as slot:
            pass
        assert not is_free(others, slot.name, threads)
    assert is_free(others, slot.name, threads)


def test_a_shared_lease(dj: Database, others: Locks, threads: Threads) -> None:
    with locks.shared("report", ttl=LONG) as one, others.shared("report", ttl=LONG) as two:
        assert one.fence == two.fence
        assert not is_free(others, "report", threads)
    with transaction.atomic():
        with locks.shared("report", ttl=LONG) as reader, reader.guard():
            pass
        assert not is_free(others, "report", threads)
    assert is_free(others, "report", threads)
    assert not hasattr(locks.shared("report"), "detach")


def test_a_task_is_skipped(dj: Database, others: Locks) -> None:
    ran = []

    @locks.skip("nightly", ttl=LONG)
    def nightly(night: int) -> int:
        ran.append(night)
        return night

    assert nightly(1) == 1
    with others.lease("nightly", ttl=LONG):
        assert nightly(2) is None
    assert nightly(3) == 3
    assert ran == [1, 3]


def test_a_task_that_is_a_coroutine_function_is_skipped(
    dj: Database, others: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    @locks.skip("nightly", ttl=LONG)
    async def nightly(night: int) -> int:
        assert others.show("nightly").held
        return night

    assert asyncio.run(nightly(1)) == 1
    assert not others.show("nightly").held
    with others.lease("nightly", ttl=LONG), caplog.at_level("INFO", "dblock"):
        assert asyncio.run(nightly(2)) is None
    assert "nightly was skipped: 'nightly' was not acquired" in caplog.text


def test_async(dj: Database, others: Locks, threads: Threads) -> None:
    lease = locks.lease("report", ttl=LONG)

    @locks.lease("view", ttl=LONG)
    async def view() -> bool:
        return is_free(others, "view", threads)

    async def main() -> None:
        async with lease:
            assert not is_free(others, "report", threads)
        assert is_free(others, "report", threads)
        assert await view() is False
        with pytest.raises(SynchronousOnlyOperation):
            lease.acquire()
        with pytest.raises(SynchronousOnlyOperation):
            locks.row("order").acquire()

    asyncio.run(main())
    assert is_free(others, "view", threads)


@pytest.mark.parametrize("options", [{"CONN_MAX_AGE": 60}, {"pool": True}], ids=str)
def test_nothing_stays_on_a_connection_that_django_keeps(
    pg: Database, site: Site, threads: Threads, options: dict[str, object]
) -> None:
    entry = of(pg)
    if "pool" in options:
        entry["OPTIONS"]["pool"] = True
    else:
        entry |= options
    site.use(**entry)
    with Locks(pg.url) as others:
        for _ in range(2):
            with transaction.atomic(), locks.row("order:42"):
                pass
            connection.close()
            assert is_free(others, "order:42", threads)


def test_a_row_lock_in_a_block_of_another_database(
    dj: Database, site: Site, new_database: NewDatabase
) -> None:
    """It would end before that block commits, so it is refused; a lease is not."""
    site.use("elsewhere", **of(new_database("sqlite")))
    with transaction.atomic("elsewhere"):
        with (
            pytest.raises(Unsupported, match="'elsewhere', and these locks are in 'default'"),
            locks.row("order"),
        ):
            pass
        with locks.lease("report", wait=0):
            pass
        with transaction.atomic(), locks.row("order", wait=0):
            pass
    with locks.row("order", wait=0):
        pass


def test_another_alias(dj: Database, site: Site, others: Locks, threads: Threads) -> None:
    site.use("locking", **of(dj))
    with using("locking").lease("report", ttl=LONG):
        assert not is_free(others, "report", threads)
    with transaction.atomic(using="locking"), using("locking").row("order:42"):
        assert not is_free(others, "order:42", threads)


def test_many_threads(dj: Database, threads: Threads) -> None:
    rounds = 5
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE counter (n INTEGER)")
        cursor.execute("INSERT INTO counter VALUES (0)")
    row = locks.row("counter", wait=LONG)

    def work() -> None:
        try:
            for _ in range(rounds):
                with transaction.atomic(), row, connection.cursor() as cursor:
                    cursor.execute("SELECT n FROM counter")
                    (n,) = cursor.fetchone()
                    cursor.execute("UPDATE counter SET n = %s", [n + 1])
        finally:
            connection.close()

    for _ in range(4):
        threads.start(work)
    threads.join()
    with connection.cursor() as cursor:
        cursor.execute("SELECT n FROM counter")
        assert cursor.fetchone() == (4 * rounds,)


def test_sqlite_in_memory_is_refused(site: Site) -> None:
    site.use(ENGINE="django.db.backends.sqlite3", NAME=":memory:")
    with pytest.raises(Unsupported, match="in memory"):
        locks.lease("a").acquire()


def test_a_job(dj: Database) -> None:
    @locks.cron("nightly", ttl=LONG, once_for="2026-11-21")
    def nightly() -> str:
        return "done"

    assert nightly() == "done"
    assert nightly() is None
    last = locks.last_run("nightly")
    assert last is not None
    assert last.exit_status == 0


def test_an_election(dj: Database, others: Locks) -> None:
    """A term that ends in an atomic block is resigned after its commit, as leases are."""
    table()
    election, looking = locks.election("leader", ttl=LONG), others.election("leader")
    with election.campaign() as term:
        term.proclaim("me")
        leader = looking.leader()
        assert leader is not None
        assert (leader.fence, leader.value) == (1, "me")
        with transaction.atomic(), term.guard():
            add(1)
        with pytest.raises(NotAcquired):
            looking.campaign(wait=0)
    assert looking.leader() is None
    assert facts() == {1}
    with transaction.atomic():
        with election.campaign():
            pass
        assert looking.leader() is not None
    assert looking.leader() is None


def test_a_call_is_made_once(dj: Database, others: Locks) -> None:
    """In the atomic block: its key, its effect and its result, all of it or nothing."""
    table()

    def call(number: int, *, fail: bool = False) -> tuple[object, bool]:
        with transaction.atomic(), locks.once("order:42") as made:
            if not made.replayed:
                add(number)
                made.result = {"id": number}
            if fail:
                raise KeyError
            return made.result, made.replayed

    with pytest.raises(KeyError):
        call(1, fail=True)
    assert facts() == set()
    assert call(2) == ({"id": 2}, False)
    assert call(3) == ({"id": 2}, True)
    assert facts() == {2}
    with pytest.raises(ValueError, match="in no transaction"), locks.once("order:42"):
        pass


def test_a_failed_call_leaves_no_key(dj: Database) -> None:
    """Where the error is caught in the block around it, and that is committed."""
    table()

    def fail(key: str) -> None:
        with locks.once(key):
            add(1)
            raise KeyError

    with transaction.atomic():
        with pytest.raises(KeyError):
            fail("a")
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM facts")
        with pytest.raises(KeyError), transaction.atomic():
            fail("b")
    assert facts() == set()
    with transaction.atomic(), locks.once("a") as a, locks.once("b") as b:
        assert not a.replayed
        assert not b.replayed


def test_a_savepoint_that_would_commit_is_refused(dj: Database) -> None:
    """Outside of Django's autocommit mode an atomic block on SQLite is no more than a savepoint."""
    transaction.set_autocommit(False)
    try:
        with transaction.atomic():
            for use in (locks.row("order").acquire, locks.once("key").__enter__):
                if dj.kind == "sqlite":
                    with pytest.raises(ValueError, match="not in autocommit mode"):
                        use()
                else:
                    use()
        transaction.rollback()
        with transaction.atomic(savepoint=False):
            assert locks.row("order").acquire()
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)


def test_nested_blocks(dj: Database, others: Locks, threads: Threads) -> None:
    with transaction.atomic():
        with transaction.atomic(), locks.row("order"):
            pass
        assert not is_free(others, "order", threads)
    assert is_free(others, "order", threads)


@pytest.mark.parametrize("how", ["with", "decorated", "skipping"])
def test_a_task_that_is_cancelled_leaves_no_lease_behind(
    dj: Database, others: Locks, how: str
) -> None:
    """At whatever moment: the thread that takes the lease for it goes on without it."""
    lease = locks.lease("report", ttl=LONG)

    async def body() -> None:
        await asyncio.sleep(0.002)

    async def within() -> None:
        async with lease:
            await body()

    calls = {"with": within, "decorated": lease(body), "skipping": locks.skip("report")(body)}
    seen = set()

    async def cancelled(after: float) -> None:
        task = asyncio.create_task(calls[how]())
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.wait([task])
        seen.add(task.cancelled())

    after = 0.0
    while seen != {True, False}:
        asyncio.run(cancelled(after))
        with others.lease("report", wait=SECONDS):  # released soon, or by the time it is asked for
            pass
        after += 0.0003
