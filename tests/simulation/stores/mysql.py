"""Real MySQL, whose clock and patience are virtual.

What dblock sends as one packet is one request. The server begins its statements one by one, and
what others send may come between any two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dblock.dialects.adapter import Answer, Send
from dblock.dialects.mariadb.adapter import PyMySQL
from dblock.dialects.packets import Answers, PacketSender
from dblock.dialects.query import THEN, Query
from tests import servers
from tests.simulation.stores.innodb import Bounded, InnoDBStore
from tests.simulation.stores.innodb_session import Driver, For
from tests.simulation.stores.innodb_statements import Statement
from tests.simulation.stores.mysql_statements import BEGINS, MOMENT, NOW, virtual
from tests.simulation.transport import simulated

# Who waits for whom, by the transactions.
_WAITS = """SELECT requesting_engine_transaction_id, blocking_engine_transaction_id
    FROM performance_schema.data_lock_waits"""


class _Simulated(Bounded):
    """An adapter that sends a packet as one request, and ends a failed one's transaction itself."""

    def sender(self, connection: Any) -> Send:
        return PacketSender(self, connection).send

    def send_packet(
        self, connection: Any, query: Query[Any], answers: Answers, within: float, waits: bool
    ) -> None:
        answers.last = self.send(connection, query, within, waits)


class _Direct(PyMySQL):
    """The production adapter on a session of the simulation, whose time is virtual."""

    def bound_reads(self, connection: Any, seconds: float) -> None: ...


class MySQLStore(InnoDBStore):
    name = "mysql"
    database = "mysql"
    adapter = simulated(PyMySQL, _Simulated)  # type: ignore[type-abstract]
    plain = _Direct
    now = NOW
    left_behind = """SELECT @@autocommit, @@transaction_isolation, @@sql_mode, @@time_zone,
        @@lock_wait_timeout, @@innodb_lock_wait_timeout, @@max_execution_time,
        @@character_set_client"""
    limits_of_session = "SELECT @@max_execution_time / 1000, @@innodb_lock_wait_timeout"
    without_limits = "SET max_execution_time = 0, innodb_lock_wait_timeout = %s"
    too_long = (
        3024,
        "Query execution was interrupted, maximum statement execution time exceeded",
    )
    at_once = 3572
    processes = "performance_schema.processlist"

    @staticmethod
    def server(options: Sequence[str]) -> servers.MySQL:
        return servers.MySQL(options=(*options, "--skip-log-bin"))

    def setting(self, now: int) -> str:
        return f"{MOMENT} = {BEGINS + now}"

    def virtual(self, sql: str) -> Sequence[Statement]:
        return virtual(sql)

    def parts(self, sql: bytes) -> Sequence[bytes]:
        return sql.split(THEN.encode())

    def joined(self, statements: Sequence[Statement]) -> str:
        return THEN.join(one.sql for one in statements)

    def send(self, driver: Driver, query: Query[Any]) -> Answer:
        if THEN not in query.sql:
            return super().send(driver, query)
        assert isinstance(self.direct, _Direct)
        answers = Answers(query.sql)
        self.direct.send_packet(driver, query, answers, 0.0, False)
        return answers.last

    def end_all(self, user: str) -> None:
        # In one packet, and those first who wait, the latest at first: before any has gone, and let
        # others go on, all are about to go.
        waiting = [one.driver for one in reversed(self.pending)]
        sessions = dict.fromkeys([*waiting, *self.sessions, *self.idle])
        self.tell("; ".join(f"KILL CONNECTION {one.id}" for one in sessions))

    def settled(self) -> bool:
        """Another thread of the server's looks for deadlocks, a moment after a wait began, and a
        third one undoes what it has chosen."""
        waits = set(self._ask(_WAITS))
        while waits:
            waiting = {one for one, _ in waits}
            left = {(one, other) for one, other in waits if other in waiting}
            if left == waits:
                return False  # they wait in a circle
            waits = left
        at_rows = self.at_rows()
        return all(
            one.driver.id in at_rows or one.driver.answered()
            for one in self.pending
            if one.driver.wait is not None and one.driver.wait.for_ is For.ROW
        )
