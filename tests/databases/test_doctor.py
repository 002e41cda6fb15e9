"""The doctor: what is planted in a database's set-up is found, with what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine

from dblock import Locks, Unavailable
from dblock.dialects import DIALECTS
from dblock.dialects.query import Query, all_rows
from dblock.doctor import Finding, Level, examine
from dblock.doctor.finding import Patient
from dblock.doctor.sqlite import file
from dblock.protocol.schema_version import SCHEMA_VERSION
from dblock.schema import upgrade
from tests.conftest import Database, NewDatabase, OwnServers, find_or_skip, new_name
from tests.servers import MariaDB, PostgreSQL, execute
from tests.support import LONG, eventually


def findings(url: str) -> dict[str, Finding]:
    with Locks(url) as locks:
        found = examine(locks)
    assert len({finding.what for finding in found}) == len(found)
    return {finding.what: finding for finding in found}


def level(url: str, what: str) -> str:
    finding = findings(url)[what]
    if finding.level.value != "ok":
        assert finding.found
        assert finding.consequence
        assert finding.fix
    return finding.level.value


# What the tests' own servers do without, to be fast.
FAST = {"fsync", "full_page_writes", "durability"}


def test_a_set_up_that_is_well(db: Database) -> None:
    found = findings(db.url)
    ill = {what for what, finding in found.items() if finding.level.value == "wrong"}
    assert ill <= FAST
    notes = {what for what, finding in found.items() if finding.level.value == "note"}
    assert notes <= {"isolation"}
    assert {"database", "tables", "clocks", "keepalives", "server"} <= set(found)


@pytest.mark.parametrize(
    ("statement", "what", "expected"),
    [
        (f"UPDATE dblock_schema SET revision = {SCHEMA_VERSION - 1}", "tables", "wrong"),
        (f"UPDATE dblock_schema SET revision = {SCHEMA_VERSION + 1}", "tables", "ok"),
        (f"UPDATE dblock_schema SET version = {SCHEMA_VERSION + 1}", "tables", "wrong"),
        ("DROP TABLE dblock_run", "tables", "wrong"),
        ("DROP TABLE dblock_schema", "tables", "wrong"),
    ],
)
def test_tables(new_database: NewDatabase, statement: str, what: str, expected: str) -> None:
    url = new_database("sqlite", migrated=True).url
    execute(url, statement)
    assert level(url, what) == expected


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "mysql"])
def test_no_tables(new_database: NewDatabase, kind: str) -> None:
    assert level(new_database(kind).url, "tables") == "wrong"


def test_clocks(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    past = {"postgresql": "timestamptz '2020-01-01 00:00:00+00'"}
    monkeypatch.setattr(DIALECTS[db.kind], "clock", past.get(db.kind, "'2020-01-01 00:00:00'"))
    assert level(db.url, "clocks") == "note"


# An hour goes by with each look, or many.
HASTY = {
    "postgresql": "(pg_catalog.clock_timestamp() + nextval('looks') * interval '1 hour')",
    "mariadb": "(UTC_TIMESTAMP(6) + INTERVAL (@looks := COALESCE(@looks, 0) + 1) HOUR)",
    "mysql": "(UTC_TIMESTAMP(6) + INTERVAL (@looks := COALESCE(@looks, 0) + 1) HOUR)",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', abs(random() % 1000000) || ' hours')",
}


def test_a_clock_that_steps(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert level(db.url, "clock steps") == "ok"
    if db.kind == "postgresql":
        execute(db.url, "CREATE SEQUENCE looks")
    monkeypatch.setattr(DIALECTS[db.kind], "clock", HASTY[db.kind])
    assert level(db.url, "clock steps") == "wrong"


def test_a_clock_that_was_set_back(db: Database) -> None:
    with Locks(db.url) as locks, locks.lease("report", ttl=LONG):
        assert level(db.url, "clock set back") == "ok"
        execute(db.url, "UPDATE dblock_lock SET acquired_at = '2999-01-01 00:00:00'")
        assert level(db.url, "clock set back") == "note"


def test_no_server() -> None:
    with pytest.raises(Unavailable):
        findings("postgresql://nobody@127.0.0.1:1/nowhere")


# --- PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture
def postgres(new_database: NewDatabase) -> str:
    return new_database("postgresql", migrated=True).url


@pytest.mark.parametrize(
    ("statement", "what", "expected"),
    [
        (
            "ALTER DATABASE {db} SET default_transaction_isolation = serializable",
            "isolation",
            "note",
        ),
        ("ALTER DATABASE {db} SET default_transaction_read_only = on", "access", "wrong"),
        ("ALTER DATABASE {db} SET idle_session_timeout = '1min'", "idle timeouts", "note"),
        ("ALTER TABLE dblock_lock SET UNLOGGED", "volatile", "note"),
        ("ALTER TABLE dblock_run SET UNLOGGED", "unlogged", "wrong"),
        ("ALTER TABLE dblock_witness SET LOGGED", "witness", "wrong"),
        ("ALTER TABLE dblock_lock DROP CONSTRAINT dblock_lock_pkey", "index of lock", "wrong"),
        ("ALTER TABLE dblock_run DROP CONSTRAINT dblock_run_pkey", "index of run", "wrong"),
        (
            'ALTER TABLE dblock_lock ALTER lock_name TYPE text COLLATE "default"',
            "collation",
            "wrong",
        ),
        ("ALTER TABLE dblock_lock SET (autovacuum_enabled = off)", "autovacuum", "note"),
        ("ALTER TABLE dblock_lock ENABLE TRIGGER ALL", "triggers", "wrong"),
        ("DROP TRIGGER dblock_arrived ON dblock_epoch", "triggers", "wrong"),
        ("ALTER DATABASE {db} SET session_replication_role = replica", "triggers", "wrong"),
        ("GRANT CREATE ON SCHEMA public TO PUBLIC", "schemas", "note"),
    ],
)
def test_postgresql(postgres: str, statement: str, what: str, expected: str) -> None:
    before = findings(postgres)
    assert what not in before or before[what].level.value == "ok"
    name = create_engine(postgres).url.database
    execute(postgres, statement.format(db=name))
    assert level(postgres, what) == expected


def test_postgresqls_durability(postgres: str) -> None:
    """As the tests' server has it, to be fast."""
    ((fsync,),) = execute(postgres, "SHOW fsync")
    assert ("fsync" in findings(postgres)) == (fsync == "off")


def test_a_lent_engine_without_keepalives(postgres: str) -> None:
    engine = create_engine(postgres)
    with Locks(engine) as locks:
        found = {finding.what: finding for finding in examine(locks)}
    engine.dispose()
    assert found["keepalives"].level.value == "note"
    assert "tcp_user_timeout" in found["keepalives"].found


def test_a_pooler(new_database: NewDatabase) -> None:
    assert level(new_database("pgbouncer", migrated=True).url, "pooler") == "note"


@pytest.fixture
def role(postgres: str) -> Iterator[str]:
    name = new_name()
    execute(postgres, f"CREATE ROLE {name} LOGIN", f"GRANT SELECT ON dblock_schema TO {name}")
    yield name
    execute(postgres, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_role_without_rights(postgres: str, role: str) -> None:
    url = create_engine(postgres).url.set(username=role).render_as_string(False)
    found = findings(url)
    assert found["rights"].level.value == "wrong"
    assert "UPDATE on " in found["rights"].found
    assert found["tables"].level.value == "note"  # which it may not see
    assert "not seen" in found["tables"].found
    execute(postgres, *found["rights"].fix.splitlines())  # as it stands
    assert findings(url)["rights"].level.value == "ok"


def test_a_standby(own_server: OwnServers) -> None:
    server = own_server(PostgreSQL)
    upgrade(server.url)
    assert level(server.url, "replication") == "ok"
    standby = server.standby()
    eventually(lambda: level(server.url, "replication") == "note")  # it has connected
    assert level(standby.url, "server") == "wrong"
    execute(server.url, *findings(server.url)["replication"].fix.splitlines()[1:])  # as it stands
    eventually(lambda: level(server.url, "replication") == "ok")
    execute(
        server.url,
        "CREATE ROLE quick",
        "ALTER ROLE quick SET synchronous_commit = local",
        "ALTER ROLE quick IN DATABASE postgres SET synchronous_commit = local",
    )
    assert "quick" in findings(server.url)["replication of roles"].found
    execute(server.url, *findings(server.url)["replication of roles"].fix.splitlines())
    assert "replication of roles" not in findings(server.url)
    execute(server.url, "CREATE ROLE stranger LOGIN", "GRANT SELECT ON dblock_schema TO stranger")
    strangers = server.url.replace("postgres@", "stranger@")
    assert strangers != server.url
    assert "pg_monitor" in findings(strangers)["replication"].found
    standby.stop()
    eventually(lambda: level(server.url, "replication") == "wrong")


def test_standbys_of_patroni(own_server: OwnServers) -> None:
    """Its own settings are told instead of those that it would overwrite."""
    server = own_server(PostgreSQL)
    upgrade(server.url)
    server.standby()
    with psycopg.connect(server.url.replace("+psycopg", ""), application_name="Patroni heartbeat"):
        eventually(lambda: level(server.url, "replication") == "note")
        assert "synchronous_mode=true" in findings(server.url)["replication"].fix
        execute(
            server.url,
            "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'",
            "SELECT pg_reload_conf()",
        )
        eventually(lambda: level(server.url, "replication") == "ok")
        assert "synchronous_mode_strict" in findings(server.url)["replication"].found


# --- MariaDB -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE dblock_lock ENGINE = Aria", "engine of lock"),
        ("ALTER TABLE dblock_guard DROP PRIMARY KEY", "index of guard"),
        ("ALTER TABLE dblock_lock MODIFY lock_name VARCHAR(255)", "collation of lock"),
    ],
)
def test_mariadbs_tables(new_database: NewDatabase, statement: str, what: str) -> None:
    url = new_database("mariadb", migrated=True).url
    assert what not in findings(url)
    execute(url, statement)
    assert level(url, what) == "wrong"


@pytest.fixture(scope="module")
def own_mariadb() -> Iterator[str]:
    """On a server of its own, whose settings are nobody else's."""
    with find_or_skip(MariaDB) as server:
        name = new_name()
        server.create_database(name)
        url = server.url_for(name)
        upgrade(url)
        yield url


@pytest.mark.parametrize(
    ("variable", "well", "ill", "what", "expected"),
    [
        ("innodb_flush_log_at_trx_commit", "1", "0", "durability", "wrong"),
        ("innodb_flush_log_at_trx_commit", "1", "2", "durability", "wrong"),
        ("read_only", "OFF", "ON", "server", "wrong"),
        ("tx_read_only", "OFF", "ON", "server", "wrong"),
        ("tx_isolation", "'READ-COMMITTED'", "'SERIALIZABLE'", "isolation", "note"),
        ("wait_timeout", "28800", "30", "idle timeouts", "note"),
        ("max_statement_time", "0", "30", "idle timeouts", "note"),
    ],
)
def test_mariadbs_settings(
    own_mariadb: str, variable: str, well: str, ill: str, what: str, expected: str
) -> None:
    execute(own_mariadb, f"SET GLOBAL {variable} = {well}")
    assert level(own_mariadb, what) == "ok"
    try:
        execute(own_mariadb, f"SET GLOBAL {variable} = {ill}")
        assert level(own_mariadb, what) == expected
        advice = findings(own_mariadb)[what].fix.splitlines()
        statements = [line for line in advice if line.endswith(";")]
        execute(own_mariadb, *statements)
        assert (level(own_mariadb, what) == "ok") == bool(statements)
    finally:
        execute(own_mariadb, f"SET GLOBAL {variable} = {well}")


def test_a_mariadb_that_insists_on_snapshots(own_mariadb: str) -> None:
    """From 11.4.2 on dblock's own statements say that they do not mind."""
    ((version, before, level_before),) = execute(
        own_mariadb,
        "SELECT VERSION(), @@GLOBAL.innodb_snapshot_isolation, @@GLOBAL.tx_isolation",
    )
    spared = tuple(map(int, version.partition("-")[0].split("."))) >= (11, 4, 2)
    try:
        execute(own_mariadb, "SET GLOBAL tx_isolation = 'REPEATABLE-READ'")
        execute(own_mariadb, "SET GLOBAL innodb_snapshot_isolation = OFF")
        assert level(own_mariadb, "rollbacks") == "ok"
        assert "undoes" not in findings(own_mariadb)["isolation"].consequence
        execute(own_mariadb, "SET GLOBAL innodb_snapshot_isolation = ON")
        assert level(own_mariadb, "rollbacks") == ("ok" if spared else "wrong")
        assert "undoes" in findings(own_mariadb)["isolation"].consequence
    finally:
        execute(own_mariadb, f"SET GLOBAL innodb_snapshot_isolation = {before}")
        execute(own_mariadb, f"SET GLOBAL tx_isolation = '{level_before}'")


def test_mariadbs_start_options(own_server: OwnServers) -> None:
    options = ["--innodb-rollback-on-timeout=ON", "--log-bin", "--binlog-format=STATEMENT"]
    server = own_server(lambda: MariaDB(options=options))
    url = server.url_for(new_name())
    server.create_database(url.rpartition("/")[2])
    upgrade(url)
    assert level(url, "rollbacks") == "wrong"
    assert level(url, "binary log") == "wrong"
    with Locks(url) as locks, pytest.raises(Unavailable, match="BINLOG_FORMAT = STATEMENT"):
        locks.lease("a").acquire()
    execute(url, "SET GLOBAL binlog_format = MIXED")
    assert level(url, "binary log") == "ok"
    with Locks(url) as locks:
        assert locks.lease("a").acquire()


# --- SQLite --------------------------------------------------------------------------------------


@pytest.fixture
def sqlite(new_database: NewDatabase) -> str:
    return new_database("sqlite", migrated=True).url


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def test_sqlites_journal(sqlite: str) -> None:
    assert level(sqlite, "journal") == "ok"
    execute(sqlite, "PRAGMA journal_mode = DELETE")
    assert level(sqlite, "journal") == "note"


def test_a_network_file_system(sqlite: str, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {path_of(sqlite).parent} nfs4 rw 0 0\n")
    assert level(sqlite, "file") == "ok"
    with Locks(sqlite) as locks:
        connections = locks._database.connections
        connection = connections.take()
        query = Query("PRAGMA database_list", {}, read=all_rows)
        rows = connections.execute(connection, query).answer
        patient = Patient(
            locks._database.dialect, connection, lambda sql, **params: [*map(tuple, rows)]
        )
        (finding,) = file(patient, mounts)
        connections.give(connection)
    assert finding.level is Level.WRONG


def test_a_damaged_file(sqlite: str) -> None:
    assert level(sqlite, "integrity") == "ok"
    page = "SELECT rootpage FROM sqlite_master WHERE name = 'dblock_applied'"
    ((root,),) = execute(sqlite, page)
    ((size,),) = execute(sqlite, "PRAGMA page_size")
    execute(sqlite, "PRAGMA wal_checkpoint(TRUNCATE)")
    with path_of(sqlite).open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    assert level(sqlite, "integrity") == "wrong"


def test_sqlites_index(sqlite: str) -> None:
    execute(
        sqlite,
        "ALTER TABLE dblock_lock RENAME TO away",
        "CREATE TABLE dblock_lock AS SELECT * FROM away",
    )
    assert level(sqlite, "index of lock") == "wrong"
