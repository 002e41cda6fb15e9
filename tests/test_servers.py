"""The tests' own servers do what the other tests rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import inspect
from sqlalchemy.engine import create_engine
from sqlalchemy.exc import OperationalError

from tests.conftest import Database, NewDatabase, OwnServers, find_or_skip
from tests.servers import (
    MariaDB,
    MySQL,
    NotOwned,
    OwnServer,
    PgBouncer,
    PostgreSQL,
    Server,
    ServerMissing,
    execute,
    mariadb,
    mysql,
    postgresql,
    shared_postgresql,
)
from tests.servers.postgresql import VARIABLE
from tests.servers.reaper import processes
from tests.support import eventually

ROOT = Path(__file__).parent.parent

own = pytest.mark.parametrize("make", [PostgreSQL, MariaDB, MySQL])


def answers(server: Server) -> bool:
    timeouts = {"connect_timeout": 2}
    if server.kind in ("mariadb", "mysql"):
        timeouts["read_timeout"] = 2  # its connect_timeout ends with TCP's part
    try:
        return execute(server.url, "SELECT 1", **timeouts) == [(1,)]
    except OperationalError:
        return False


def add(url: str, row: int) -> None:
    create = "CREATE TABLE IF NOT EXISTS facts (id INTEGER PRIMARY KEY)"
    execute(url, create, f"INSERT INTO facts VALUES ({row})")


def rows(url: str) -> list[int]:
    return [row[0] for row in execute(url, "SELECT id FROM facts ORDER BY id")]


@own
@pytest.mark.parametrize("durable", [False, True])
def test_crash_and_restart(
    own_server: OwnServers, make: Callable[[bool], OwnServer], durable: bool
) -> None:
    server = own_server(lambda: make(durable))
    server.create_database("facts")
    url = server.url_for("facts")
    add(url, 1)
    server.kill()
    assert server.pids == []
    with pytest.raises(OperationalError, match="refused"):
        rows(url)
    server.start()
    assert rows(url) == [1]
    add(url, 2)
    server.restart()
    assert rows(url) == [1, 2]
    server.stop()
    assert server.pids == []
    assert not answers(server)


@own
def test_pause_and_resume(own_server: OwnServers, make: Callable[[], OwnServer]) -> None:
    server = own_server(make)
    engine = create_engine(server.url)
    with engine.connect() as connection:  # its backend is paused as well
        server.pause()
        assert set(processes(server.directory.name).values()) == {"T"}
        assert not answers(server)
        server.resume()
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()
    assert answers(server)
    server.pause()
    server.stop()
    assert server.pids == []


@own
def test_close_while_paused(own_server: OwnServers, make: Callable[[], OwnServer]) -> None:
    server = own_server(make)
    server.pause()
    server.close()
    assert server.pids == []
    assert not server.directory.exists()


@own
def test_databases(own_server: OwnServers, make: Callable[[], OwnServer]) -> None:
    server = own_server(make)
    server.create_database("first")
    add(server.url_for("first"), 1)
    server.create_database("second", template="first")
    assert rows(server.url_for("second")) == [1]
    engine = create_engine(server.url_for("first"))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT id FROM facts").scalar() == 1
        server.drop_database("first")  # in spite of the open transaction
        connection.invalidate()
    engine.dispose()
    with pytest.raises(OperationalError):
        rows(server.url_for("first"))
    server.drop_database("first")  # is not there any more


@own
def test_runs_as_an_ordinary_user(own_server: OwnServers, make: Callable[[], OwnServer]) -> None:
    server = own_server(make)
    bouncers: list[OwnServer] = []
    if server.kind == "postgresql":
        bouncers = [own_server(lambda: PgBouncer(server))]
    for pid in [pid for each in (server, *bouncers) for pid in each.pids]:
        status = Path("/proc", str(pid), "status").read_text().splitlines()
        ids = next(line.split()[1:] for line in status if line.startswith("Uid:"))
        assert "0" not in ids


def test_two_servers_are_apart(own_server: OwnServers) -> None:
    one, other = own_server(PostgreSQL), own_server(PostgreSQL)
    one.kill()
    assert answers(other)
    other.pause()
    one.start()
    assert answers(one)


def test_standby(own_server: OwnServers) -> None:
    primary = own_server(PostgreSQL)
    add(primary.url, 1)
    standby = primary.standby()
    assert rows(standby.url) == [1]
    add(primary.url, 2)
    eventually(lambda: rows(standby.url) == [1, 2])
    primary.kill()
    standby.promote()
    add(standby.url, 3)
    assert rows(standby.url) == [1, 2, 3]
    primary.close()
    assert standby.pids == []


def test_pgbouncer(new_database: NewDatabase) -> None:
    database = new_database("pgbouncer")
    assert database.kind == "postgresql"
    assert isinstance(database.server, PgBouncer)
    add(database.url, 1)
    assert rows(database.url) == [1]


def test_pgbouncer_pools_transactions(own_server: OwnServers, postgresql: Server) -> None:
    bouncer = own_server(lambda: PgBouncer(postgresql, pool_size=1))
    engines = [create_engine(bouncer.url) for _ in range(2)]
    with engines[0].connect() as one, engines[1].connect() as other:
        backends = set()
        for connection in (one, other, one, other):
            backends.add(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar())
            connection.rollback()
    assert len(backends) == 1
    for engine in engines:
        engine.dispose()
    bouncer.kill()
    assert not answers(bouncer)
    bouncer.start()
    assert answers(bouncer)
    bouncer.pause()
    assert not answers(bouncer)
    bouncer.resume()
    assert answers(bouncer)
    bouncer.stop()
    assert bouncer.pids == []


def test_database_is_new_and_empty(database: Database) -> None:
    engine = create_engine(database.url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    add(database.url, 1)


def test_given_server(own_server: OwnServers, monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_server(PostgreSQL)
    monkeypatch.setenv(VARIABLE, own.url.replace("postgresql+psycopg:", "postgres:"))
    given = shared_postgresql()
    assert not given.owned
    assert given.url == own.url
    with given:
        given.create_database("facts")
        add(given.url_for("facts"), 1)
        given.drop_database("facts")
        for refused in (given.start, given.stop, given.kill, given.pause, given.restart):
            with pytest.raises(NotOwned, match=VARIABLE):
                refused()
    assert answers(own)


@pytest.mark.parametrize(
    ("make", "variable"),
    [
        (PostgreSQL, postgresql.PROGRAMS),
        (MariaDB, mariadb.PROGRAMS),
        (MySQL, mysql.PROGRAMS),
    ],
)
def test_a_folder_without_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: type[OwnServer], variable: str
) -> None:
    """Nothing takes the place of the version that was asked for."""
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(ServerMissing, match=f"{variable} has no server's programs in {tmp_path}"):
        make()


SCRIPT = """
    import sys
    from tests.servers import {make}
    server = {make}()
    server.start()
    {then}
    print(server.directory, flush=True)
    {finally_}
"""


@pytest.mark.parametrize(
    ("make", "then", "finally_"),
    [
        pytest.param(PostgreSQL, "", "sys.stdin.read()", id="killed"),
        pytest.param(PostgreSQL, "server.pause()", "sys.stdin.read()", id="killed-paused"),
        pytest.param(PostgreSQL, "server.standby()", "sys.stdin.read()", id="killed-standby"),
        pytest.param(PostgreSQL, "", "", id="exit"),
        pytest.param(MariaDB, "", "sys.stdin.read()", id="killed-mariadb"),
    ],
)
def test_nothing_outlives_the_tests(make: type[OwnServer], then: str, finally_: str) -> None:
    find_or_skip(make).close()  # is there such a server?
    script = SCRIPT.format(make=make.__name__, then=then, finally_=finally_)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        assert tests.stdout is not None
        directory = Path(tests.stdout.readline().strip())
        assert directory.name.startswith("dblock-")
        if finally_:
            assert processes(directory.name)
            # A Ctrl-C or the end of the terminal reaches the whole group; the reaper stays.
            os.kill(tests.pid, signal.SIGKILL)
    eventually(lambda: not processes(directory.name) and not directory.exists())


@pytest.mark.parametrize("variable", ["", "CI", "DBLOCK_TEST_STRICT"])
def test_missing_server(variable: str) -> None:
    """Without a server its tests say so in one line, and in CI they fail."""
    script = """
        import sys
        import pytest
        import tests.servers.mariadb
        tests.servers.mariadb.find_mariadb = lambda: None
        selection = "test_database_is_new_and_empty and not postgresql and not mysql"
        options = ["-n0", "-p", "no:cacheprovider", "-k", selection]
        sys.exit(pytest.main(["tests/test_servers.py", *options]))
    """
    unset = ("CI", "DBLOCK_TEST_STRICT", "DBLOCK_TEST_MARIADB", mariadb.PROGRAMS, "PYTEST_ADDOPTS")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        env=environment | ({variable: "1"} if variable else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    said = [line for line in lines if line.startswith("MariaDB tests skipped: no mariadbd on")]
    assert said[-1].endswith(" [1]")
    assert "1 passed" in lines[-1]
    assert ("1 error" if variable else "1 skipped") in lines[-1]
    assert done.returncode == (1 if variable else 0)


@pytest.mark.parametrize("variable", ["", "CI"])
def test_a_skip_fails_in_ci(tmp_path: Path, variable: str) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_skip.py").write_text(
        "import pytest\n\ndef test_skip():\n    pytest.skip('not today')\n"
    )
    unset = ("CI", "DBLOCK_TEST_STRICT", "PYTEST_ADDOPTS")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment |= {"PYTHONPATH": path} | ({variable: "1"} if variable else {})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "not today [1]" in done.stdout
    assert done.returncode == (1 if variable else 0)
