"""What is told of a name to those who only look: here, of row locks and of jobs."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from dblock import Locks, NotAcquired
from tests.conftest import Database, NewDatabase
from tests.servers import execute
from tests.support import LONG, MOMENT, Threads, eventually


def locked(locks: Locks, name: str) -> bool:
    return locks.show(name).status == "locked"


def test_a_row_lock_is_seen(locks: Locks, others: Locks, threads: Threads, db: Database) -> None:
    """In one look, which would not end before the row lock does if it waited for that."""

    def wait() -> None:
        with others.row("order", wait=60):
            pass

    row = locks.row("order")
    row.acquire()
    at_once = locked(others, "order")
    # Known from the first connection on.
    seen_alone = others._database.dialect.traits.sees_row_locks
    assert at_once is seen_alone
    if not seen_alone:  # only by who waits for it in vain
        threads.start(wait)
        eventually(lambda: locked(others, "order"))
        assert [state.status for state in others.list()] == ["locked"]
    state = others.show("order")
    assert not state.held
    assert state.row_lock is not None
    assert state.row_lock.describe() in state.describe()
    row.release()
    threads.join()


@pytest.mark.parametrize("kind", ["row", "lease"])
def test_a_waiter_that_gives_up_is_told_whose_row_lock_it_is(
    locks: Locks, others: Locks, threads: Threads, kind: str
) -> None:
    """Where the database shows that. A caller that does not wait costs no further statement."""
    with locks.lease("order"):
        pass
    with locks.row("order"):
        seen = others.show("order").row_lock
        for wait in (0.0, MOMENT):
            lock = (
                others.row("order", wait=wait)
                if kind == "row"
                else others.lease("order", ttl=LONG, wait=wait)
            )
            with pytest.raises(NotAcquired) as told:
                threads.run(lock.__enter__)
            if wait and seen is not None:
                assert f"locked by {seen.holder}" in str(told.value)
                assert told.value.holder is not None
                assert told.value.holder.row_lock is not None
                assert told.value.holder.row_lock.holder == seen.holder
            else:
                assert "held by a row lock, or by waiters" in str(told.value)


def test_a_free_name_is_free(locks: Locks, others: Locks) -> None:
    with locks.row("order"):
        pass
    with locks.lease("report"):
        assert others.show("report").status == "held"
    assert others.show("order").status == others.show("report").status == "free"
    assert others.list() == []


def test_a_job_is_told(locks: Locks, others: Locks) -> None:
    told = []

    @locks.cron("nightly", at_least=600)
    def nightly() -> None:
        told.append(others.show("nightly"))
        told.extend(others.list())

    nightly()
    told.append(others.show("nightly"))
    told.extend(others.list())
    assert [state.status for state in told] == ["running", "running", "done", "done"]
    assert all(state.held for state in told)
    done = told[-1]
    assert done.expires_at is not None
    assert f"kept until {done.expires_at:%Y-%m-%d %H:%M:%S} UTC" in done.describe()
    assert others.release("nightly", force=True)
    with locks.lease("nightly"):
        assert others.show("nightly").status == "held"  # the run was of an earlier lease


@pytest.fixture
def postgres(new_database: NewDatabase) -> Database:
    return new_database("postgresql", migrated=True)


def test_whose_transaction_it_is(postgres: Database) -> None:
    url = make_url(postgres.url).update_query_dict({"application_name": "shop"})
    engine = create_engine(url)
    with Locks(postgres.url) as locks, Session(engine) as session:
        with session.begin(), session.begin_nested(), locks.row("order", on=session):
            pid = session.connection().exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            row_lock = locks.show("order").row_lock
            (listed,) = locks.list()
            assert row_lock is not None
            assert listed.row_lock == row_lock
            assert row_lock.session == pid
            assert f" shop, pid {pid}" in row_lock.holder
            assert row_lock.since is not None
            assert "pg_backend_pid" in (row_lock.statement or "")
        assert locks.list() == []
    engine.dispose()


def test_what_another_role_may_see(postgres: Database) -> None:
    """Whose it is, not what it does."""
    url = make_url(postgres.url)
    role = f"onlooker_{url.database}"
    execute(
        postgres.url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}",
    )
    onlooker = url.set(username=role, password="secret").render_as_string(hide_password=False)
    with Locks(postgres.url) as locks, Locks(onlooker) as looking, locks.row("order"):
        row_lock = looking.show("order").row_lock
        assert row_lock is not None
        assert row_lock.session is not None
        assert f" dblock, pid {row_lock.session}" in row_lock.holder
        assert (row_lock.since, row_lock.statement) == (None, None)


NAMES = "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"


def applications(url: str) -> set[str]:
    return {name for (name,) in execute(url, NAMES) if name}


def test_sessions_have_a_name(postgres: Database) -> None:
    with Locks(postgres.url) as locks:
        locks.list()
        assert applications(postgres.url) == {"dblock"}
    url = make_url(postgres.url).update_query_dict({"application_name": "shop"})
    with Locks(url) as locks:
        locks.list()
        eventually(lambda: applications(postgres.url) == {"shop"})
    engine = create_engine(postgres.url)
    with Locks(engine) as locks:
        locks.list()
        eventually(lambda: applications(postgres.url) == {"dblock"})
    engine.dispose()


def test_sessions_have_a_name_on_mariadb(new_database: NewDatabase) -> None:
    url = new_database("mariadb", migrated=True).url
    for given, name in ((url, "dblock"), (f"{url}?program_name=shop", "shop")):
        with Locks(given) as locks:
            own = locks._database.connections.take()
            assert own.driver._connect_attrs["program_name"] == name
            locks._database.connections.give(own)
