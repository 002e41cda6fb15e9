"""MariaDB 10.6 or newer, through PyMySQL."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ..errors import Unsupported
from ..protocol.faults import Fault
from ..protocol.state import Grant
from ..protocol.steps import Query, Reply
from ..timeouts import Timeouts
from .base import Dialect

# https://mariadb.com/kb/en/mariadb-error-code-reference/ and the client's 2000s
_FAULTS = {
    1205: Fault.BUSY,  # lock wait timeout, NOWAIT: the statement alone is undone
    1213: Fault.DEADLOCK,
    1020: Fault.SERIALIZATION,  # record has changed since the snapshot
    1317: Fault.CANCELED,  # KILL QUERY
    1969: Fault.CANCELED,  # max_statement_time
    1146: Fault.SCHEMA,  # no such table
    1049: Fault.SCHEMA,  # no such database
    1054: Fault.SCHEMA,  # no such column
    1044: Fault.PRIVILEGE,
    1142: Fault.PRIVILEGE,
    1143: Fault.PRIVILEGE,
    1290: Fault.READ_ONLY,  # --read-only
    1792: Fault.READ_ONLY,
    1836: Fault.READ_ONLY,
    1053: Fault.DISCONNECTED,  # server shutdown in progress
    1927: Fault.DISCONNECTED,  # connection was killed
    2006: Fault.DISCONNECTED,
    2013: Fault.DISCONNECTED,
    2014: Fault.DISCONNECTED,  # commands out of sync
    2055: Fault.DISCONNECTED,
    4031: Fault.DISCONNECTED,  # disconnected by the server because of inactivity
    0: Fault.DISCONNECTED,  # PyMySQL: the socket was closed before
}

# UTC_TIMESTAMP is the statement's start. For "has it expired" an old reading is the careful one;
# it is also the same for every column of one statement, which the grant relies on.
_FREE = "(token IS NULL OR expires_at <= UTC_TIMESTAMP(6))"
# What is written or told of the future is read when the row is at hand. SYSDATE has the session's
# time zone; the sessions of dblock's own are set to UTC.
_LATER = "SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND"
_REMAINING = "TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) / 1000000"


class MariaDB(Dialect):
    """InnoDB's unit of locking is the index record, and a shared read that a secondary index
    covers locks only that index's record. So a guard locks the record of the unique index over
    (lock_name, fence): a grant changes the fence and waits for it, a renewal and a release do not
    touch it. A row lock takes both records, to meet guards and grants alike.
    """

    name = "mariadb"
    extra = "mariadb"
    backends: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    drivers: ClassVar[tuple[str, ...]] = ("pymysql",)
    refusal_holds = True  # InnoDB keeps the lock on a row that did not match

    def __init__(self, schema: str | None, prefix: str, timeouts: Timeouts) -> None:
        super().__init__(schema, prefix, timeouts)
        self.longest_patience: float = max(1.0, math.floor(timeouts.query))
        self.fence_index = self.quote(f"{prefix}lock_fence")

    def quote(self, identifier: str) -> str:
        return f"`{identifier}`"

    def key(self, name: str) -> object:
        return name.encode()  # VARBINARY: no collation equates 'a' with 'A', 'á' or 'a '

    def connect_args(self, timeouts: Timeouts) -> dict[str, Any]:
        return {
            "connect_timeout": math.ceil(timeouts.connect),
            "read_timeout": math.ceil(timeouts.socket),
            "write_timeout": math.ceil(timeouts.socket),
        }

    def prepare_connection(self, connection: Any) -> None:
        version = connection.get_server_info()
        if "MariaDB" not in version:
            raise Unsupported(
                f"this server is MySQL {version}: dblock's statements are those of MariaDB 10.6 "
                "and are not run on MySQL. MariaDB, PostgreSQL and SQLite work"
            )
        connection.autocommit(True)
        with connection.cursor() as cursor:
            # A lease statement never waits for a row lock: who has it is taking the name.
            cursor.execute(
                "SET SESSION innodb_lock_wait_timeout = 0, tx_isolation = 'READ-COMMITTED', "
                "time_zone = '+00:00'"
            )

    def is_usable(self, connection: Any) -> bool:
        return bool(connection.open)

    def transaction_trouble(self, connection: Any, locking: bool) -> str | None:
        if not connection.open:
            return "its connection is closed"
        if locking and connection.get_autocommit():
            return "its connection is in autocommit mode, so nothing stays locked"
        return None

    def classify(self, error: BaseException) -> Fault | None:
        code = error.args[0] if error.args else None
        if isinstance(code, int) and type(error).__module__.startswith("pymysql"):
            return _FAULTS.get(code)
        return None

    def migration_mutex(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("SELECT GET_LOCK('dblock upgrade', 60)",), (
            "SELECT RELEASE_LOCK('dblock upgrade')",
        )

    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query:
        # MariaDB assigns from left to right and later columns see the earlier ones' new values:
        # what decides (token, expires_at) is assigned last, and the expiry asks who won.
        return Query(
            f"""INSERT INTO {self.lock_table}
                (lock_name, fence, token, owner, acquired_at, expires_at)
            VALUES (%(name)s, 1, %(token)s, %(owner)s, SYSDATE(6), {_LATER})
            ON DUPLICATE KEY UPDATE
                fence = fence + {_FREE},
                owner = IF({_FREE}, VALUES(owner), owner),
                acquired_at = IF({_FREE}, SYSDATE(6), acquired_at),
                token = IF({_FREE}, VALUES(token), token),
                expires_at = IF(token = VALUES(token), {_LATER}, expires_at)
            RETURNING fence, {_REMAINING}, token""",
            {"name": self.key(name), "token": token, "owner": owner, "ttl": _microseconds(ttl)},
        )

    def granted(self, reply: Reply, token: str) -> Grant | None:
        fence, remaining, holder = reply.rows[0]
        return Grant(fence, float(remaining)) if holder == token else None

    def renew(self, name: str, token: str, ttl: float) -> Query:
        return Query(
            f"""UPDATE {self.lock_table} SET expires_at = {_LATER}
            WHERE lock_name = %(name)s AND token = %(token)s AND expires_at > SYSDATE(6)""",
            {"name": self.key(name), "token": token, "ttl": _microseconds(ttl)},
        )

    def release(self, name: str, token: str) -> Query:
        return Query(
            f"""UPDATE {self.lock_table} SET token = NULL
            WHERE lock_name = %(name)s AND token = %(token)s""",
            {"name": self.key(name), "token": token},
        )

    def force(self, name: str) -> Query:
        return Query(
            f"""UPDATE {self.lock_table} SET token = NULL
            WHERE lock_name = %(name)s AND token IS NOT NULL""",
            {"name": self.key(name)},
        )

    def look(self, name: str) -> Query:
        return Query(f"{self._select()} WHERE lock_name = %(name)s", {"name": self.key(name)})

    def held(self) -> Query:
        return Query(f"{self._select()} WHERE token IS NOT NULL ORDER BY lock_name", {})

    def _select(self) -> str:
        return (
            "SELECT lock_name, fence, token, owner, acquired_at, expires_at, "
            f"{_REMAINING} FROM {self.lock_table}"
        )

    def create(self, name: str) -> Query:
        return Query(
            f"INSERT IGNORE INTO {self.lock_table} (lock_name, fence) VALUES (%(name)s, 0)",
            {"name": self.key(name)},
        )

    def lock_row(self, name: str, patience: float | None, *, borrowed: bool) -> Query:
        if patience == 0:
            # Not SKIP LOCKED: by a unique key 10.11 answers it with error 1180 "Operation not
            # permitted". The error of NOWAIT undoes this statement alone.
            wait = "NOWAIT"
        else:
            wait = f"WAIT {math.floor(self.longest_patience if patience is None else patience)}"
        return Query(
            f"""SELECT STRAIGHT_JOIN l.fence FROM {self.lock_table} AS l
            JOIN {self.lock_table} AS f FORCE INDEX ({self.fence_index})
                ON f.lock_name = l.lock_name AND f.fence = l.fence
            WHERE l.lock_name = %(name)s
                AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))
            FOR UPDATE {wait}""",
            {"name": self.key(name)},
        )

    def guard(self, name: str, token: str, fence: int) -> Query:
        # The index does not cover the token; the fence is as good, since only a grant changes it.
        return Query(
            f"""SELECT fence FROM {self.lock_table} FORCE INDEX ({self.fence_index})
            WHERE lock_name = %(name)s AND fence = %(fence)s
            LOCK IN SHARE MODE NOWAIT""",
            {"name": self.key(name), "fence": fence},
        )

    def apply(self, key: str) -> Query:
        return Query(
            f"""INSERT IGNORE INTO {self.applied_table} (idempotency_key, applied_at)
            VALUES (%(key)s, UTC_TIMESTAMP(6))""",
            {"key": self.key(key)},
        )

    def unapply(self, key: str) -> Query:
        return Query(
            f"DELETE FROM {self.applied_table} WHERE idempotency_key = %(key)s",
            {"key": self.key(key)},
        )


def _microseconds(ttl: float) -> int:
    return round(ttl * 1_000_000)
