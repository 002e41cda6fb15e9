"""Clusters of MariaDB or MySQL in which one server takes writes, with HAProxy in front of it."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from tests.clusters.cluster import Cluster
from tests.clusters.helpers import BRIEFLY, HAProxy, family_check
from tests.servers.base import Server, execute
from tests.servers.mysql_base import OwnFamily
from tests.support import eventually

#: What programs connect as. It is not exempt from read_only, as root is.
USER = "app"


class Node(OwnFamily):
    """One server, which is read-only unless it is the primary."""

    #: The method of root's login, where the server insists on one.
    login: str = ""

    @property
    def is_primary(self) -> bool:
        """Whether it takes writes; a server that was frozen may be mistaken."""
        patience = {"connect_timeout": BRIEFLY, "read_timeout": BRIEFLY}
        with contextlib.suppress(DBAPIError):
            return self.running and execute(self.url, "SELECT @@read_only", **patience) == [(0,)]
        return False

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether a commit waits for another server."""


NodeT = TypeVar("NodeT", bound=Node)


class OneWriter(Cluster[NodeT]):
    """What was killed stays away."""

    def __init__(self, nodes: Sequence[NodeT]) -> None:
        self.nodes = nodes
        self._haproxy = HAProxy(
            f"mysql+pymysql://{USER}@127.0.0.1:{{port}}/mysql",
            family_check("SHOW GLOBAL VARIABLES LIKE 'read_only'", b"\3OFF", nodes[0].login),
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
        for node in self.nodes:
            node.start()
        self._connect_nodes()
        execute(
            self.nodes[0].url,
            f"CREATE USER {USER}@'127.0.0.1'",
            f"GRANT ALL ON `%%`.* TO {USER}@'127.0.0.1'",  # which read_only is above
        )
        self._haproxy.start()
        self.settle()

    @abstractmethod
    def _connect_nodes(self) -> None:
        """Replicate from the first node, which becomes the primary, to the others."""

    def _primaries(self) -> Iterable[NodeT]:
        return (node for node in self.nodes if node.is_primary)

    @property
    def replicas(self) -> Sequence[NodeT]:
        """The running servers that are not the primary."""
        primary = self.primary
        return [node for node in self.nodes if node.running and node is not primary]

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

    def freeze_replicas(self) -> None:
        """Freeze all servers but the primary: what it commits is on no other server."""
        for node in self.replicas:
            node.pause()

    @abstractmethod
    def fail_over(self) -> None:
        """Let the primary die, and a replica, which may be frozen, have its place."""

    @abstractmethod
    def switch_over(self) -> None:
        """Let the primary and a replica change places, in an orderly way."""
