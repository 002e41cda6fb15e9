"""A database, a role or a transaction that cannot hold locks: says why, and what to do."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from dblock import Locks, Misconfigured, SchemaMissing, Timeouts, Unavailable, Unsupported
from dblock.schema import upgrade
from tests.conftest import SERVERS, Database, NewDatabase, OwnServers, new_name
from tests.servers import FAMILY, OWN, PostgreSQL, execute
from tests.support import LONG, eventually

PASSWORD = "Of-the-tests-1"


class Base(DeclarativeBase):
    pass


class Thing(Base):
    __tablename__ = "thing"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@pytest.fixture
def engine(db: Database) -> Iterator[Engine]:
    made = create_engine(db.url)
    yield made
    made.dispose()


@pytest.fixture
def locks(db: Database) -> Iterator[Locks]:
    with Locks(db.url) as made:
        yield made


def every_use(locks: Locks) -> list[Callable[[], object]]:
    return [
        locks.lease("report", wait=0).acquire,
        locks.row("order", wait=0).acquire,
        lambda: locks.release("held", force=True),
    ]


def hold(db: Database) -> None:
    """Leave a lease that is held when the database refuses to lock."""
    with Locks(db.url) as locks:
        assert locks.lease("held", ttl=10 * LONG).acquire()


# The user's transactions


def test_a_failed_session(locks: Locks, engine: Engine) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Thing(id=1))
        session.commit()
        session.connection()
        with contextlib.suppress(DBAPIError):
            session.connection().exec_driver_sql("INSERT INTO thing VALUES (1)")
        session.add(Thing(id=1))
        with contextlib.suppress(Exception):
            session.flush()
        if session.is_active:  # SQLAlchemy ended the transaction by itself
            session.rollback()
        else:
            with pytest.raises(ValueError, match="has already failed; roll it back first"):
                locks.row("order", on=session).acquire()
            session.rollback()
        with locks.row("order", on=session, wait=0):
            session.rollback()


def test_a_failed_transaction(locks: Locks, engine: Engine) -> None:
    """PostgreSQL refuses everything in it, and dblock says so; elsewhere it goes on."""
    with engine.connect() as connection:
        with contextlib.suppress(DBAPIError):
            connection.exec_driver_sql("SELECT * FROM no_such_table")
        row = locks.row("order", on=connection, wait=0)
        if locks._database.dialect.traits.failure_aborts:
            with pytest.raises(ValueError, match="has already failed; roll it back first"):
                row.acquire()
            connection.rollback()
        assert row.acquire()
        connection.rollback()


def test_a_closed_connection(locks: Locks, engine: Engine) -> None:
    with engine.connect() as connection:
        pass
    with pytest.raises(ValueError, match="it is closed"):
        locks.row("order", on=connection).acquire()
    with locks.lease("report", ttl=LONG) as lease:
        with pytest.raises(ValueError, match="it is closed"), lease.guard(connection):
            raise AssertionError("not reached")
        lease.check()


def test_a_connection_in_autocommit(locks: Locks, engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(ValueError, match="autocommit mode, so nothing stays locked"):
            locks.row("order", on=connection).acquire()
        with (
            locks.lease("report", ttl=LONG) as lease,
            pytest.raises(ValueError, match="autocommit mode"),
            lease.guard(connection),
        ):
            raise AssertionError("not reached")


def test_a_transaction_of_another_database(
    locks: Locks, db: Database, new_database: NewDatabase
) -> None:
    other = create_engine(new_database("postgresql" if db.kind == "sqlite" else "sqlite").url)
    with (
        other.connect() as connection,
        pytest.raises(ValueError, match=rf"these locks are in .*\b{db.kind}\b.*, the"),
    ):
        locks.row("order", on=connection).acquire()
    other.dispose()


def test_what_is_no_transaction(locks: Locks, engine: Engine) -> None:
    for wrong in (engine, "session", 1, locks):
        with pytest.raises(TypeError, match="give an SQLAlchemy Connection, Session"):
            locks.row("order", on=wrong).acquire()  # type: ignore[arg-type]
    for name in ("AsyncSession", "AsyncConnection"):
        with pytest.raises(TypeError, match=f"sync Connection or Session here, not {name}"):
            locks.row("order", on=type(name, (), {})()).acquire()


# The tables


def test_no_tables(database: Database) -> None:
    with Locks(database.url) as locks:
        looks: list[Callable[[], object]] = [locks.list, lambda: locks.show("report")]
        for use in every_use(locks) + looks:
            with pytest.raises(SchemaMissing, match=r"missing here.*`dblock upgrade --url <URL>`"):
                use()
        upgrade(database.url)
        with locks.lease("report", wait=0):  # now it finds them
            pass


def test_no_tables_with_this_prefix(db: Database) -> None:
    with Locks(db.url, prefix="other_") as locks:
        with pytest.raises(SchemaMissing, match="dblock upgrade --url <URL> --prefix other_`"):
            locks.lease("report").acquire()
        with pytest.raises(SchemaMissing, match="--prefix other_"):
            locks.row("report").acquire()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (0, "have version 0, this code needs .*`dblock upgrade --url <URL>`"),
        (99, "version 99, newer than this code's .*pip install -U dblock"),
    ],
)
def test_tables_of_another_version(db: Database, version: int, message: str) -> None:
    execute(db.url, f"UPDATE dblock_schema SET version = {version}, revision = {version}")
    with Locks(db.url) as locks:
        for use in every_use(locks):
            with pytest.raises(SchemaMissing, match=message):
                use()


# The server


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for url in (f"postgresql://a@127.0.0.1:{port}/app", f"mariadb://a@127.0.0.1:{port}/app"):
        with Locks(url) as locks:
            for use in every_use(locks)[:2]:
                with pytest.raises(Unavailable, match=r"not reached: .*([Rr]efused|connect)"):
                    use()


def test_no_such_file() -> None:
    with Locks("sqlite:////no/such/directory/locks.db") as locks:
        for use in every_use(locks)[:2]:
            with pytest.raises(Misconfigured, match="set up: unable to open database file"):
                use()


# Read-only databases


def refuses_to_lock(
    url: str,
    told: tuple[type[Exception], str] = (
        Unavailable,
        r"takes no writes.*need a server that can write",
    ),
) -> None:
    error, message = told
    # The primary may yet be reached, so that is tried for as long.
    with Locks(url, timeouts=Timeouts(query=0.5, socket=1)) as locks:
        for use in every_use(locks):
            with pytest.raises(error, match=message):
                use()
        assert not locks.show("report").held  # looking is allowed
        assert [state.name for state in locks.list()] == ["held"]


def test_a_read_only_postgresql(new_database: NewDatabase) -> None:
    db = new_database("postgresql", migrated=True)
    hold(db)
    name = make_url(db.url).database
    execute(db.url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    refuses_to_lock(db.url)


def test_a_standby(own_server: OwnServers, new_database: NewDatabase) -> None:
    primary = own_server(lambda: PostgreSQL())
    standby = primary.standby()
    db = new_database("postgresql", migrated=True, server=primary)
    hold(db)
    url = standby.url_for(str(make_url(db.url).database))

    def replayed() -> bool:
        with contextlib.suppress(DBAPIError):
            return execute(url, "SELECT count(*) FROM dblock_lock") == [(1,)]
        return False

    eventually(replayed)
    refuses_to_lock(url)


@pytest.mark.parametrize("kind", FAMILY)
def test_a_read_only_mariadb(own_server: OwnServers, new_database: NewDatabase, kind: str) -> None:
    server = own_server(OWN[kind])
    db = new_database(kind, migrated=True, server=server)
    hold(db)
    execute(
        server.url,
        f"CREATE USER app IDENTIFIED BY '{PASSWORD}'",
        f"GRANT ALL ON {make_url(db.url).database}.* TO app",
        "SET GLOBAL read_only = 1",
    )
    refuses_to_lock(as_role(db, "app"))


def test_a_read_only_sqlite(new_database: NewDatabase) -> None:
    db = new_database("sqlite", migrated=True)
    file = make_url(db.url).database
    hold(db)
    refuses_to_lock(
        f"sqlite:///file:{file}?mode=ro&uri=true",
        (Unsupported, "readonly database.*write access to the file and to its directory"),
    )


# Roles without rights


def as_role(db: Database, role: str) -> str:
    url = make_url(db.url).set(username=role, password=PASSWORD)
    return url.render_as_string(hide_password=False)


@pytest.fixture(params=SERVERS)
def role(request: pytest.FixtureRequest, new_database: NewDatabase) -> Iterator[tuple[Any, str]]:
    """A database and a role that may connect to it and nothing else."""
    db = new_database(request.param, migrated=True)
    assert db.server is not None
    name = new_name()[:30]
    if db.kind == "postgresql":
        execute(db.url, f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
        yield db, name
        execute(db.url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")
    else:
        execute(db.url, f"CREATE USER {name} IDENTIFIED BY '{PASSWORD}'")
        execute(db.url, "CREATE TABLE lobby (id INTEGER)", f"GRANT SELECT ON lobby TO {name}")
        yield db, name
        execute(db.url, f"DROP USER {name}")


def test_a_role_without_rights(role: tuple[Database, str]) -> None:
    """What the message names is what is needed, and enough."""
    db, name = role
    messages = []
    with Locks(as_role(db, name)) as locks:
        for use in every_use(locks):
            with pytest.raises(Unsupported, match="role lacks rights on dblock's tables") as caught:
                use()
            messages.append(str(caught.value))
    for message in messages:
        needs = r"It needs: GRANT SELECT, INSERT, UPDATE, DELETE ON .*lock.* TO <role>"
        assert re.search(needs, message)
    grants = re.findall(r"GRANT ([A-Z, ]+?) ON ([^\s,]+)", messages[0])
    assert len(grants) >= 3
    for rights, table in grants:
        execute(db.url, f"GRANT {rights} ON {table} TO {name}")
    check_everything(as_role(db, name))


def check_everything(url: str) -> None:
    engine = create_engine(url)
    with Locks(url) as locks, engine.connect() as connection:
        with locks.lease("report", ttl=LONG, wait=0) as lease:
            lease.renew()
            with lease.guard(connection):
                connection.rollback()
        for _ in range(2):  # a new name and a known one
            with locks.row("own", wait=0):
                pass
            assert locks.row("borrowed", wait=0, on=connection).acquire()
            connection.commit()
        assert locks.lease("forced", ttl=LONG).acquire()
        assert locks.release("forced", force=True)
        assert locks.list() == []
    engine.dispose()


def test_a_role_that_may_look(role: tuple[Database, str]) -> None:
    db, name = role
    hold(db)
    tables = ["dblock_lock", "dblock_applied", "dblock_waiter", "dblock_schema"]
    if db.kind in FAMILY:
        tables.append("dblock_guard")
    for table in tables:
        execute(db.url, f"GRANT SELECT ON {table} TO {name}")
    with Locks(as_role(db, name)) as locks:
        assert locks.show("held").held
        assert not locks.show("report").held
        for use in every_use(locks):
            with pytest.raises(Unsupported, match=r"lacks rights.*It needs: GRANT"):
                use()
