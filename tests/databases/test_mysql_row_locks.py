"""MySQL: which transaction has locked the row of a name, as far as the account may read that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine, make_url

from dblock import Locks, NotAcquired, Timeouts
from dblock.dialects import MySQL as MySQLStatements
from dblock.lock_state import RowLockState
from dblock.protocol.state import Place
from dblock.schema import upgrade
from tests.conftest import NewDatabase, OwnServers
from tests.databases.test_doctor import findings, level
from tests.faults.proxy import Proxy
from tests.servers import MySQL, execute
from tests.support import LONG, MOMENT, Threads, eventually

NAMES = ("order", "é'\\\n\"", "x" * 255, "\N{LOCK}" * 255)


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    return new_database("mysql", migrated=True).url


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = create_engine(make_url(url).update_query_dict({"program_name": "shop"}))
    yield made
    made.dispose()


@pytest.fixture
def account(url: str) -> Iterator[str]:
    """The URL of an account that has no right but on the tables themselves."""
    parts = make_url(url)
    user = f"app_{parts.database}"[:32]
    execute(url, f"CREATE USER {user} IDENTIFIED BY 'p'")
    execute(url, f"GRANT ALL ON `{parts.database}`.* TO {user}")
    yield parts.set(username=user, password="p").render_as_string(hide_password=False)
    execute(url, f"DROP USER {user}")


def seen(locks: Locks, name: str = "order") -> RowLockState | None:
    return locks.show(name).row_lock


@pytest.mark.parametrize("name", NAMES)
def test_whose_transaction_it_is(url: str, engine: Engine, name: str) -> None:
    with Locks(url) as locks, engine.connect() as on, locks.row(name, on=on):
        number = on.execute(text("SELECT CONNECTION_ID() /* for */ WHERE 'secret' <> ''")).scalar()
        row_lock = seen(locks, name)
        assert row_lock is not None
        assert row_lock.session == number
        assert row_lock.holder == f"a transaction of root@127.0.0.1 shop, connection {number}"
        assert row_lock.since is not None
        assert (row_lock.statement or "").startswith("SELECT `CONNECTION_ID` ( )")
        assert "secret" not in (row_lock.statement or "")
        (listed,) = locks.list()
        assert listed.name == name
        assert listed.row_lock is not None
        assert listed.row_lock.session == number
        on.rollback()
        assert locks.list() == []


def test_a_guard_that_has_outlasted_its_lease(url: str, engine: Engine) -> None:
    """It is the reason why no other process gets the name."""
    with Locks(url) as locks, engine.connect() as first, engine.connect() as second:
        lease = locks.lease("order", ttl=LONG)
        assert lease.acquire()
        with lease.guard(first), lease.guard(second):
            assert seen(locks) is None  # the name is held, and not locked
            execute(url, "UPDATE dblock_lock SET expires_at = UTC_TIMESTAMP(6)")
            row_lock = seen(locks)
            assert row_lock is not None
            number = first.connection.driver_connection.thread_id()  # type: ignore[union-attr]
            assert row_lock.session == number, "the first to come"
        first.rollback()
        second.rollback()
        assert seen(locks) is None


def test_a_lock_on_the_gap_before_a_name_is_none_on_the_name(url: str, engine: Engine) -> None:
    """Under REPEATABLE READ, a transaction that looked for a name that is not there has one."""
    absent = text("SELECT * FROM dblock_guard WHERE lock_name = 'o' FOR UPDATE")
    repeatable = engine.execution_options(isolation_level="REPEATABLE READ")
    with Locks(url) as locks, repeatable.connect() as on:
        with locks.row("order"):
            pass
        assert on.execute(absent).all() == []
        assert seen(locks) is None
        assert locks.list() == []


def test_a_database_whose_name_differs_by_case(url: str) -> None:
    """The server's own columns do not tell them apart."""
    parts = make_url(url)
    name = str(parts.database).upper()
    execute(url, f"CREATE DATABASE `{name}`")
    other = parts.set(database=name).render_as_string(hide_password=False)
    upgrade(other)
    with Locks(url) as locks, Locks(other) as elsewhere, locks.row("order"):
        with elsewhere.row("order"):
            pass
        assert seen(locks) is not None
        assert seen(elsewhere) is None
    execute(url, f"DROP DATABASE `{name}`")


def test_the_doctor_names_the_right(url: str, account: str) -> None:
    assert level(url, "row locks") == "ok"
    found = findings(account)["row locks"]
    assert found.level.value == "note"
    execute(url, found.fix.replace("%", "%%"))  # as the driver wants it
    assert level(account, "row locks") == "ok"


def test_a_node_of_a_cluster_shows_its_own_transactions_alone() -> None:
    dialect = MySQLStatements(None, "dblock_", Timeouts())
    assert dialect.traits.sees_row_locks
    dialect.settle(Place("0123456789abcdef0123456789abcdef", "shop", clustered=True))
    assert not dialect.traits.sees_row_locks


def test_without_the_right_it_is_concluded(
    url: str, account: str, engine: Engine, threads: Threads
) -> None:
    """The server refuses one statement. The process does not send another."""

    def wait() -> None:
        with locks.row("order", wait=60):
            pass

    with (
        Proxy(account) as proxy,
        Locks(proxy.url) as looking,
        Locks(url) as locks,
        engine.connect() as on,
    ):
        with locks.row("order", on=on):
            assert seen(looking) is None
            with pytest.raises(NotAcquired, match="held by a row lock, or by waiters"):
                looking.row("order", wait=MOMENT).__enter__()
            assert proxy.count(b"data_locks") == 1
            threads.start(wait)
            eventually(lambda: looking.show("order").status == "locked")
            assert looking.show("order").describe().startswith("locked by a transaction, it seems")
            assert proxy.count(b"data_locks") == 1
            on.rollback()
        threads.join()


def test_the_right_is_enough(url: str, account: str, engine: Engine) -> None:
    user = make_url(account).username
    execute(url, f"GRANT SELECT ON performance_schema.* TO {user}")
    with Locks(account) as looking, Locks(url) as locks, locks.row("order"):
        row_lock = seen(looking)
        assert row_lock is not None
        assert row_lock.session is not None
        with pytest.raises(NotAcquired, match=r"locked by a transaction of root@.* dblock, conn"):
            looking.row("order", wait=MOMENT).__enter__()


def test_without_the_performance_schema_it_is_concluded(
    own_server: OwnServers, threads: Threads
) -> None:
    server = own_server(lambda: MySQL(options=["--performance-schema=OFF"]))
    server.create_database("shop")
    url = server.url_for("shop")
    upgrade(url)
    assert findings(url)["row locks"].fix.endswith("performance_schema = ON")

    def wait() -> None:
        with locks.row("order", wait=60):
            pass

    with Locks(url) as locks, Locks(url) as looking:
        with locks.row("order"):
            assert seen(looking) is None
            assert not looking._database.dialect.traits.sees_row_locks
            threads.start(wait)
            eventually(lambda: looking.show("order").status == "locked")
        threads.join()
