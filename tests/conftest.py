"""Fixtures that give each test a database of its own on a real server."""

from __future__ import annotations

import os
import re
import shutil
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import pytest
from hypothesis import settings
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine

from dblock import Locks
from tests.lending import Database as Database
from tests.lending import Lender
from tests.patience import NEVER
from tests.servers import (
    PgBouncer,
    Server,
    ServerMissing,
    execute,
    shared_mariadb,
    shared_mysql,
    shared_postgresql,
)
from tests.servers.hostile import HostileMariaDB, HostileMySQL, HostilePostgreSQL, as_role
from tests.servers.mariadb import LoneNode
from tests.support import Threads, examples

EVER = 3600.0  # the longest TTL that tests take for granted

# PyMySQL reads all the machine's certificates for each connection, which takes twenty times as long
# as connecting does, and no test has any checked.
os.environ["SSL_CERT_FILE"] = os.devnull

# Else each program that a test starts has to compile all of dblock.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# How long an example takes is the machine's matter.
settings.register_profile("any machine", deadline=None, max_examples=examples(100))
settings.load_profile("any machine")

KINDS = ("postgresql", "mariadb", "mysql", "sqlite")
SERVERS = tuple(kind for kind in KINDS if kind != "sqlite")
HOSTILE = ("hostile postgresql", "hostile mariadb", "hostile mysql")
NODE = "lone node"
#: Drivers of users' transactions that are not those of dblock's own connections, by kind.
BORROWED = {
    "threads": (
        "postgresql+psycopg2",
        "mariadb+mysqldb",
        "mysql+mysqldb",
        "mysql+mysqlconnector",
    ),
    "asyncio": ("postgresql+asyncpg", "mariadb+aiomysql", "mysql+aiomysql"),
}

S = TypeVar("S", bound=Server)
T = TypeVar("T")


def kind_for(case: str, nth: int = 0) -> str:
    """One kind for a case that is above the drivers, so that each kind has its share of those."""
    return KINDS[(crc32(case.encode()) + nth) % len(KINDS)]


def needed(metafunc: pytest.Metafunc, *names: str) -> set[str]:
    """Which of these a test uses and has no parameters of its own for."""
    given: set[str] = set()
    for mark in metafunc.definition.iter_markers("parametrize"):
        given.update([mark.args[0]] if isinstance(mark.args[0], str) else mark.args[0])
    return set(names) & set(metafunc.fixturenames) - given


def strict() -> bool:
    """Whether a test that cannot run is a failure, as it is in CI."""
    return bool(os.environ.get("CI")) or os.environ.get("DBLOCK_TEST_STRICT") == "1"


def find_or_skip(make: Callable[[], T]) -> T:
    try:
        return make()
    except ServerMissing as missing:
        reason = str(missing)
    if strict():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs mysqlclient where that is not installed: it has to be compiled."""
    if strict() or find_spec("MySQLdb") is not None:
        return
    reason = (
        "mysqlclient is not installed (pip install -e . --group test-mysqlclient): tests skipped"
    )
    for item in items:
        if "mysqldb" in item.nodeid or item.get_closest_marker("mysqlclient"):
            item.add_marker(pytest.mark.skip(reason=reason))


# The servers that all tests of a process share. Each starts when a test first needs it.


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    with find_or_skip(shared_postgresql) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    with find_or_skip(shared_mariadb) as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[Server]:
    with find_or_skip(shared_mysql) as server:
        yield server


@pytest.fixture(scope="session")
def hostile_postgresql() -> Iterator[Server]:
    with find_or_skip(HostilePostgreSQL) as server:
        yield server


@pytest.fixture(scope="session")
def hostile_mariadb() -> Iterator[Server]:
    with find_or_skip(HostileMariaDB) as server:
        yield server


@pytest.fixture(scope="session")
def hostile_mysql() -> Iterator[Server]:
    with find_or_skip(HostileMySQL) as server:
        yield server


@pytest.fixture(scope="session")
def lone_node() -> Iterator[Server]:
    with find_or_skip(LoneNode) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgresql: Server) -> Iterator[PgBouncer]:
    with find_or_skip(lambda: PgBouncer(postgresql)) as server:
        yield server


class OwnServers:
    """Makes servers for one test alone, which it may stop, kill and pause."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(self, make: Callable[[], S]) -> S:
        """Start `make()`, for example `own_server(lambda: PostgreSQL(durable=True))`."""
        server = find_or_skip(make)
        self._stack.enter_context(server)
        return server


@pytest.fixture
def own_server() -> Iterator[OwnServers]:
    with ExitStack() as stack:
        yield OwnServers(stack)


class Migrated:
    """Databases with dblock's tables, made once, from which the tests get copies."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._templates: dict[Server, str] = {}
        self._file: Path | None = None

    def template(self, server: Server) -> str:
        """The name of the migrated template database on a server."""
        if server not in self._templates:
            name = new_name()
            server.create_database(name)
            if not server.owned:  # the tests' own server goes with all its databases
                self._stack.callback(server.drop_database, name)
            upgrade(server.url_for(name))
            self._templates[server] = name
        return self._templates[server]

    def file(self) -> Path:
        """The migrated SQLite file."""
        if self._file is None:
            file = self._directory / "migrated.db"
            upgrade(f"sqlite:///{file}")
            self._file = file
        return self._file


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Migrated]:
    with ExitStack() as stack:
        yield Migrated(tmp_path_factory.mktemp("migrated"), stack)


def upgrade(url: str) -> None:
    """Make dblock's tables, as they are when leases of any length were granted before."""
    from dblock import Locks  # late: the tests of the servers do without it
    from dblock.protocol.epoch import consult
    from dblock.schema import upgrade

    upgrade(url)
    with Locks(url) as locks:
        if locks._database.dialect.traits.has_witness:
            locks._database.run(consult(locks._database.exchange(), EVER))


def new_name() -> str:
    return f"dblock_{uuid.uuid4().hex}"


class NewDatabase:
    """Makes databases for one test, or for one process of tests; they go after it."""

    def __init__(
        self,
        request: pytest.FixtureRequest,
        directory: Path,
        stack: ExitStack,
        *,
        with_server: bool = False,  # those of the tests' own server go with that
    ) -> None:
        self._request = request
        self._directory = directory
        self._stack = stack
        self._with_server = with_server

    def __call__(
        self, kind: str, *, migrated: bool = False, server: Server | None = None
    ) -> Database:
        """A new database of a kind (one of KINDS, or "pgbouncer": PostgreSQL through it).

        With a driver of the user's: "postgresql+psycopg2", or another of BORROWED.
        Those of HOSTILE have settings of :mod:`tests.servers.hostile`, and a "lone node" is MariaDB
        as in a Galera cluster.

        It is empty, or with `migrated` has dblock's tables. A `server` of the test's own takes
        the place of the shared one; its databases are not dropped, since it may be broken.
        """
        kind, _, driver = kind.partition("+")
        if driver:
            return replace(self(kind, migrated=migrated, server=server), driver=driver)
        if kind in HOSTILE:
            hostile = self._request.getfixturevalue(kind.replace(" ", "_"))
            database = self(hostile.kind, migrated=migrated, server=hostile)
            return replace(database, own=as_role(database.url))
        if kind == NODE:
            node = self._request.getfixturevalue("lone_node")
            return self(node.kind, migrated=migrated, server=node)
        if kind not in (*KINDS, "pgbouncer"):
            raise ValueError(f"no such kind of database: {kind}")
        if kind == "sqlite":
            file = self._directory / f"{new_name()}.db"
            if migrated:
                shutil.copyfile(self._migrated().file(), file)
                tell_apart(f"sqlite:///{file}", "lower(hex(randomblob(16)))")
            return Database(kind, f"sqlite:///{file}", None)
        chosen: Server = server or self._request.getfixturevalue(kind)
        # Databases are made and migrated on the database server itself, not through a pool.
        direct = chosen.upstream if isinstance(chosen, PgBouncer) else chosen
        template = self._migrated().template(direct) if migrated and server is None else None
        name = new_name()
        direct.create_database(name, template)
        if server is None and not (self._with_server and direct.owned):
            self._stack.callback(direct.drop_database, name)
        if template is not None:
            random = "gen_random_uuid()::text" if direct.kind == "postgresql" else "uuid()"
            tell_apart(direct.url_for(name), f"replace({random}, '-', '')")
        elif migrated:
            upgrade(direct.url_for(name))
        return Database(direct.kind, chosen.url_for(name), chosen)

    def _migrated(self) -> Migrated:
        made: Migrated = self._request.getfixturevalue("migrated")
        return made


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto` starts three processes a core, since the tests wait more than they compute.

    Each process has servers of its own, so there are no more than 16.
    """
    return min(3 * len(os.sched_getaffinity(0)), 16)


def tell_apart(url: str, identity: str) -> None:
    """Give a copy of tables an identity of its own."""
    execute(url, f"UPDATE dblock_schema SET identity = {identity}")


def pytest_configure() -> None:
    """Let what tests start meet signals as usual, also where this run was started to ignore them.

    nohup, some CI systems and `&` in a script do that, and ignoring is inherited. A handler is not:
    so the run itself goes on ignoring HUP and QUIT.
    """
    for number, handler in {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: _do_nothing,
        signal.SIGQUIT: _do_nothing,
    }.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def _do_nothing(number: int, frame: object) -> None: ...


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A test's processes inherit the mask: with SIGCHLD in it they are waited for in vain."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    assert signal.pthread_sigmask(signal.SIG_SETMASK, before) == before


@pytest.fixture
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewDatabase]:
    with ExitStack() as stack:
        yield NewDatabase(request, tmp_path, stack)


@pytest.fixture(scope="session")
def lender(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lender]:
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("lent")
        yield Lender(NewDatabase(request, directory, stack, with_server=True))


def lent(request: pytest.FixtureRequest, lender: Lender) -> Iterator[Database]:
    """Made a fixture, `db = pytest.fixture(lent)`, where no test changes dblock's tables."""
    with lender.lend(request.param) as database:
        yield database


@pytest.fixture
def times() -> dict[str, float]:
    """Those of the protocol's times that are not as usual in a test; see ``Timing``."""
    return {}


@pytest.fixture
def kept_for_ever(times: dict[str, float]) -> None:
    """A free name is kept for the first in the queue, however long that takes."""
    times.update(grace=NEVER)


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, new_database: NewDatabase) -> Database:
    """A new, empty database of each kind."""
    return new_database(request.param)


@pytest.fixture(params=KINDS)
def db(request: pytest.FixtureRequest, new_database: NewDatabase) -> Database:
    """A new database of each kind which has dblock's tables."""
    return new_database(request.param, migrated=True)


@pytest.fixture
def locks(db: Database) -> Iterator[Locks]:
    with Locks(db.url) as made:
        yield made


@pytest.fixture
def others(db: Database) -> Iterator[Locks]:
    """What another process would see and get."""
    with Locks(db.url) as made:
        yield made


@pytest.fixture
def engine(db: Database) -> Iterator[Engine]:
    """The database, without dblock."""
    made = create_engine(db.url)
    yield made
    made.dispose()


# What could not run: one line for each reason, and in CI a failure.


def _skips(config: pytest.Config) -> list[pytest.TestReport | pytest.CollectReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.stats.get("skipped", []) if reporter else []  # none in an xdist worker


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if strict() and _skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    skips = _skips(config)
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in skips
        if isinstance(report.longrepr, tuple)
    )
    # In strict mode a missing server is an error of each test; its text is the same one line.
    reasons.update(
        text
        for report in terminalreporter.stats.get("error", [])
        if re.fullmatch(r"\w+ tests skipped: .*", text := str(report.longrepr).strip())
    )
    if reasons:
        terminalreporter.section("tests that did not run")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{reason} [{count}]")
    if strict() and skips:
        terminalreporter.line(f"failed: {len(skips)} skipped, and here every test must run")


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.close()
    made.join()
