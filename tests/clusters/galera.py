"""A Galera cluster of MariaDB servers on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import pymysql
from sqlalchemy.exc import DBAPIError

from tests.clusters.cluster import Cluster
from tests.clusters.helpers import BRIEFLY, HAProxy, family_check
from tests.patience import SECONDS
from tests.servers.base import Server, ServerMissing, execute
from tests.servers.mariadb import MariaDB
from tests.support import eventually

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so")
MISSING = "no libgalera_smm.so on this machine (apt install galera-4 rsync)"

#: Whether programs come to one node, through HAProxy, or to all.
Writers = Literal["one", "all"]
STATE = "wsrep_local_state_comment"
SYNCED = "Synced"  # not so a donor, which waits, and a node without the majority


def find_provider() -> Path:
    for place in map(Path, PROVIDERS):
        if place.exists():
            return place
    raise ServerMissing("Galera", MISSING)


class Node(MariaDB):
    """One server of a cluster."""

    name = "Galera"

    def __init__(self, cluster: Galera, durable: bool) -> None:
        self._provider = find_provider()
        super().__init__(durable)
        self._cluster = cluster
        self.group_port, self.ist_port, self.sst_port = (self._claim_port() for _ in range(3))

    def _command(self) -> Sequence[str | Path]:
        own = (
            f"gmcast.listen_addr=tcp://127.0.0.1:{self.group_port}",
            f"ist.recv_addr=127.0.0.1:{self.ist_port}",
            "gcache.size=16M",
            "evs.inactive_check_period=PT0.5S",
        )
        return [
            *super()._command(),
            "--wsrep-on=ON",
            f"--wsrep-provider={self._provider}",
            f"--wsrep-cluster-name={self._cluster.name}",
            f"--wsrep-cluster-address=gcomm://{self._cluster.peers_of(self)}",
            f"--wsrep-node-address=127.0.0.1:{self.group_port}",
            f"--wsrep-provider-options={';'.join(own)}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{self.sst_port}",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        ]

    def _probe(self) -> None:
        super()._probe()
        if not self.synced:
            raise OSError("the node is not in the cluster yet")

    @property
    def synced(self) -> bool:
        return self.status(STATE, read_timeout=BRIEFLY) == SYNCED

    @property
    def writable(self) -> bool:
        """Whether it answers, and is of the majority."""
        with contextlib.suppress(DBAPIError):
            return self.running and self.synced
        return False

    @property
    def view(self) -> str | None:
        """The view of the cluster that it is in, if it is of the majority.

        A node that was paused may take itself to be in the one from before.
        """
        with contextlib.suppress(DBAPIError):
            if self.writable:
                return self.status("wsrep_cluster_conf_id", read_timeout=BRIEFLY)
        return None

    def catches_up(self) -> bool:
        """Wait until it has what the others have committed; not for longer than it waits."""
        with contextlib.suppress(pymysql.MySQLError):
            self._run_bare("SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1")
            return True
        return False

    def isolate(self) -> None:
        """Cut it from the other nodes; its clients still come to it."""
        self._run_bare("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")

    def rejoin(self) -> None:
        """Undo `isolate`."""
        self._run_bare("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")

    def _run_bare(self, statement: str) -> None:
        """Without SQLAlchemy, which rolls back, and a node without the majority refuses that."""
        timeouts = {"connect_timeout": BRIEFLY, "read_timeout": SECONDS}
        connection = pymysql.connect(host=self.address, port=self.port, user="root", **timeouts)
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)


#: All sessions lead to one node, and stay there when one from before is back.
CHECK = (
    "stick-table type integer size 1",
    "stick on int(1)",
    *family_check(f"SHOW STATUS LIKE '{STATE}'", SYNCED.encode()),
)


class Galera(Cluster[Node]):
    """Three servers, each of which can be written to."""

    kind = "mariadb"

    def __init__(self, writers: Writers = "all", size: int = 3, *, durable: bool = False) -> None:
        self.nodes = [Node(self, durable) for _ in range(size)]
        self.writers = writers
        self._haproxy: HAProxy | None = None
        if writers == "one":
            self._haproxy = HAProxy(
                "mysql+pymysql://root@127.0.0.1:{port}/mysql",
                CHECK,
                lambda: {node.port: "" for node in self.nodes},
                many=size,
            )
        # Not a node's directory: that names the processes of this node alone.
        self.name = f"dblock {self.nodes[0].port}"

    @property
    def _parts(self) -> Sequence[Server]:
        return [*self.nodes, *([self._haproxy] if self._haproxy else [])]

    @property
    def url(self) -> str:
        return self._haproxy.url if self._haproxy else self.primary.url

    def peers_of(self, node: Node) -> str:
        """Where a node that starts finds others; none is there for the first."""
        others = [other for other in self.nodes if other is not node and other.running]
        return ",".join(f"127.0.0.1:{other.group_port}" for other in others)

    # --- what is the case ----------------------------------------------------------------------

    def _primaries(self) -> Iterable[Node]:
        """The node that HAProxy leads to, or all that can be written to."""
        return self._led_to() if self._haproxy else self._writable()

    def _led_to(self) -> list[Node]:
        with contextlib.suppress(DBAPIError):
            ((port,),) = execute(
                self.url, "SELECT @@port", connect_timeout=BRIEFLY, read_timeout=BRIEFLY
            )
            return [node for node in self.nodes if node.port == port]
        return []

    def _writable(self) -> list[Node]:
        return [node for node in self.nodes if node.writable]

    def settle(self) -> None:
        """Wait until all nodes are together, each with what the others have committed."""
        eventually(self._settled)

    def _settled(self) -> bool:
        views = {node.view for node in self.nodes}
        if len(views) > 1 or None in views:
            return False
        led = self._haproxy is None or self._haproxy.decided
        return led and all(node.catches_up() for node in self.nodes)
