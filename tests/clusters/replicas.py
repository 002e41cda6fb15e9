"""A server of MariaDB or MySQL and its replica on this machine, replicated semi-synchronously."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import pymysql

from tests.clusters.one_writer import Node, OneWriter
from tests.servers.base import execute
from tests.servers.mariadb import MariaDB
from tests.servers.mysql import MySQL
from tests.support import eventually

NEVER = 4_000_000_000  # ms; a primary that waits for no replica after some time loses commits
READ_ONLY = "--read-only=ON"  # until it is the primary


class SemiSync(Node):
    """One of the two."""

    #: How its statements and settings call a primary and a replica.
    source: ClassVar[str]
    replica: ClassVar[str]
    #: The column of the replica's status that has the position up to which it has received.
    received: ClassVar[str]
    #: The function that waits for so many seconds until the server has a position.
    wait: ClassVar[str]
    #: The variable that has the position up to which the server has written.
    written: ClassVar[str]

    @abstractmethod
    def follow(self, primary: SemiSync) -> None:
        """Be the replica of another."""

    def promote(self, *, alone: bool = False) -> None:
        """Be the primary, with all that has come from the one before.

        One that is ``alone`` would wait for ever for a replica, so it is told not to.
        """
        execute(self.url, f"STOP {self.replica} IO_THREAD")
        eventually(lambda: self._has(self._received()))
        execute(self.url, f"STOP {self.replica}", f"RESET {self.replica} ALL")
        self.lead(alone=alone)

    def lead(self, *, alone: bool = False) -> None:
        """Take writes, each of which waits for a replica, unless there is none."""
        execute(
            self.url,
            f"SET GLOBAL rpl_semi_sync_{self.source}_enabled = {'OFF' if alone else 'ON'}",
            "SET GLOBAL read_only = OFF",
        )

    def step_down(self) -> str:
        """Take no more writes; return the position of the last one."""
        execute(self.url, "SET GLOBAL read_only = ON")
        ((position,),) = execute(self.url, f"SELECT @@GLOBAL.{self.written}")
        return str(position)

    def catch_up(self, position: str) -> None:
        eventually(lambda: self._has(position))

    @property
    def is_waiting(self) -> bool:
        return self.status(f"rpl_semi_sync_{self.source}_wait_sessions") != "0"

    @property
    def is_heard(self) -> bool:
        """Whether a replica acknowledges what it commits."""
        return self.status(f"rpl_semi_sync_{self.source}_clients") == "1"

    def _has(self, position: str) -> bool:
        return execute(self.url, f"SELECT {self.wait}('{position}', 1)") == [(0,)]

    def _received(self) -> str:
        connection = pymysql.connect(host=self.address, port=self.port, user="root")
        with connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"SHOW {self.replica} STATUS")
            return str(cursor.fetchall()[0][self.received])


class MariaDBNode(SemiSync, MariaDB):
    name = "MariaDB replica"
    source, replica = "master", "SLAVE"
    received, wait, written = "Gtid_IO_Pos", "MASTER_GTID_WAIT", "gtid_binlog_pos"

    def __init__(self, number: int, durable: bool = False) -> None:
        options = (
            "--log-bin=log",
            "--binlog-format=ROW",
            "--gtid-strict-mode=ON",
            "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
            f"--rpl-semi-sync-master-timeout={NEVER}",
            "--rpl-semi-sync-slave-enabled=ON",
            "--slave-net-timeout=4",  # half of it is the heartbeat: one learns of the other's end
            "--log-bin-trust-function-creators=ON",
            READ_ONLY,
        )
        super().__init__(durable, options=[*options, f"--server-id={number}"])

    def follow(self, primary: SemiSync) -> None:
        execute(
            self.url,
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, "
            "MASTER_USER='root', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
            "START SLAVE",
        )

    def step_down(self) -> str:
        position = super().step_down()
        execute(self.url, f"SET GLOBAL gtid_slave_pos = '{position}'")
        return position


class MySQLNode(SemiSync, MySQL):
    name = "MySQL replica"
    source, replica = "source", "REPLICA"
    received, wait, written = "Retrieved_Gtid_Set", "WAIT_FOR_EXECUTED_GTID_SET", "gtid_executed"
    login = "caching_sha2_password"

    def __init__(self, number: int, durable: bool = False) -> None:
        options = (
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--plugin-load-add=semisync_source.so;semisync_replica.so",
            # The server does not load the plugins while it makes its files.
            "--loose-rpl-semi-sync-source-wait-point=AFTER_SYNC",
            f"--loose-rpl-semi-sync-source-timeout={NEVER}",
            "--loose-rpl-semi-sync-replica-enabled=ON",
            "--replica-net-timeout=4",
            "--tls-version=TLSv1.2,TLSv1.3",  # servers insist on it among themselves
            READ_ONLY,
        )
        super().__init__(durable, options=[*options, f"--server-id={number}"])

    def follow(self, primary: SemiSync) -> None:
        # Otherwise each change that it applies would wait for a replica of its own.
        execute(
            self.url,
            "SET GLOBAL rpl_semi_sync_source_enabled = OFF",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={primary.port}, "
            "SOURCE_USER='root', SOURCE_AUTO_POSITION=1, SOURCE_CONNECT_RETRY=1, "
            "GET_SOURCE_PUBLIC_KEY=1",
            "START REPLICA",
        )


NODES: dict[str, type[MariaDBNode | MySQLNode]] = {"mariadb": MariaDBNode, "mysql": MySQLNode}


class Replicas(OneWriter[MariaDBNode | MySQLNode]):
    """A primary and its replica."""

    def __init__(self, kind: str = "mariadb", durable: bool = False) -> None:
        make = NODES[kind]
        super().__init__([make(1, durable), make(2, durable)])

    def _connect_nodes(self) -> None:
        primary, replica = self.nodes
        replica.follow(primary)
        eventually(lambda: primary.is_heard)
        primary.lead()

    @property
    def replica(self) -> SemiSync:
        (replica,) = self.replicas
        return replica

    def fail_over(self) -> None:
        replica = self.replica
        self.primary.kill()
        replica.resume()
        replica.promote(alone=True)
        self.settle()

    def switch_over(self) -> None:
        old, new = self.primary, self.replica
        new.catch_up(old.step_down())
        new.promote()
        old.follow(new)
        eventually(lambda: new.is_heard)
        self.settle()
