"""Deletes on MySQL: unused names, old records, the rows of dead waiters."""

from __future__ import annotations

from ...protocol.commands import RaiseFloor, Retire, Sweep
from ..mariadb.fragments import REMAINING
from ..mariadb.retiring import RetiringStatements as MariaDBs
from ..mariadb.retiring import read_count
from ..packets import packet, transaction
from ..retiring import idle
from ..runs import PRUNED_AT_ONCE, RunStatements
from ..statement import statement
from ..waiters import WaiterStatements
from .base import MySQLTables


def listed(keys: str) -> str:
    """The keys that a variable has in JSON, in hexadecimal, as a table of one column."""
    return f"JSON_TABLE({keys}, '$[*]' COLUMNS (hex VARCHAR(2040) CHARACTER SET ascii PATH '$'))"


class RetiringStatements(MySQLTables, MariaDBs):
    """A DELETE that searches the rows itself would lock each row that it reads, and wait for
    the rows that other sessions have locked. So a plain SELECT finds the keys first."""

    @statement(RaiseFloor)
    def raise_floor(self) -> str:
        return f"""INSERT INTO {self.lock_table} (lock_name, fence) VALUES ('', %(fence)s)
            AS asked (floor_name, floor)
            ON DUPLICATE KEY UPDATE fence = GREATEST(fence, floor)"""

    @statement(Retire, read=read_count, parameters=idle)
    def retire(self) -> str:
        # A grant locks both rows, so a name that is unused while both are locked stays unused. Rows
        # that another session has locked are skipped, with their names.
        locked = f"""SELECT HEX(l.lock_name) AS hex FROM {listed("@dblock_idle")} AS idle
                STRAIGHT_JOIN {self.lock_table} AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(idle.hex)
                WHERE {self.retirable} AND (
                    SELECT COUNT(*) FROM {self.guard_table} AS g WHERE g.lock_name = l.lock_name
                ) = (
                    SELECT COUNT(*) FROM {self.guard_table} AS g WHERE g.lock_name = l.lock_name
                    FOR UPDATE SKIP LOCKED
                )
                FOR UPDATE OF l SKIP LOCKED"""
        deleted = (
            f"""DELETE one FROM {listed("@dblock_idle")} AS idle
                STRAIGHT_JOIN {table} AS one FORCE INDEX (PRIMARY)
                    ON one.lock_name = UNHEX(idle.hex)"""
            for table in (self.lock_table, self.guard_table)
        )
        return transaction(
            f"""SELECT JSON_ARRAYAGG(HEX(lock_name)) INTO @dblock_idle FROM {self.lock_table}
                WHERE {self.retirable}""",
            f"SELECT JSON_ARRAYAGG(hex) INTO @dblock_idle FROM ({locked}) AS locked",
            *deleted,
            "SELECT COALESCE(JSON_LENGTH(@dblock_idle), 0)",
        )


class PruningStatements(WaiterStatements, RunStatements):
    """As for retired names, a plain SELECT finds the keys."""

    def _prune(self, table: str, key: str, old: str, only: str = "") -> str:
        columns = key.split(", ")
        keys = ", ".join(f"HEX({column})" for column in columns)
        parts = ", ".join(
            f"hex{number} VARCHAR(2040) CHARACTER SET ascii PATH '$[{number}]'"
            for number in range(len(columns))
        )
        same = " AND ".join(
            f"one.{column} = UNHEX(old.hex{number})" for number, column in enumerate(columns)
        )
        # The condition is in it twice: a row that the SELECT found may have been renewed since.
        return packet(
            f"""SELECT JSON_ARRAYAGG(JSON_ARRAY({keys})) INTO @dblock_old FROM (
                SELECT {key} FROM {table} AS found WHERE {old} {only} LIMIT {PRUNED_AT_ONCE}
            ) AS some_of_them""",
            f"""DELETE one FROM JSON_TABLE(@dblock_old, '$[*]' COLUMNS ({parts})) AS old
                STRAIGHT_JOIN {table} AS one FORCE INDEX (PRIMARY) ON {same} WHERE {old}""",
        )

    @statement(Sweep)
    def sweep(self) -> str:
        # It skips the rows that another sweep has locked, and the rows of waiters that write just
        # now. A row that it has locked and that has expired cannot be renewed any more.
        column = "id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$'"
        old = f"""JSON_TABLE(@dblock_old, '$[*]' COLUMNS ({column})) AS old
                STRAIGHT_JOIN {self.waiter_table} AS one FORCE INDEX (PRIMARY)
                    ON one.id = old.id
                WHERE {REMAINING} <= 0"""
        return transaction(
            f"""SELECT JSON_ARRAYAGG(id) INTO @dblock_old FROM (
                SELECT id FROM {self.waiter_table} WHERE {REMAINING} <= 0 LIMIT {PRUNED_AT_ONCE}
            ) AS some_of_them""",
            f"""SELECT JSON_ARRAYAGG(id) INTO @dblock_old FROM (
                SELECT one.id FROM {old} FOR UPDATE OF one SKIP LOCKED
            ) AS locked""",
            f"DELETE one FROM {old}",
        )
