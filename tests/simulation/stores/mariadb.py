"""Real MariaDB, whose clock and patience are virtual."""

from __future__ import annotations

from collections.abc import Sequence

from dblock.dialects.mariadb.adapter import PyMySQL
from tests import servers
from tests.simulation.stores.innodb import Bounded, InnoDBStore
from tests.simulation.stores.innodb_statements import Statement
from tests.simulation.stores.mariadb_statements import MOMENT, NOW, virtual
from tests.simulation.transport import simulated


class MariaDBStore(InnoDBStore):
    name = "mariadb"
    database = "mariadb"
    adapter = simulated(PyMySQL, Bounded)  # type: ignore[type-abstract]
    plain = PyMySQL
    now = NOW
    left_behind = """SELECT @@autocommit, @@tx_isolation, @@sql_mode, @@time_zone,
        @@lock_wait_timeout, @@innodb_lock_wait_timeout, @@max_statement_time,
        @@character_set_client"""
    limits_of_session = "SELECT @@max_statement_time, @@innodb_lock_wait_timeout"
    without_limits = "SET max_statement_time = 0, innodb_lock_wait_timeout = %s"
    too_long = 1969, "Query execution was interrupted (max_statement_time exceeded)"

    @staticmethod
    def server(options: Sequence[str]) -> servers.MariaDB:
        return servers.MariaDB(options=options)

    def setting(self, now: int) -> str:
        return f"{MOMENT} = {now}"

    def virtual(self, sql: str) -> Sequence[Statement]:
        return (virtual(sql),)
