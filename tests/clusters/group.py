"""A group of MySQL servers on this machine, one of which takes writes: group replication."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.clusters.one_writer import Node, OneWriter
from tests.servers.base import Server, execute
from tests.servers.mysql import MySQL
from tests.support import eventually

ONLINE = """SELECT COUNT(*) FROM performance_schema.replication_group_members
    WHERE member_state = 'ONLINE'"""
#: Sessions whose commits no majority has answered. A commit that waits for a disk is not as slow.
WAITING = """SELECT COUNT(*) FROM information_schema.processlist
    WHERE state = 'waiting for handler commit' AND time > 1"""


def member_options(number: int, port: int, ports: Sequence[int]) -> Sequence[str]:
    """The options of a group's server; the members reach each other on ``ports``."""
    addresses = ",".join(f"127.0.0.1:{each}" for each in ports)
    return (
        f"--server-id={number}",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--plugin-load-add=group_replication.so",
        "--report-host=127.0.0.1",
        "--tls-version=TLSv1.2,TLSv1.3",  # servers insist on it among themselves
        # The server does not load the plugin while it makes its files.
        "--loose-group-replication-start-on-boot=OFF",
        "--loose-group-replication-group-name=8f0ea49e-0b1c-4ec5-a1a5-0c4a1b0b3a01",
        f"--loose-group-replication-local-address=127.0.0.1:{port}",
        f"--loose-group-replication-group-seeds={addresses}",
        "--loose-group-replication-recovery-get-public-key=ON",
    )


def bootstrap(server: Server) -> None:
    """Begin a group, of this server alone."""
    execute(
        server.url,
        "SET GLOBAL group_replication_bootstrap_group = ON",
        "START GROUP_REPLICATION USER='root'",
        "SET GLOBAL group_replication_bootstrap_group = OFF",
    )


def join(server: Server) -> None:
    """Let a server that has no data join its group."""
    execute(server.url, "RESET BINARY LOGS AND GTIDS", "START GROUP_REPLICATION USER='root'")


class Member(Node, MySQL):
    """One server of a group."""

    name = "MySQL group"
    login = "caching_sha2_password"

    def __init__(self, group: Group, number: int, durable: bool) -> None:
        super().__init__(durable)
        self._group, self._number = group, number
        self.group_port = self._claim_port()

    def _command(self) -> Sequence[str | Path]:
        ports = [each.group_port for each in self._group.nodes]
        return [
            *super()._command(),
            *member_options(self._number, self.group_port, ports),
            "--loose-group-replication-member-expel-timeout=0",
        ]

    @property
    def is_waiting(self) -> bool:
        return execute(self.url, WAITING) != [(0,)]

    @property
    def knows(self) -> int:
        """Of how many members it knows that they are there, itself included."""
        ((number,),) = execute(self.url, ONLINE)
        return int(number)


class Group(OneWriter[Member]):
    """Three servers, of which the group itself elects the primary."""

    kind = "mysql"

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__([Member(self, number, durable) for number in (1, 2, 3)])

    def _connect_nodes(self) -> None:
        first, *others = self.nodes
        bootstrap(first)
        for node in others:
            join(node)
        eventually(lambda: first.knows == len(self.nodes))

    def fail_over(self) -> None:
        replicas = self.replicas
        self.primary.kill()
        for node in replicas:
            node.resume()
        self.settle()

    def switch_over(self) -> None:
        new = self.replicas[0]
        ((uuid,),) = execute(new.url, "SELECT @@server_uuid")
        execute(new.url, f"SELECT group_replication_set_as_primary('{uuid}')")
        eventually(lambda: new.is_primary)
        self.settle()
