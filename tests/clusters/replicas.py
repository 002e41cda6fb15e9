"""A MariaDB server and its replica on this machine, with semi-synchronous replication."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import pymysql
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from tests.clusters.cluster import Cluster
from tests.clusters.helpers import BRIEFLY, HAProxy, mariadb_check
from tests.servers.base import Server, execute
from tests.servers.mariadb import MariaDB
from tests.support import eventually

NEVER = 4_000_000_000  # ms; a primary that waits for no replica after some time loses commits
OPTIONS = (
    "--log-bin=log",
    "--binlog-format=ROW",
    "--gtid-strict-mode=ON",
    "--rpl-semi-sync-master-enabled=ON",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
    f"--rpl-semi-sync-master-timeout={NEVER}",
    "--rpl-semi-sync-slave-enabled=ON",
    "--slave-net-timeout=4",  # half of it is the heartbeat, by which one learns of the other's end
    "--log-bin-trust-function-creators=ON",
    "--read-only=ON",  # until it is the primary
)
#: What programs connect as. It is not exempt from read_only, as root is.
USER = "app"
CHECK = mariadb_check("SHOW GLOBAL VARIABLES LIKE 'read_only'", b"\3OFF")


class Node(MariaDB):
    """One of the two."""

    name = "MariaDB replica"

    def __init__(self, number: int, durable: bool = False) -> None:
        super().__init__(durable, options=[*OPTIONS, f"--server-id={number}"])

    def follow(self, primary: Node) -> None:
        """Be the replica of another."""
        execute(
            self.url,
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, "
            "MASTER_USER='root', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
            "START SLAVE",
        )

    def promote(self, *, alone: bool = False) -> None:
        """Be the primary, with all that has come from the one before.

        One that is ``alone`` would wait for ever for a replica, so it is told not to.
        """
        execute(self.url, "STOP SLAVE IO_THREAD")
        eventually(lambda: self._has(self._heard_of()["Gtid_IO_Pos"]))
        if alone:
            execute(self.url, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        execute(self.url, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")

    def step_down(self) -> str:
        """Take no more writes; return all that there were."""
        execute(self.url, "SET GLOBAL read_only = ON")
        ((position,),) = execute(self.url, "SELECT @@gtid_binlog_pos")
        execute(self.url, f"SET GLOBAL gtid_slave_pos = '{position}'")
        return str(position)

    def catch_up(self, position: str) -> None:
        eventually(lambda: self._has(position))

    @property
    def is_waiting(self) -> bool:
        """Whether a commit waits for the replica."""
        return self.status("rpl_semi_sync_master_wait_sessions") != "0"

    @property
    def is_heard(self) -> bool:
        """Whether a replica acknowledges what it commits."""
        return self.status("rpl_semi_sync_master_clients") == "1"

    @property
    def is_primary(self) -> bool:
        patience = {"connect_timeout": BRIEFLY, "read_timeout": BRIEFLY}
        with contextlib.suppress(DBAPIError):
            return self.running and execute(self.url, "SELECT @@read_only", **patience) == [(0,)]
        return False

    def _has(self, position: str) -> bool:
        return execute(self.url, f"SELECT MASTER_GTID_WAIT('{position}', 1)") == [(0,)]

    def _heard_of(self) -> dict[str, Any]:
        """How far it has come as a replica."""
        connection = pymysql.connect(host=self.address, port=self.port, user="root")
        with connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            return dict(cursor.fetchall()[0])


class Replicas(Cluster[Node]):
    """A primary and its replica, with HAProxy in front. What was killed stays away."""

    kind = "mariadb"

    def __init__(self, durable: bool = False) -> None:
        self.nodes = [Node(1, durable), Node(2, durable)]
        self._haproxy = HAProxy(
            f"mysql+pymysql://{USER}@127.0.0.1:{{port}}/mysql",
            CHECK,
            lambda: {node.port: "" for node in self.nodes},
            many=1,
        )

    @property
    def url(self) -> str:
        return self._haproxy.url

    @property
    def _parts(self) -> Sequence[Server]:
        return (*self.nodes, self._haproxy)

    def start(self) -> None:
        primary, replica = self.nodes
        for node in self.nodes:
            node.start()
        replica.follow(primary)
        eventually(lambda: primary.is_heard)
        execute(
            primary.url,
            f"CREATE USER {USER}@'127.0.0.1'",
            f"GRANT ALL ON `%%`.* TO {USER}@'127.0.0.1'",  # which read_only is above
            "SET GLOBAL read_only = OFF",
        )
        self._haproxy.start()
        self.settle()

    def _primaries(self) -> Iterable[Node]:
        return (node for node in self.nodes if node.is_primary)

    @property
    def replica(self) -> Node:
        (replica,) = (node for node in self.nodes if node is not self.primary)
        return replica

    def settle(self) -> None:
        """Wait until clients come to the primary."""
        eventually(lambda: self._haproxy.decided)
        eventually(self._leads_to_the_primary)

    def _leads_to_the_primary(self) -> bool:
        url = make_url(self.url).set(database=None)
        with contextlib.suppress(DBAPIError):
            return execute(str(url), "SELECT @@port") == [(self.primary.port,)]
        return False

    # --- what happens to it --------------------------------------------------------------------

    def fail_over(self) -> None:
        """Let the primary die, and the replica, which may be frozen, have its place."""
        replica = self.replica
        self.primary.kill()
        replica.resume()
        replica.promote(alone=True)
        self.settle()

    def switch_over(self) -> None:
        """Let the two change places, in an orderly way."""
        old, new = self.primary, self.replica
        new.catch_up(old.step_down())
        new.promote()
        old.follow(new)
        eventually(lambda: new.is_heard)
        self.settle()
