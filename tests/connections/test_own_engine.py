"""An engine or a URL of another driver: dblock's own connections go where that one's go."""

from __future__ import annotations

import contextlib
import gc
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import NullPool, create_engine, event, make_url
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.ext.asyncio import create_async_engine

from dblock import Locks, NotAcquired, Timeouts, Unavailable, Unsupported
from dblock.aio import AsyncLocks
from dblock.dialects.mariadb.arguments import CARRIED as MARIADB
from dblock.dialects.postgresql.arguments import CARRIED as POSTGRESQL
from dblock.dialects.sqlite.adapter import SQLite3
from dblock.schema import migration_lock
from tests.conftest import BORROWED, Database, NewDatabase, lent
from tests.servers import FAMILY, execute
from tests.support import LONG
from tests.worlds.portal import WORLDS, Asyncio
from tests.worlds.surface import Surface
from tests.worlds.world import World

PAIRS = [(world, kind) for world in WORLDS for kind in BORROWED[world]]
OF_FAMILY = [pair for pair in PAIRS if pair[1].startswith(FAMILY)]
each = pytest.mark.parametrize(("world", "db"), PAIRS, indirect=True)
of_family = pytest.mark.parametrize(("world", "db"), OF_FAMILY, indirect=True)
# All that means something in a URL, and nothing in a password.
PASSWORD = "p@ss:w/rd%41?#&="


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with WORLDS[request.param]() as made:
        yield made


db = pytest.fixture(lent)


def made(world: World, engine: Any) -> Locks:
    """Locks with an engine of the user's."""
    if isinstance(world, Asyncio):
        return world.surface(AsyncLocks(engine.target))  # type: ignore[no-any-return]
    return Locks(engine)


def used(locks: Locks, own: str) -> None:
    with locks, locks.lease("report", ttl=LONG, wait=0) as lease:
        lease.renew()
        with locks.row("order", wait=0):
            assert "report" in {state.name for state in locks.list()}
        sync = locks.target.sync if isinstance(locks, Surface) else locks
        assert sync.engine.dialect.driver == own


def own_of(world: World, db: Database) -> str:
    return {"postgresql": "psycopg"}.get(
        db.kind, "asyncmy" if isinstance(world, Asyncio) else "pymysql"
    )


@each
def test_a_url(world: World, db: Database) -> None:
    used(world.locks(db.users_url), own_of(world, db))


@each
def test_an_engine(world: World, db: Database) -> None:
    engine = world.engine(db.users_url)
    used(made(world, engine), own_of(world, db))
    engine.dispose()


@pytest.mark.parametrize(
    ("db", "driver"),
    [
        ("postgresql", "postgresql+asyncpg"),
        ("mariadb", "mysql+aiomysql"),
        ("mariadb", "mariadb+asyncmy"),
        ("mariadb", "mariadb+mysqldb"),
        ("mysql", "mysql+aiomysql"),
        ("mysql", "mysql+mysqldb"),
        ("mysql", "mysql+mysqlconnector"),
        ("sqlite", "sqlite+aiosqlite"),
    ],
    indirect=["db"],
)
def test_a_url_of_either_world(db: Database, driver: str) -> None:
    """An application of asyncio has one URL, and gives it to the command line too."""
    url = make_url(db.url).set(drivername=driver, query={})
    with Locks(url) as locks, locks.lease("report", ttl=LONG, wait=0):
        pass


@each
def test_the_lock_of_migrations(world: World, db: Database) -> None:
    """It is on a connection of dblock's own, also under Alembic's asyncio."""
    engine: Any = world.engine(db.users_url)

    def migrate(connection: Connection) -> None:
        with migration_lock(connection), pytest.raises(NotAcquired), alone(db.url):
            raise AssertionError("not reached")

    with engine.connect() as on:
        if isinstance(world, Asyncio):
            on.run(migrate, on._side())
        else:
            migrate(on)
    engine.dispose()


@contextlib.contextmanager
def alone(url: str) -> Iterator[None]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection, migration_lock(connection, wait=0):
        yield


@pytest.fixture
def app(db: Database) -> Iterator[URL]:
    """A URL for the user's driver with a password that the server checks."""
    for sql in (
        "DROP USER IF EXISTS app@'%'",
        f"CREATE USER app@'%' IDENTIFIED BY '{PASSWORD}'",
        "GRANT ALL ON *.* TO app@'%'",
    ):
        execute(db.url, sql.replace("%", "%%"))
    yield make_url(db.users_url).set(username="app", password=PASSWORD)
    execute(db.url, "DROP USER app@'%%'")


@of_family
def test_a_password(world: World, db: Database, app: URL) -> None:
    # Old versions of SQLAlchemy do not quote all of a password.
    bare = app.set(password="here").render_as_string(hide_password=False)
    engine = world.engine(bare.replace(":here@", f":{quote(PASSWORD, safe='')}@"))
    used(made(world, engine), own_of(world, db))
    engine.dispose()
    wrong = world.engine(app.set(password="wrong").render_as_string(hide_password=False))
    with made(world, wrong) as locks, pytest.raises(Unavailable, match="Access denied"):
        locks.list()
    assert PASSWORD not in repr(locks)


@of_family
def test_a_password_of_the_moment(world: World, db: Database, app: URL) -> None:
    """As clouds have them: a listener puts it in when a connection is made."""
    bare = app.set(password="old").render_as_string(hide_password=False)
    engine: Any = world.engine(bare)
    sync: Engine = engine.target.sync_engine if isinstance(world, Asyncio) else engine
    asked = []

    @event.listens_for(sync, "do_connect")
    def put(dialect: object, record: object, args: object, params: dict[str, Any]) -> None:
        asked.append(params["user"])
        # mysqlclient's word, and everybody else's
        params["passwd" if "passwd" in params else "password"] = PASSWORD

    locks = made(world, engine)
    assert asked == []  # making them does no I/O
    used(locks, own_of(world, db))
    assert len(asked) > 1
    engine.dispose()


@pytest.mark.parametrize("world", ["asyncio"], indirect=True)
def test_settings_of_a_session(world: World, new_database: NewDatabase) -> None:
    """Here the tables are in a schema that is found by one."""
    db = new_database("postgresql+asyncpg", migrated=True)
    execute(db.url, 'CREATE SCHEMA "of others"')
    tables = "lock waiter schema epoch witness applied once value run"
    for table in tables.split():
        execute(db.url, f'ALTER TABLE dblock_{table} SET SCHEMA "of others"')
    settings = {"search_path": '"of others"', "application_name": "the shop"}
    engine = world.engine(
        db.users_url, connect_args={"ssl": False, "server_settings": settings, "timeout": 3}
    )
    used(made(world, engine), "psycopg")
    engine.dispose()


# --- what cannot be carried over -----------------------------------------------------------------


def connect() -> None:
    raise AssertionError("making Locks does no I/O")


async def connect_later() -> None:
    raise AssertionError("making Locks does no I/O")


@pytest.mark.parametrize(
    "url", ["postgresql+psycopg2://app@host/app", "mysql+mysqldb://app@host/app"]
)
def test_a_function_that_connects(url: str) -> None:
    with pytest.raises(
        Unsupported, match=r"by your own function \(creator= .*give dblock a separate URL"
    ):
        Locks(create_engine(url, creator=connect))


@pytest.mark.parametrize(
    "url", ["postgresql+asyncpg://app@host/app", "mysql+aiomysql://app@host/app"]
)
def test_a_coroutine_function_that_connects(url: str) -> None:
    engine = create_async_engine(url, async_creator=connect_later)
    with pytest.raises(Unsupported, match=r"by your own function .*give dblock a separate URL"):
        AsyncLocks(engine)


def test_a_listener_that_connects() -> None:
    engine = create_engine("postgresql+psycopg2://app@host/app")
    event.listen(engine, "do_connect", lambda *_: object())
    with Locks(engine) as locks, pytest.raises(Unsupported, match="listener of do_connect makes"):
        locks.list()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"ssl": ssl.create_default_context()}, r"ssl.SSLContext .*postgresql\+psycopg://"),
        ({"password": lambda: "token"}, "password= that is a function"),
        ({"unheard_of": 1}, "unheard_of= of asyncpg cannot be carried over"),
    ],
)
def test_arguments_of_asyncpg(args: dict[str, Any], message: str) -> None:
    engine = create_async_engine("postgresql+asyncpg://app@host/app", connect_args=args)
    with pytest.raises(Unsupported, match=message):
        AsyncLocks(engine)


@pytest.mark.mysqlclient
def test_arguments_of_mysqlclient() -> None:
    engine = create_engine("mysql+mysqldb://app@host/app", connect_args={"unheard_of": 1})
    with pytest.raises(Unsupported, match="unheard_of= cannot be carried over"):
        Locks(engine)


@pytest.mark.parametrize(
    ("url", "module", "extra", "own"),
    [
        ("postgresql+psycopg2://app@host/app", "psycopg", "postgresql", "psycopg"),
        ("mysql+mysqldb://app@host/app", "pymysql", "mysql", "pymysql"),
        ("postgresql+asyncpg://app@host/app", "psycopg", "postgresql", "psycopg"),
        ("mysql+aiomysql://app@host/app", "asyncmy", "mysql-async", "asyncmy"),
    ],
)
def test_the_own_driver_is_missing(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str, own: str
) -> None:
    driver = make_url(url).get_driver_name()
    said = rf"{own}, which dblock needs beside {driver}, is not .*pip install 'dblock\[{extra}\]'"
    asynchronous = make_url(url).get_dialect().is_async
    engine: Any = create_async_engine(url) if asynchronous else create_engine(url)
    monkeypatch.setitem(sys.modules, module, None)
    for target in (url, engine):
        with pytest.raises(Unsupported, match=said):
            (AsyncLocks if asynchronous else Locks)(target)


# --- what is carried over, as arguments ----------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"ssl": True}, {"sslmode": "verify-full", "sslrootcert": "system"}),
        ({"ssl": False}, {"sslmode": "disable"}),
        ({"ssl": "verify-ca"}, {"sslmode": "verify-ca"}),
        ({"host": ["a", "b"], "port": [1, 2]}, {"host": "a,b", "port": "1,2"}),
        ({"database": "app", "passfile": "/p"}, {"dbname": "app", "passfile": "/p"}),
        ({"direct_tls": True, "statement_cache_size": 0}, {"sslnegotiation": "direct"}),
        (
            {"server_settings": {"application_name": "shop", "search_path": "a b", "jit": "off"}},
            {"application_name": "shop", "options": "-c search_path=a\\ b -c jit=off"},
        ),
    ],
)
def test_of_asyncpg(given: dict[str, Any], made: dict[str, Any]) -> None:
    assert POSTGRESQL["asyncpg"](given) == made


def test_of_psycopg2() -> None:
    given = {"database": "app", "sslmode": "require", "cursor_factory": object, "options": "-c a=b"}
    made = {"dbname": "app", "sslmode": "require", "options": "-c a=b"}
    assert POSTGRESQL["psycopg2"](given) == made


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"passwd": "s", "db": "app", "client_flag": 2}, {"password": "s", "database": "app"}),
        ({"ssl_mode": "DISABLED", "ssl": {"ca": "/ca"}}, {"ssl_disabled": True}),
        ({"ssl": True}, {"ssl": {"verify_mode": "none"}}),
        ({"ssl_mode": "REQUIRED"}, {"ssl": {"verify_mode": "none"}}),
        ({"ssl_mode": "REQUIRED", "ssl": {"ca": "/ca"}}, {"ssl": {"ca": "/ca"}}),
        ({"ssl": {"ca": "/ca", "cert": "/c"}}, {"ssl": {"ca": "/ca", "cert": "/c"}}),
        (
            {"ssl_mode": "VERIFY_CA", "ssl": {"ca": "/ca"}},
            {"ssl": {"ca": "/ca", "check_hostname": False, "verify_mode": "required"}},
        ),
        (
            {"ssl_mode": "VERIFY_IDENTITY", "ssl": {"ca": "/ca"}},
            {"ssl": {"ca": "/ca", "check_hostname": True, "verify_mode": "required"}},
        ),
    ],
)
def test_of_mysqlclient(given: dict[str, Any], made: dict[str, Any]) -> None:
    assert MARIADB["mysqldb"](given) == made


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (
            {"password1": "s", "connection_timeout": 3, "client_flags": 2, "use_pure": True},
            {"password": "s", "connect_timeout": 3},
        ),
        ({"ssl_disabled": "true", "ssl_ca": "/ca"}, {"ssl_disabled": True}),
        ({"ssl_disabled": False, "ssl_ca": "/ca"}, {"ssl": {"ca": "/ca"}}),
        (
            {"ssl_ca": "/ca", "ssl_verify_cert": True},
            {"ssl": {"ca": "/ca", "check_hostname": False, "verify_mode": "required"}},
        ),
        (
            {"ssl_ca": "/ca", "ssl_verify_cert": True, "ssl_verify_identity": "1"},
            {"ssl": {"ca": "/ca", "check_hostname": True, "verify_mode": "required"}},
        ),
    ],
)
def test_of_connector_python(given: dict[str, Any], made: dict[str, Any]) -> None:
    assert MARIADB["mysqlconnector"](given) == made


def test_hosts_that_connector_python_chooses() -> None:
    with pytest.raises(Unsupported, match="failover= cannot be carried over"):
        MARIADB["mysqlconnector"]({"failover": ({"host": "a"}, {"host": "b"})})


def test_a_name_is_verified_without_an_authority_of_ones_own() -> None:
    context = MARIADB["mysqldb"]({"ssl_mode": "VERIFY_IDENTITY"})["ssl"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert MARIADB["aiomysql"]({"ssl": context}) == {"ssl": context}


def test_a_file_whose_connection_is_dropped(tmp_path: Path) -> None:
    """A signal may come before anything has it; Python 3.13 warns of one that nobody closed."""
    connect = SQLite3(Timeouts()).plain(f"sqlite:///{tmp_path / 'locks.db'}")
    assert connect is not None
    connect()
    gc.collect()
