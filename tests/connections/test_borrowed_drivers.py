"""Each driver that may have a user's transaction: what its errors mean, what cannot be locked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from dblock import Conflict, Locks, NotAcquired, SocketTimeout
from dblock.aio.bridge import await_
from dblock.dialects.query import Query
from dblock.io.runtime import Runtime
from dblock.io.sqlalchemy_transaction import borrow
from dblock.protocol.faults import Fault, StatementError
from tests.conftest import BORROWED, SERVERS, Database, lent
from tests.servers import execute
from tests.support import LONG, MOMENT, Facts, blocked, borrowed
from tests.worlds.portal import WORLDS
from tests.worlds.surface import Bridged
from tests.worlds.world import World

PREPARED = 7  # times that a statement is sent, until each driver that prepares any has prepared it
PAIRS = [(world, kind) for world in WORLDS for kind in (*SERVERS, *BORROWED[world])]
POSTGRESQL = [pair for pair in PAIRS if pair[1].startswith("postgresql")]
PREPARING = [pair for pair in POSTGRESQL if not pair[1].endswith("psycopg2")]
MARIADB = [pair for pair in PAIRS if pair[1].startswith("mariadb")]
MYSQL = [pair for pair in PAIRS if pair[1].startswith("mysql")]
each = pytest.mark.parametrize(("world", "db"), PAIRS, indirect=True)

# What a server may answer, and what is made of it: None where that is not the database's fault.
STATES: dict[str, Fault | None] = {
    "55P03": Fault.BUSY,
    "40P01": Fault.DEADLOCK,
    "40001": Fault.SERIALIZATION,
    "57014": Fault.CANCELED,
    "42P01": Fault.SCHEMA,
    "42703": Fault.SCHEMA,
    "42501": Fault.PRIVILEGE,
    "25006": Fault.READ_ONLY,
    "53100": Fault.REFUSED,
    "XX000": Fault.REFUSED,
    "22P05": Fault.REFUSED,
    "22012": None,
}
CODES: dict[int, Fault | None] = {
    1047: Fault.READ_ONLY,
    1105: Fault.REFUSED,
    1180: Fault.DISCONNECTED,
    4165: Fault.REFUSED,
    1205: Fault.BUSY,
    1213: Fault.DEADLOCK,
    1020: Fault.SERIALIZATION,
    1412: Fault.SERIALIZATION,
    1317: Fault.CANCELED,
    1969: Fault.CANCELED,
    1146: Fault.SCHEMA,
    1054: Fault.SCHEMA,
    1142: Fault.PRIVILEGE,
    1290: Fault.READ_ONLY,
    1792: Fault.READ_ONLY,
    1114: Fault.REFUSED,
    1365: None,
}

# What MySQL does not have in common with MariaDB.
MYSQL_CODES: dict[int, Fault | None] = {
    3572: Fault.BUSY,
    3058: Fault.DEADLOCK,
    3101: Fault.SERIALIZATION,
    3024: Fault.CANCELED,
    3098: Fault.REFUSED,
    3100: Fault.DISCONNECTED,
    1226: Fault.UNREACHABLE,
    **{code: CODES[code] for code in (1205, 1213, 1317, 1146, 1142, 1290, 1792, 1365)},
}


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with WORLDS[request.param]() as made:
        yield made


db = pytest.fixture(lent)


@pytest.fixture
def locks(db: Database, world: World) -> Iterator[Locks]:
    with world.locks(db.url) as made:
        yield made


@pytest.fixture
def engine(db: Database, world: World) -> Iterator[Engine]:
    made = world.engine(db.users_url)
    yield made
    made.dispose()


def in_transaction(on: Any, do: Callable[[Connection], Any]) -> Any:
    """Do something with SQLAlchemy's own connection, whichever world it is of."""
    return on.run(do, on._side()) if isinstance(on, Bridged) else do(on)


def fault_of(engine: Engine, locks: Locks, sql: str) -> Fault | None:
    """What is made of the error of a statement."""

    def run(connection: Connection) -> Fault | None:
        transaction = borrow(connection, locks._database.dialect, Runtime())
        with pytest.raises((StatementError, DBAPIError), match="from the test") as caught:
            transaction.execute(Query(sql, {}))
        assert not str(caught.value).startswith("<class")
        return caught.value.fault if isinstance(caught.value, StatementError) else None

    with engine.connect() as connection:
        fault: Fault | None = in_transaction(connection, run)
        return fault


@pytest.mark.parametrize(("world", "db"), POSTGRESQL, indirect=True)
def test_errors_of_postgresql(locks: Locks, engine: Engine) -> None:
    raised = "DO $$ BEGIN RAISE EXCEPTION 'from the test' USING ERRCODE = '{}'; END $$"
    found = {state: fault_of(engine, locks, raised.format(state)) for state in STATES}
    assert found == STATES


@pytest.mark.parametrize(("world", "db"), MARIADB, indirect=True)
def test_errors_of_mariadb(locks: Locks, engine: Engine) -> None:
    raised = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {}, MESSAGE_TEXT = 'from the test'"
    found = {code: fault_of(engine, locks, raised.format(code)) for code in CODES}
    assert found == CODES


@pytest.mark.parametrize(("world", "db"), MYSQL, indirect=True)
def test_errors_of_mysql(locks: Locks, engine: Engine) -> None:
    raised = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {}, MESSAGE_TEXT = 'from the test'"
    found = {code: fault_of(engine, locks, raised.format(code)) for code in MYSQL_CODES}
    assert found == MYSQL_CODES


@contextlib.contextmanager
def in_autocommit(engine: Engine, db: Database) -> Iterator[Connection]:
    if "mysqlconnector" in db.users_url:  # which not every SQLAlchemy here can ask for it
        with engine.connect() as connection:
            driver_connection: Any = connection.connection.driver_connection
            driver_connection.autocommit = True
            yield connection
    else:
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            yield connection


@each
def test_autocommit(locks: Locks, engine: Engine, db: Database) -> None:
    lease = locks.lease("report", ttl=LONG)
    with in_autocommit(engine, db) as connection, lease:
        with pytest.raises(ValueError, match="autocommit mode, so nothing stays locked"):
            locks.row("order", on=connection).acquire()
        with pytest.raises(ValueError, match="autocommit mode"):
            lease.guard(connection).__enter__()


@pytest.mark.parametrize(("world", "db"), [*MARIADB, *MYSQL], indirect=True)
def test_autocommit_that_a_statement_has_set(locks: Locks, engine: Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("SET autocommit = 1")
        connection.rollback()
        with pytest.raises(ValueError, match="autocommit mode, so nothing stays locked"):
            locks.row("order", on=connection).acquire()
        connection.exec_driver_sql("SET autocommit = 0")
        connection.rollback()
        assert locks.row("order", on=connection, wait=0).acquire()


@pytest.mark.parametrize(("world", "db"), POSTGRESQL, indirect=True)
def test_a_transaction_that_has_failed(locks: Locks, engine: Engine) -> None:
    with engine.connect() as connection:
        with contextlib.suppress(DBAPIError):
            connection.exec_driver_sql("SELECT * FROM nowhere")
        with pytest.raises(ValueError, match="its transaction has already failed; roll it back"):
            locks.row("order", on=connection).acquire()
        connection.rollback()
        assert locks.row("order", on=connection, wait=0).acquire()


@pytest.mark.parametrize(("world", "db"), [("threads", "postgresql")], indirect=True)
def test_psycopgs_pipeline(locks: Locks, engine: Engine) -> None:
    """Nothing is sent in it, and after it the transaction goes on."""
    facts = Facts(engine)
    table = Table("facts", MetaData(), Column("id", Integer), Column("n", Integer))
    counter = locks.counter(table.c.n, key=table.c.id)
    lease = locks.lease("report", ttl=LONG)
    with engine.connect() as on, lease:
        facts.add(on, 1)
        driver: Any = on.connection.driver_connection
        for use in (
            locks.row("order", on=on).acquire,
            lease.guard(on).__enter__,
            locks.once(on, "key").__enter__,
            partial(counter.add, on, 1),
        ):
            with (
                driver.pipeline(),
                pytest.raises(ValueError, match=r"in pipeline mode, .* end the pipeline first"),
            ):
                use()
        with locks.row("order", on=on), lease.guard(on), locks.once(on, "key") as call:
            assert not call.replayed
            counter.add(on, 1)
        on.commit()
    assert facts.ids() == {0, 1}


@pytest.mark.parametrize(("world", "db"), [("asyncio", "postgresql")], indirect=True)
def test_psycopgs_pipeline_under_await(locks: Locks, engine: Engine) -> None:
    with engine.connect() as on:

        def raw(connection: Connection) -> Any:
            return connection.connection.driver_connection

        pipeline = in_transaction(on, raw).pipeline()
        on.run(await_, pipeline.__aenter__())  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="in pipeline mode"):
            locks.row("order", on=on).acquire()
        on.run(await_, pipeline.__aexit__(None, None, None))  # type: ignore[attr-defined]
        assert locks.row("order", on=on).acquire()


@each
@pytest.mark.parametrize("wait", [0, MOMENT])
def test_a_refusal_before_all_else(locks: Locks, engine: Engine, wait: float) -> None:
    facts = Facts(engine)
    with locks.row("order"):
        pass
    with borrowed(engine, "connection") as on:
        with blocked(engine, locks, "order"):
            with pytest.raises(NotAcquired), locks.row("order", on=on, wait=wait):
                raise AssertionError("not reached")
            facts.add(on, 1)
        with locks.row("order", on=on):
            on.commit()
    assert facts.ids() == {0, 1}


@each
@pytest.mark.parametrize("wait", [0, MOMENT])
def test_a_refusal_in_a_savepoint(locks: Locks, engine: Engine, wait: float) -> None:
    facts = Facts(engine)
    with locks.row("order"):
        pass
    with blocked(engine, locks, "order"), borrowed(engine, "connection") as on:
        facts.add(on, 1)
        on.exec_driver_sql("SAVEPOINT mine")  # type: ignore[union-attr]
        facts.add(on, 2)
        with pytest.raises(NotAcquired), locks.row("order", on=on, wait=wait):
            raise AssertionError("not reached")
        facts.add(on, 3)
        on.exec_driver_sql("ROLLBACK TO SAVEPOINT mine")  # type: ignore[union-attr]
        facts.add(on, 4)
        on.commit()
    assert facts.ids() == {0, 1, 4}


@pytest.mark.parametrize(("world", "db"), [("asyncio", "postgresql+asyncpg")], indirect=True)
def test_asyncpgs_own_timeout(locks: Locks, world: World, db: Database) -> None:
    """It raises what is none of its errors, and SQLAlchemy gives the connection up."""
    impatient = world.engine(db.users_url, connect_args={"command_timeout": 0.3})
    facts = Facts(impatient)
    with locks.row("order"):
        pass
    with blocked(impatient, locks, "order"), borrowed(impatient, "connection") as on:
        facts.add(on, 1)
        with pytest.raises(SocketTimeout, match="connection broke, and with it the transaction"):
            locks.row("order", on=on, wait=LONG).acquire()
    assert facts.ids() == {0}
    impatient.dispose()


@pytest.mark.parametrize(("world", "db"), POSTGRESQL, indirect=True)
def test_a_statement_is_of_another_table(db: Database, locks: Locks, engine: Engine) -> None:
    """A prepared one is of no use when its table was altered, and the whole unit is to be run
    again, as with any other conflict."""
    execute(db.url, "CREATE TABLE thing (n INTEGER)")
    by_hand = engine.dialect.driver == "psycopg2"  # which prepares nothing
    look: Query[Any] = Query("EXECUTE look" if by_hand else "SELECT n FROM thing", {})

    def run(connection: Connection) -> Fault | None:
        transaction = borrow(connection, locks._database.dialect, Runtime())
        try:
            transaction.execute(look)
        except StatementError as failure:
            return failure.fault
        return None

    def prepare(connection: Connection) -> None:
        if by_hand:
            connection.exec_driver_sql("PREPARE look AS SELECT n FROM thing")

    with engine.connect() as connection:
        in_transaction(connection, prepare)
        for _ in range(PREPARED):
            assert in_transaction(connection, run) is None
        connection.commit()
        execute(db.url, "ALTER TABLE thing ALTER n TYPE BIGINT")
        assert in_transaction(connection, run) is Fault.ALTERED
        connection.rollback()
        if by_hand:
            connection.exec_driver_sql("DEALLOCATE look")
            in_transaction(connection, prepare)
        assert in_transaction(connection, run) is None
    execute(db.url, "DROP TABLE thing")


@pytest.mark.parametrize(("world", "db"), PREPARING, indirect=True)
def test_a_migration_is_told(db: Database, locks: Locks, engine: Engine) -> None:
    """A lock whose table was altered meanwhile says so, and the next transaction gets it. Where
    the lock is what begins the transaction, dblock does that again by itself."""
    with engine.connect() as connection:
        for _ in range(PREPARED):
            with locks.row("order", on=connection):
                pass
            connection.commit()
        execute(db.url, "ALTER TABLE dblock_lock ALTER fence TYPE NUMERIC")
        try:
            if engine.dialect.is_async:
                with pytest.raises(
                    Conflict, match=r"a migration changed the table .* transaction$"
                ):
                    locks.row("order", on=connection).acquire()
                connection.rollback()
            locks.row("order", on=connection).acquire()
        finally:
            connection.close()
            execute(db.url, "ALTER TABLE dblock_lock ALTER fence TYPE BIGINT")
