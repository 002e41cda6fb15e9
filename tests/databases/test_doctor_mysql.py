"""The doctor on MySQL: what is planted in a server's set-up is found, with what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from sqlalchemy import make_url

from dblock import Locks, Unavailable
from dblock.schema import upgrade
from tests.clusters.group import bootstrap, join, member_options
from tests.conftest import NewDatabase, OwnServers, find_or_skip, new_name
from tests.databases.test_doctor import findings, level
from tests.servers import FAMILY, MySQL, execute
from tests.servers.own import free_port
from tests.support import eventually

LOADED = "--plugin-load-add={}.so"


def made(server: MySQL) -> str:
    """The URL of a new database with dblock's tables."""
    name = new_name()
    server.create_database(name)
    upgrade(server.url_for(name))
    return server.url_for(name)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (  # whose keys are shorter
            "ALTER TABLE dblock_lock MODIFY lock_name VARBINARY(255), ENGINE = MyISAM",
            "engine of lock",
        ),
        ("ALTER TABLE dblock_guard DROP PRIMARY KEY", "index of guard"),
        ("ALTER TABLE dblock_lock MODIFY lock_name VARCHAR(255)", "collation of lock"),
    ],
)
def test_tables(new_database: NewDatabase, statement: str, what: str) -> None:
    url = new_database("mysql", migrated=True).url
    assert what not in findings(url)
    execute(url, statement)
    assert level(url, what) == "wrong"


@pytest.fixture(scope="module")
def own_mysql() -> Iterator[str]:
    """On a server of its own, whose settings are nobody else's."""
    with find_or_skip(MySQL) as server:
        url = made(server)
        execute(url, "SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL sync_binlog = 1")
        yield url


@pytest.mark.parametrize(
    ("variable", "well", "ill", "what", "expected"),
    [
        ("innodb_flush_log_at_trx_commit", "1", "0", "durability", "wrong"),
        ("innodb_flush_log_at_trx_commit", "1", "2", "durability", "wrong"),
        ("sync_binlog", "1", "0", "durability", "wrong"),
        ("binlog_order_commits", "ON", "OFF", "binary log", "note"),
        ("read_only", "OFF", "ON", "server", "wrong"),
        ("super_read_only", "OFF", "ON", "server", "wrong"),
        ("transaction_read_only", "OFF", "ON", "server", "wrong"),
        ("transaction_isolation", "'READ-COMMITTED'", "'SERIALIZABLE'", "isolation", "note"),
        ("wait_timeout", "28800", "30", "idle timeouts", "note"),
        ("max_execution_time", "0", "30000", "idle timeouts", "note"),
    ],
)
def test_settings(
    own_mysql: str, variable: str, well: str, ill: str, what: str, expected: str
) -> None:
    execute(own_mysql, f"SET GLOBAL {variable} = {well}")
    assert level(own_mysql, what) == "ok"
    try:
        execute(own_mysql, f"SET GLOBAL {variable} = {ill}")
        assert level(own_mysql, what) == expected
        advice = findings(own_mysql)[what].fix.splitlines()
        statements = [line for line in advice if line.endswith(";")]
        execute(own_mysql, *statements)
        assert (level(own_mysql, what) == "ok") == bool(statements)
    finally:
        execute(
            own_mysql,
            "SET GLOBAL super_read_only = OFF",
            "SET GLOBAL read_only = OFF",
            f"SET GLOBAL {variable} = {well}",
        )


def test_start_options(own_server: OwnServers) -> None:
    options = ["--innodb-rollback-on-timeout=ON", "--binlog-format=STATEMENT", "--sysdate-is-now"]
    url = made(own_server(lambda: MySQL(options=options)))
    assert level(url, "rollbacks") == "wrong"
    assert level(url, "clock of statements") == "wrong"
    assert level(url, "binary log") == "wrong"
    with Locks(url) as locks, pytest.raises(Unavailable, match="BINLOG_FORMAT = STATEMENT"):
        locks.lease("a").acquire()
    execute(url, *findings(url)["binary log"].fix.splitlines())  # as it stands
    assert level(url, "binary log") == "ok"
    with Locks(url) as locks:
        assert locks.lease("a").acquire()


# --- replicas ------------------------------------------------------------------------------------

REPLICATES = (
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--replica-net-timeout=4",
    "--tls-version=TLSv1.2,TLSv1.3",  # servers insist on it among themselves
)


def replicating(number: int, *options: str) -> MySQL:
    return MySQL(options=[*REPLICATES, f"--server-id={number}", *options])


def follow(replica: MySQL, primary: MySQL) -> None:
    execute(
        replica.url,
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={primary.port}, "
        "SOURCE_USER='root', SOURCE_AUTO_POSITION=1, SOURCE_CONNECT_RETRY=1, "
        "GET_SOURCE_PUBLIC_KEY=1",
        "START REPLICA",
    )


def test_replicas(own_server: OwnServers) -> None:
    primary = own_server(lambda: replicating(1))
    url = made(primary)
    assert findings(url)["replication"].found == "no replica is seen"
    replica = own_server(lambda: replicating(2))
    follow(replica, primary)
    eventually(lambda: findings(url)["replication"].found == "1 asynchronous")
    assert level(url, "replication") == "wrong"
    advice = findings(url)["replication"].fix.splitlines()[1:]
    execute(primary.url, *advice[:3])  # as it stands
    execute(replica.url, *advice[3:])
    eventually(lambda: level(url, "replication") == "ok")
    assert findings(url)["replication"].found == "semi-synchronous"
    execute(replica.url, "SET GLOBAL super_read_only = ON")
    replicas = findings(replica.url_for(url.rpartition("/")[2]))
    assert replicas["server"].found.endswith("super_read_only = ON")
    execute(primary.url, "SET GLOBAL rpl_semi_sync_source_wait_point = 'AFTER_COMMIT'")
    assert level(url, "replication") == "note"
    execute(primary.url, findings(url)["replication"].fix)
    execute(primary.url, "SET GLOBAL rpl_semi_sync_source_wait_no_replica = OFF")
    assert level(url, "replication") == "note"
    execute(primary.url, findings(url)["replication"].fix)
    execute(primary.url, "SET GLOBAL rpl_semi_sync_source_timeout = 10")
    assert level(url, "replication") == "note"
    replica.pause()
    execute(primary.url, "CREATE DATABASE unheard")
    assert "do not wait" in findings(url)["replication"].found
    replica.resume()
    eventually(lambda: level(url, "replication") == "note")
    execute(primary.url, findings(url)["replication"].fix)
    assert level(url, "replication") == "ok"
    replica.kill()
    eventually(lambda: "0 replicas are connected" in findings(url)["replication"].found)
    assert level(url, "replication") == "wrong"


@pytest.mark.parametrize("kind", FAMILY)
def test_an_account_that_may_not_see_replicas(new_database: NewDatabase, kind: str) -> None:
    """It was told that there are none."""
    url, user = make_url(new_database(kind, migrated=True).url), new_name()[:32]
    root = url.render_as_string(hide_password=False)
    execute(
        root,
        f"CREATE USER '{user}'@'%%'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{url.database}`.* TO '{user}'@'%%'",
    )
    try:
        app = url.set(username=user).render_as_string(hide_password=False)
        found = findings(app)["replication"]
        assert (found.level.value, "may not see" in found.found) == ("note", True)
        execute(root, found.fix.replace("%", "%%"))  # as it stands, but for the driver
        assert findings(app)["replication"].found == "no replica is seen"
    finally:
        execute(root, f"DROP USER '{user}'@'%%'")


# --- group replication ---------------------------------------------------------------------------


def in_a_group(number: int, port: int, ports: list[int], *options: str) -> MySQL:
    options = ("--loose-group-replication-consistency=EVENTUAL", *options)
    return MySQL(options=[*member_options(number, port, ports), *options])


def a_group(own_server: OwnServers, *options: str) -> tuple[MySQL, MySQL]:
    """A group of one, and a server that may join it."""
    ports = [free_port(), free_port()]
    first, second = (
        own_server(partial(in_a_group, number, port, ports, *options))
        for number, port in enumerate(ports, 1)
    )
    bootstrap(first)
    return first, second


def test_a_group_with_one_primary(own_server: OwnServers) -> None:
    first, second = a_group(own_server)
    url = made(first)
    found = findings(url)
    assert found["replication"].found == "a group of 1 with one primary"
    assert found["members"].level.value == "note"
    assert found["reads"].level.value == "note"
    execute(first.url, found["reads"].fix)  # as it stands
    assert level(url, "reads") == "ok"
    join(second)
    eventually(lambda: findings(url)["members"].found == "2")
    with Locks(url) as locks, locks.lease("a", wait=0) as lease:
        assert lease.fence == 1
    second.pause()
    eventually(lambda: "no majority" in findings(url)["replication"].consequence)
    assert level(url, "replication") == "wrong"
    second.resume()
    eventually(lambda: level(url, "replication") == "ok")
    execute(first.url, "STOP GROUP_REPLICATION")
    assert findings(url)["replication"].found == "a member of a group, OFFLINE"


def has_tables(url: str) -> bool:
    return level(url, "tables") == "ok"


def test_a_group_in_which_each_member_writes(own_server: OwnServers) -> None:
    first, second = a_group(own_server, "--loose-group-replication-single-primary-mode=OFF")
    join(second)
    name = made(first).rpartition("/")[2]
    for url in (first.url_for(name), second.url_for(name)):
        eventually(partial(has_tables, url))
        assert level(url, "replication") == "note"
        assert "row locks or guards" in findings(url)["replication"].consequence
        assert level(url, "reads") == "note"
        execute(url, findings(url)["reads"].fix)  # as it stands
        assert level(url, "reads") == "ok"
    with (
        Locks(first.url_for(name)) as here,
        Locks(second.url_for(name)) as there,
        here.lease("a", wait=0),
    ):
        assert not there.lease("a", wait=0).acquire()
