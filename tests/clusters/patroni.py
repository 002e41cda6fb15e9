"""A Patroni cluster of PostgreSQL servers on this machine."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from tests.clusters.cluster import Cluster
from tests.clusters.helpers import POSTGRESQL, Cable, Etcd, HAProxy, Ports, ask, find_tool
from tests.servers import reaper
from tests.servers.base import Server, ServerMissing, execute
from tests.servers.own import reachable, server_user
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgresql import PostgreSQL
from tests.support import eventually

MISSING = "no Patroni for this Python (pip install 'patroni[psycopg3,etcd3]>=4,<5')"

#: What a commit waits for: for no standby, for the synchronous one, or for any of several.
Mode = Literal["async", "sync", "quorum"]
SETTING: dict[Mode, bool | str] = {"async": False, "sync": True, "quorum": "quorum"}
#: What Patroni calls a standby that may become the primary.
STANDBY: dict[Mode, str] = {"async": "replica", "sync": "sync_standby", "quorum": "quorum_standby"}
#: PostgreSQL calls them by the mode itself. Only a primary shows any.
STREAMING = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
#: How clients come to the primary. By "hosts" libpq tries one node after the other.
Front = Literal["haproxy", "hosts", "pgbouncer"]
FRONTS: tuple[Front, ...] = ("haproxy", "hosts", "pgbouncer")
# The shortest that Patroni allows; but a busy machine has time to answer.
TIMES = {"ttl": 20, "loop_wait": 1, "retry_timeout": 5}
LAG = 100 << 20  # a standby may be that far behind and become the primary
PARAMETERS = {
    "dynamic_shared_memory_type": "mmap",  # in the data directory, not in /dev/shm
    "max_connections": 200,
    "max_wal_size": "256MB",  # of memory
    "shared_buffers": "32MB",
    "wal_keep_size": "64MB",
}


class Node(PostgreSQL):
    """One machine: Patroni, and the PostgreSQL that it runs."""

    name = "Patroni"
    stop_signal = signal.SIGTERM

    def __init__(self, cluster: Patroni, number: int) -> None:
        if find_spec("patroni") is None:
            raise ServerMissing(self.name, MISSING)
        self._setpriv = None if reachable(Path(sys.executable)) else find_tool("setpriv")
        super().__init__(cluster.durable)
        self._cluster = cluster
        # Not the directory's name: that names the processes of this node alone.
        self.member = f"n{number}"
        self.rest = self._claim_port()
        self.cable = Cable(self._own_ports) if cluster.cuttable else None

    @property
    def ports(self) -> Ports:
        return self.cable.outer if self.cable else self._own_ports()

    def _own_ports(self) -> Ports:
        return Ports(self.port, self.rest, self._cluster.etcd.port)

    def _prepare(self) -> None:
        if not reachable(self._programs):
            self._programs = self._copy_wheel()

    def _command(self) -> Sequence[str | Path]:
        file = self.directory / "patroni.yml"
        file.write_text(json.dumps(self._settings()))  # JSON is YAML
        return [sys.executable, "-m", "patroni", file]

    def _settings(self) -> dict[str, Any]:
        ports = self.ports
        syncs = {"fsync": "on" if self.durable else "off"}
        everybody = [f"host {which} all 127.0.0.1/32 trust" for which in ("all", "replication")]
        common = {
            **TIMES,
            "maximum_lag_on_failover": LAG,
            "synchronous_mode": SETTING[self._cluster.mode],
            "postgresql": {"use_pg_rewind": True, "parameters": PARAMETERS | syncs},
        }
        return {
            "scope": "dblock",
            "name": self.member,
            "restapi": {
                "listen": f"127.0.0.1:{self.rest}",
                "connect_address": f"127.0.0.1:{ports.rest}",
            },
            # As a proxy: else Patroni asks etcd for an address, which is not that of the cable.
            "etcd3": {"hosts": [f"127.0.0.1:{ports.etcd}"], "use_proxies": True},
            "bootstrap": {
                "dcs": common,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{ports.database}",
                "data_dir": str(self.data),
                "bin_dir": str(self._programs),
                "pgpass": str(self.directory / "pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "postgres"},
                },
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
                "parameters": {"unix_socket_directories": str(self.directory)},
                "pg_hba": ["local all all trust", *everybody],
            },
            "watchdog": {"mode": "off"},
        }

    def _through(self) -> Sequence[str]:
        if self._setpriv is None:
            return ()
        # The servers' user may not look into the folder of this Python. Let it, in this process.
        user, allowed = server_user(), "+dac_read_search"
        ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        return [str(self._setpriv), *ids, f"--inh-caps={allowed}", f"--ambient-caps={allowed}"]

    def _options(self) -> dict[str, Any]:
        options = super()._options()
        if self._setpriv is not None:  # which changes the user
            for which in ("user", "group", "extra_groups"):
                del options[which]
        return options

    def kill(self) -> None:
        """Turn the machine off."""
        self.pause()  # so that nothing starts another process meanwhile
        super().kill()

    def kill_database(self) -> None:
        """Kill PostgreSQL. Patroni, which goes on, starts it again."""
        reaper.kill(f"{self.directory.name}/data")

    def freeze_patroni(self) -> None:
        """Freeze Patroni alone: PostgreSQL goes on as what it is."""
        assert self._process is not None
        patroni = self._process.pid
        reaper.send(patroni, signal.SIGSTOP)
        # On a busy machine it may answer once more until then.
        eventually(lambda: self._states()[patroni] == "T")

    def cut(self) -> None:
        """Cut the machine's cable: it goes on, with those that its own ports lead to it."""
        assert self.cable is not None, "this cluster is not cuttable"
        self.cable.pause()

    def resume(self) -> None:
        """Undo `pause`, `freeze_patroni` and `cut`."""
        super().resume()
        if self.cable:
            self.cable.resume()

    def ask(self, path: str) -> Any:
        """Ask Patroni something, from another machine; None unless it says yes."""
        with contextlib.suppress(OSError):
            return ask(f"http://127.0.0.1:{self.ports.rest}{path}")
        return None

    def end_round(self) -> None:
        """Wait until Patroni has begun another round and ended it, as the one after it shows."""
        for _ in range(2):
            eventually(partial(self._is_later, self._round()))

    def _is_later(self, begun: int) -> bool:
        return self._round() > begun

    def _round(self) -> int:
        """When the last round began, in seconds; 0 if Patroni does not say so."""
        known = self.ask("/patroni")
        return int(known["dcs_last_seen"]) if known else 0

    @property
    def is_primary(self) -> bool:
        return self.running and self.ask("/primary") is not None


class Patroni(Cluster[Node]):
    """Two or three nodes, one of which is the primary, with all that leads to it."""

    kind = "postgresql"

    def __init__(
        self, mode: Mode, size: int = 2, *, cuttable: bool = False, durable: bool = False
    ) -> None:
        """The nodes of a ``cuttable`` one have cables, by which all that they say goes.

        Those of a ``durable`` one wait for their disks.
        """
        self.mode = mode
        self.durable = durable
        self.cuttable = cuttable
        self.etcd = Etcd()
        self.nodes = [Node(self, number) for number in range(1, size + 1)]
        self.haproxy = HAProxy(
            POSTGRESQL,
            ("option httpchk OPTIONS /primary", "http-check expect status 200"),
            lambda: {node.ports.database: f"port {node.ports.rest}" for node in self.nodes},
            many=1,
        )
        self._pgbouncer = PgBouncer(self.haproxy)

    @property
    def _parts(self) -> Sequence[Server]:
        cables = [node.cable for node in self.nodes if node.cable]
        return (self.etcd, *cables, *self.nodes, self.haproxy, self._pgbouncer)

    @property
    def url(self) -> str:
        return self.through("haproxy")

    def through(self, front: Front) -> str:
        """SQLAlchemy URL of the primary's maintenance database, by one of the ways to it."""
        if front == "haproxy":
            return self.haproxy.url
        if front == "pgbouncer":
            return self._pgbouncer.url
        hosts = tuple(f"127.0.0.1:{node.ports.database}" for node in self.nodes)
        query = {"host": hosts, "target_session_attrs": "read-write"}
        url = make_url("postgresql+psycopg://postgres@/postgres").set(query=query)
        return url.render_as_string(hide_password=False)

    # --- what is the case ----------------------------------------------------------------------

    def _primaries(self) -> Iterable[Node]:
        return (node for node in self.nodes if node.is_primary)

    def settle(self) -> None:
        """Wait until every node has its place, and clients come to the primary.

        Patroni acts on what it saw a moment ago. When PostgreSQL has crashed, it takes the standby
        off the list of those that may become the primary until it sees it again. So all has to be
        in its place before a round of Patroni's, and after it.
        """
        while True:
            eventually(self._settled)
            self.primary.end_round()
            if self._settled():
                return

    def _settled(self) -> bool:
        primary = self.primary
        known = primary.ask("/cluster") or {"members": []}
        roles = [(each.get("role"), each.get("state")) for each in known["members"]]
        if ("leader", "running") not in roles or (STANDBY[self.mode], "streaming") not in roles:
            return False
        with contextlib.suppress(DBAPIError):
            states = [state for (state,) in execute(self.url, STREAMING, connect_timeout=5)]
            everybody = len(states) == len(self.nodes) - 1
            return everybody and self.mode in states and self.haproxy.decided
        return False

    # --- what happens to it --------------------------------------------------------------------

    def kill_database(self) -> None:
        """Kill the primary's PostgreSQL, which Patroni starts again where it was."""
        self.primary.kill_database()

    def cut(self) -> None:
        """Cut the primary's machine off from etcd, the other nodes, and the ways to it."""
        self.primary.cut()

    def switch_over(self) -> None:
        """Let a standby be the primary, in an orderly way."""
        eventually(partial(self._switched_over, self.primary))

    def _switched_over(self, old: Node) -> bool:
        self.settle()
        with contextlib.suppress(OSError):  # a busy standby does not answer in time
            ask(f"http://127.0.0.1:{old.rest}/switchover", {"leader": old.member})
        return self.primary is not old
