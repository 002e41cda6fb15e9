"""A Patroni cluster of PostgreSQL servers on this machine."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from tests.clusters.helpers import Etcd, HAProxy, ask, find_tool
from tests.servers import reaper
from tests.servers.base import Server, ServerMissing, execute
from tests.servers.own import free_port, reachable, server_user
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
    "fsync": "off",
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
        super().__init__()
        self._cluster = cluster
        # Not the directory's name: that names the processes of this node alone.
        self.member = f"n{number}"
        self.rest = free_port()

    def _prepare(self) -> None:
        if not reachable(self._programs):
            self._programs = self._copy_wheel()

    def _command(self) -> Sequence[str | Path]:
        file = self.directory / "patroni.yml"
        file.write_text(json.dumps(self._settings()))  # JSON is YAML
        return [sys.executable, "-m", "patroni", file]

    def _settings(self) -> dict[str, Any]:
        address, rest = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.rest}"
        everybody = [f"host {which} all 127.0.0.1/32 trust" for which in ("all", "replication")]
        common = {
            **TIMES,
            "maximum_lag_on_failover": LAG,
            "synchronous_mode": SETTING[self._cluster.mode],
            "postgresql": {"use_pg_rewind": True, "parameters": PARAMETERS},
        }
        return {
            "scope": "dblock",
            "name": self.member,
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"hosts": f"127.0.0.1:{self._cluster.etcd.port}"},
            "bootstrap": {
                "dcs": common,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "no-sync"],
            },
            "postgresql": {
                "listen": address,
                "connect_address": address,
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
        self._process.send_signal(signal.SIGSTOP)

    def ask(self, path: str) -> Any:
        """Ask Patroni something; None unless it says yes."""
        with contextlib.suppress(OSError):
            return ask(f"http://127.0.0.1:{self.rest}{path}")
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


class Patroni(Server):
    """Two or three nodes, one of which is the primary, with all that leads to it."""

    kind = "postgresql"

    def __init__(self, mode: Mode, size: int = 2) -> None:
        self.mode = mode
        self.etcd = Etcd()
        self.nodes = [Node(self, number) for number in range(1, size + 1)]
        self.haproxy = HAProxy(
            "postgresql+psycopg://postgres@127.0.0.1:{port}/postgres",
            ("option httpchk OPTIONS /primary", "http-check expect status 200"),
            lambda: {node.port: f"port {node.rest}" for node in self.nodes},
            many=1,
        )
        self._pgbouncer = PgBouncer(self.haproxy)
        self._all = (self.etcd, *self.nodes, self.haproxy, self._pgbouncer)

    @property
    def url(self) -> str:
        return self.through("haproxy")

    def through(self, front: Front) -> str:
        """SQLAlchemy URL of the primary's maintenance database, by one of the ways to it."""
        if front == "haproxy":
            return self.haproxy.url
        if front == "pgbouncer":
            return self._pgbouncer.url
        hosts = tuple(f"127.0.0.1:{node.port}" for node in self.nodes)
        query = {"host": hosts, "target_session_attrs": "read-write"}
        url = make_url("postgresql+psycopg://postgres@/postgres").set(query=query)
        return url.render_as_string(hide_password=False)

    def create_database(self, name: str, template: str | None = None) -> None:
        self.primary.create_database(name, template)

    def drop_database(self, name: str) -> None:
        self.primary.drop_database(name)

    def start(self) -> None:
        for server in self._all:
            server.start()
        self.settle()

    # --- what is the case ----------------------------------------------------------------------

    @property
    def primary(self) -> Node:
        """The node that Patroni says is the primary, as soon as there is one."""
        found: list[Node] = []

        def look() -> bool:
            found.extend(node for node in self.nodes if node.is_primary)
            return bool(found)

        eventually(look)
        return found[0]

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

    def kill(self) -> None:
        """Turn the primary's machine off."""
        self.primary.kill()

    def pause(self) -> None:
        """Freeze the primary's machine."""
        self.primary.pause()

    def resume(self) -> None:
        """Undo `pause`, and what froze Patroni alone."""
        for node in self.nodes:
            node.resume()

    def switch_over(self) -> None:
        """Let a standby be the primary, in an orderly way."""
        eventually(partial(self._switched_over, self.primary))

    def _switched_over(self, old: Node) -> bool:
        self.settle()
        with contextlib.suppress(OSError):  # a busy standby does not answer in time
            ask(f"http://127.0.0.1:{old.rest}/switchover", {"leader": old.member})
        return self.primary is not old

    def stop(self) -> None:
        for server in reversed(self._all):
            server.stop()

    def close(self) -> None:
        with ExitStack() as all_of_them:
            for server in self._all:
                all_of_them.callback(server.close)
