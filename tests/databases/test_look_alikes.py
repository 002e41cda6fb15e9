"""Servers that only speak PostgreSQL's or MySQL's protocol, here real ones that lie about it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, event
from sqlalchemy.engine import Engine

from dblock import Locks, Unsupported, fencing
from dblock.aio import AsyncLocks
from dblock.contrib.flask import DBLock
from dblock.dialects.look_alikes import MYSQLS, POSTGRESQLS, recognise
from dblock.doctor import examine
from dblock.schema import downgrade, migration_lock, upgrade
from tests.aio.support import async_url
from tests.conftest import Database, NewDatabase, OwnServers
from tests.faults import proxy
from tests.servers import MariaDB, execute
from tests.support import LONG

YUGABYTE = "PostgreSQL 15.2-YB-2.25.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang, 64-bit"
COCKROACH = "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27 01:53:43, go1.19.10)"
OLD = "5.7.19-17"  # of a newer one SQLAlchemy asks what MariaDB 10.11 does not have

SAID = {
    "CockroachDB": COCKROACH,
    "YugabyteDB": YUGABYTE,
    "Amazon Redshift": "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 "
    "20041017 (Red Hat 3.4.2-6.fc3), Redshift 1.0.48805",
    "Greenplum": "PostgreSQL 12.12 (Greenplum Database 7.1.0 build commit:e7c2b1f) on x86_64",
    "Apache Cloudberry": "PostgreSQL 14.4 (Apache Cloudberry 2.0.0 build 1) on x86_64",
    "Materialize": "PostgreSQL 9.5.0 on x86_64-unknown-linux-gnu (Materialize v0.100.0)",
    "QuestDB": "PostgreSQL 12.3, compiled by Visual C++ build 1914, 64-bit, QuestDB",
    "CrateDB": "CrateDB 5.7.2 (built 7a5ec83/2024-05-22T13:50:23Z, Linux 5.15.0 amd64)",
    "TiDB": "8.0.11-TiDB-v7.5.1",
    "Vitess": "8.0.30-Vitess",
    "SingleStore": "5.7.32-SingleStoreDB",
    "PlanetScale": "8.0.34-PlanetScale",
    "Percona XtraDB Cluster": "8.4.3-3.1 Percona XtraDB Cluster (GPL)",
    "MySQL with Galera": "8.4.7-26.24 wsrep_26.24",
    "OceanBase": "5.7.25-OceanBase-v4.2.1.0",
    "PolarDB": "8.4.2-polardb-x-5.4.19",
    "MatrixOne": "8.0.30-MatrixOne-v1.2.0",
    "Dolt": "8.4.0-dolt",
    "StarRocks": "8.4.1-StarRocks-3.3.0",
    "Apache Doris": "5.7.99-doris-2.1.0",
    "Databend": "8.0.90-v1.2.616-databend-query",
    "ClickHouse": "24.3.1.2672-clickhouse",
    "Manticore Search": "6.2.12 dc5144d35@230822 (manticore)",
    "GreptimeDB": "8.4.2-greptimedb-v0.9.0",
}
#: What some say only in @@version_comment, where their version is one of MySQL's.
COMMENTED = {
    "Percona XtraDB Cluster": "Percona XtraDB Cluster (GPL), Release rel3, WSREP version 26.1.4.3",
    "MySQL with Galera": "MySQL Community Server - GPL, wsrep_26.24",
    "Dolt": "Dolt",
    "StarRocks": "StarRocks version 3.3.0",
    "Apache Doris": "Doris version doris-2.1.0-rc11",
    "OceanBase": "OceanBase_CE 4.2.1.0 (r100000102023092807)",
    "Vitess": "Vitess",
}
REAL = {
    "PostgreSQL": [
        "PostgreSQL 15.4 on x86_64-pc-linux-gnu, compiled by x86_64-pc-linux-gnu-gcc, 64-bit",
        "PostgreSQL 14.10 (EnterpriseDB Advanced Server 14.10.0) on x86_64, compiled by gcc",
        "PostgreSQL 16.1 - Percona Distribution on x86_64-pc-linux-gnu, compiled by gcc, 64-bit",
        "PostgreSQL 17beta1 on aarch64-unknown-linux-gnu, compiled by Debian clang, 64-bit",
    ],
    "MariaDB": [
        *("10.11.6-MariaDB-log", "5.5.5-10.6.12-MariaDB", "11.4.2-MariaDB-ubu2404"),
        *(
            "8.4.0",
            "9.7.4-2",
            "8.4.3-3-Percona",
            "10.0.1",
            "8.4.3-0ubuntu0.24.04.1+esm1",
        ),  # MySQL, and Percona's
    ],
}


def test_what_servers_say() -> None:
    assert {one.name for one in (*POSTGRESQLS, *MYSQLS)} == set(SAID)
    for real, known in {"PostgreSQL": POSTGRESQLS, "MariaDB": MYSQLS}.items():
        for name in {one.name for one in known}:
            for said in (SAID[name], SAID[name].lower(), SAID[name].upper()):
                found = recognise(said, real)
                assert found is not None
                assert found.name == name
    for real, sayings in REAL.items():
        assert [said for said in sayings if recognise(said, real) is not None] == []
    assert recognise("8.4.3-3", "MariaDB", "Percona Server (GPL), Release 3") is None
    assert recognise("10.11.6-MariaDB", "MariaDB", "made by TiDB's friends") is None
    for said in ("8.0.36", "8.3.0", "5.7.19-17"):
        old = recognise(said, "MariaDB", "MySQL Community Server - GPL")
        assert old is not None
        assert old.name == f"MySQL {said}"
        assert "MySQL 8.4" in old.reason
    for name, comment in COMMENTED.items():
        for written in (comment, comment.lower(), comment.upper()):
            by_comment = recognise("9.7.4", "MariaDB", written)
            assert by_comment is not None
            assert by_comment.name == name
    for said in ("24.3.1.2672", "9", "9.7", "6.2.12 dc5144d35@230822", "v9.7.4", "9.7.4x", ""):
        stranger = recognise(said, "MariaDB", "Source distribution")
        assert stranger is not None
        assert stranger.name == repr(said)
        assert "neither MariaDB nor MySQL" in stranger.reason
    assert recognise("Postgres by somebody", "PostgreSQL") is not None


# --- liars ---------------------------------------------------------------------------------------


def lie(database: Database, said: str, *more: str) -> None:
    """Let a database of a real PostgreSQL say that it is another server."""
    assert database.server is not None
    server = getattr(database.server, "upstream", database.server)
    execute(
        server.url_for(Path(database.url.split("?")[0]).name),
        "SET allow_system_table_mods = on",
        "ALTER FUNCTION pg_catalog.version() RENAME TO true_version",
        "CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql STABLE "
        f"AS $$ SELECT '{said}' $$",
        *more,
    )


class LyingLink(proxy.Link):
    """Lets MySQL say that it is TiDB, in as many bytes, in its greeting and its VERSION()."""

    true = b""

    def _pass_on(self, reply: bytes) -> None:
        super()._pass_on(reply.replace(self.true, b"8.TiDB".ljust(len(self.true), b"0")))


LIARS = {"postgresql": "this server is YugabyteDB", "mysql": "this server is TiDB"}


@pytest.fixture(params=list(LIARS))
def liar(
    request: pytest.FixtureRequest, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    database = new_database(request.param, migrated=True)
    if request.param == "postgresql":
        lie(database, YUGABYTE)
        yield database
        return
    ((true,),) = execute(database.url, "SELECT VERSION()")
    monkeypatch.setattr(LyingLink, "true", str(true).encode())
    monkeypatch.setattr(proxy, "Link", LyingLink)
    with proxy.Proxy(database.url) as between:
        yield replace(database, url=between.url)


@pytest.fixture
def engine(liar: Database) -> Iterator[Engine]:
    made = create_engine(liar.url)
    yield made
    made.dispose()


def refused(liar: Database) -> Any:
    return pytest.raises(Unsupported, match=LIARS[liar.kind])


def test_a_lease(liar: Database) -> None:
    with Locks(liar.url) as locks:
        with refused(liar) as refusal:
            locks.lease("a", wait=0).acquire()
        with refused(liar):
            locks.show("a")
        with refused(liar):
            locks.row("a", wait=0).acquire()
    assert "trust_server=True" in str(refusal.value)
    with Locks(liar.url, trust_server=True) as locks, locks.lease("a", ttl=LONG) as lease:
        assert lease.fence > 0
        assert locks.show("a").held


def test_tasks(liar: Database) -> None:
    async def use() -> None:
        url = async_url(liar.url)
        async with AsyncLocks(url) as locks:
            with refused(liar):
                await locks.lease("a", wait=0).acquire()
        async with AsyncLocks(url, trust_server=True) as locks, locks.lease("a", ttl=LONG) as lease:
            assert lease.fence > 0

    asyncio.run(use())


def test_a_transaction_of_the_users(liar: Database, engine: Engine) -> None:
    """Where no connection of dblock's own need be made, it is asked there, once."""
    table = Table("product", MetaData(), Column("id", Integer, primary_key=True))
    table.append_column(Column("stock", Integer))
    asked: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if "version()" in statement.lower():
            asked.append(statement)

    with engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert().values(id=7, stock=10))
    columns: dict[str, Any] = {"column": table.c.stock, "key": table.c.id}
    with Locks(liar.url) as locks, engine.connect() as connection:
        with refused(liar):
            locks.counter(**columns).take(connection, 7)
        with refused(liar):
            locks.row("a", on=connection, wait=0).acquire()
    asked.clear()
    with Locks(liar.url, trust_server=True) as locks, engine.connect() as connection:
        for _ in range(3):
            locks.counter(**columns).take(connection, 7)
        with locks.row("a", on=connection, wait=0) as row:
            assert row.held
        assert len(asked) == 1


def test_a_gate(liar: Database, engine: Engine) -> None:
    fencing.table(MetaData()).create(engine)
    with engine.connect() as connection:
        for _ in range(2):
            with refused(liar):
                fencing.gate(connection, "report", 7)
        fencing.gate(connection, "report", 7, trust_server=True)
        with refused(liar):  # it was trusted for that once
            fencing.gate(connection, "report", 7)


def test_a_gate_asks_a_real_server_once(new_database: NewDatabase) -> None:
    engine = create_engine(new_database("postgresql").url)
    fencing.table(MetaData()).create(engine)
    sent: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        sent.append(statement.split()[0])

    with engine.connect() as connection:
        for fence in (1, 2, 3):
            fencing.gate(connection, "report", fence)
    assert sent == ["SELECT", "INSERT", "INSERT", "INSERT"]
    engine.dispose()


def test_the_tables(liar: Database, engine: Engine) -> None:
    with refused(liar):
        upgrade(liar.url)
    with refused(liar):
        downgrade(liar.url)
    with engine.connect() as connection:
        with refused(liar), migration_lock(connection, needed=lambda own: True):
            raise AssertionError("the lock of a look-alike was had")
        with migration_lock(connection, needed=lambda own: True, trust_server=True):
            pass
    upgrade(liar.url, trust_server=True)


def test_flask(liar: Database) -> None:
    for trusted in (False, True):
        app = Flask("shop")
        app.config.update(DBLOCK_URL=liar.url, DBLOCK_TRUST_SERVER=trusted)
        locks = DBLock(app)
        with app.app_context():
            made = locks.locks
            if trusted:
                locks.acquire("a", ttl=LONG, wait=0)
            else:
                with refused(liar):
                    locks.acquire("a", ttl=LONG, wait=0)
        made.close()


def dblock(url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dblock", *arguments],
        env={**os.environ, "DBLOCK_URL": url, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_line(liar: Database) -> None:
    run = ("run", "a", "--", "echo", "ran")
    done = dblock(liar.url, *run)
    assert done.returncode != 0
    assert LIARS[liar.kind] in done.stderr
    assert "ran" not in done.stdout
    assert LIARS[liar.kind] in dblock(liar.url, "doctor").stderr
    trusted = dblock(liar.url, "run", "--trust-server", *run[1:])
    assert trusted.stdout == "ran\n", trusted.stderr
    upgraded = dblock(liar.url, "upgrade", DBLOCK_TRUST_SERVER="1")
    assert upgraded.returncode == 0, upgraded.stderr


def test_the_doctor(liar: Database) -> None:
    with Locks(liar.url, trust_server=True) as locks:
        (found,) = [finding for finding in examine(locks) if finding.what == "server"]
    assert found.level.value == "wrong"
    assert found.found.startswith(LIARS[liar.kind].removeprefix("this server is "))
    assert found.consequence == "dblock promises nothing on this server"


def test_an_old_mysql(own_server: OwnServers) -> None:
    """Here a MariaDB that says so in its greeting and its VERSION()."""
    server = own_server(lambda: MariaDB(options=[f"--version={OLD}"]))
    server.create_database("app")
    url = server.url_for("app")
    said = f"this server is MySQL {OLD}: dblock works on MySQL 8.4 LTS or newer"
    with Locks(url) as locks, pytest.raises(Unsupported, match=said):
        locks.show("a")
    with pytest.raises(Unsupported, match=said):
        upgrade(url)
    assert said in dblock(url, "doctor").stderr


# --- what some of them lack ----------------------------------------------------------------------


def test_behind_a_pooler(new_database: NewDatabase) -> None:
    database = new_database("pgbouncer", migrated=True)
    lie(database, YUGABYTE)
    with Locks(database.url) as locks, pytest.raises(Unsupported, match="YugabyteDB"):
        locks.show("a")
    with Locks(database.url, trust_server=True) as locks:
        assert not locks.show("a").held


def test_functions_that_are_not_there(new_database: NewDatabase) -> None:
    """What tells one session from another, for one; it is told by name all the same."""
    database = new_database("postgresql", migrated=True)
    lost = "ALTER FUNCTION pg_catalog.pg_stat_get_activity(integer) RENAME TO not_there"
    lie(database, YUGABYTE, "SET allow_system_table_mods = on", lost)
    with Locks(database.url) as locks, pytest.raises(Unsupported, match="YugabyteDB"):
        locks.show("a")


@pytest.mark.parametrize("trusted", [False, True])
def test_a_version_that_sqlalchemy_cannot_read(new_database: NewDatabase, trusted: bool) -> None:
    database = new_database("postgresql")
    lie(database, COCKROACH)
    with (
        Locks(database.url, trust_server=trusted) as locks,
        pytest.raises(Unsupported, match=r"CockroachDB, .* no-ops"),
    ):
        locks.show("a")
    with pytest.raises(Unsupported, match="CockroachDB"):
        upgrade(database.url, trust_server=trusted)


@pytest.mark.parametrize("given", ["yes", 1, None])
def test_neither_true_nor_false(given: Any) -> None:
    with pytest.raises(TypeError, match="trust_server is True or False"):
        Locks("postgresql://nowhere/app", trust_server=given)
    with pytest.raises(TypeError, match="trust_server is True or False"):
        AsyncLocks("postgresql://nowhere/app", trust_server=given)
