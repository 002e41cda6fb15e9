"""A Galera cluster of MariaDB servers on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.servers.base import ServerMissing, execute
from tests.servers.mariadb import MariaDB
from tests.servers.own import free_port

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so")
MISSING = "no libgalera_smm.so on this machine (apt install galera-4 rsync)"


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
        self.group_port, self.ist_port, self.sst_port = (free_port() for _ in range(3))

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
        return self.status("wsrep_local_state_comment") == "Synced"

    def status(self, name: str) -> str:
        ((_, value),) = execute(self.url, f"SHOW GLOBAL STATUS LIKE '{name}'", read_timeout=5)
        return str(value)


class Galera:
    """Three servers, each of which can be written to."""

    def __init__(self, size: int = 3, *, durable: bool = False) -> None:
        self.nodes = [Node(self, durable) for _ in range(size)]
        # Not a node's directory: that names the processes of this node alone.
        self.name = f"dblock {self.nodes[0].port}"

    def peers_of(self, node: Node) -> str:
        """Where a node that starts finds others; none is there for the first."""
        others = [other for other in self.nodes if other is not node and other.running]
        return ",".join(f"127.0.0.1:{other.group_port}" for other in others)

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def close(self) -> None:
        with ExitStack() as all_of_them:
            for node in self.nodes:
                all_of_them.callback(node.close)
