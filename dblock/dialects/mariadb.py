"""MariaDB 10.6 or newer, through PyMySQL."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ..protocol import commands
from ..protocol.faults import Fault
from ..protocol.state import Granted, Renewal
from ..protocol.steps import Query, Reply
from ..timeouts import Timeouts
from .base import TICKET, Dialect, Session

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
    1021: Fault.REFUSED,  # disk full
    1030: Fault.REFUSED,  # the storage engine's error
    1037: Fault.REFUSED,  # out of memory
    1041: Fault.REFUSED,
    1665: Fault.REFUSED,  # the binary log takes statements only, READ COMMITTED needs rows
    1114: Fault.REFUSED,  # the table is full
    1053: Fault.DISCONNECTED,  # server shutdown in progress
    1927: Fault.DISCONNECTED,  # connection was killed
    2006: Fault.DISCONNECTED,
    2013: Fault.DISCONNECTED,
    2014: Fault.DISCONNECTED,  # commands out of sync
    2055: Fault.DISCONNECTED,
    4031: Fault.DISCONNECTED,  # disconnected by the server because of inactivity
    0: Fault.DISCONNECTED,  # PyMySQL: the socket was closed before
}

# UTC_TIMESTAMP is the statement's start. For "has it expired" an old reading is the careful one.
_FREE = "(token IS NULL OR expires_at <= UTC_TIMESTAMP(6))"
# What is written or told of the future is read when the row is at hand. SYSDATE has the session's
# time zone; the sessions of dblock's own are set to UTC.
_LATER = "SYSDATE(6) + INTERVAL %(ttl)s MICROSECOND"
# Multiplied, since how exact a division is can be set too.
_REMAINING = "TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at) * 1e-6"

# Tickets are all as long, with commas between. How many there are; those behind the ticket.
_LAST = f"COALESCE((CHAR_LENGTH(waiters) + 1) DIV {TICKET + 1}, 0)"
_REST = f"""IF(LOCATE(%(ticket)s, waiters), NULLIF(
    SUBSTRING(waiters, LOCATE(%(ticket)s, waiters) + {TICKET + 1}), ''), NULL)"""

# User locks are the whole server's.
_GATE = "SHA1(CONCAT_WS('/', %(gate)s, DATABASE()))"


class MariaDB(Dialect):
    """InnoDB locks whole rows, so what a guard holds is a row of its own in ``{prefix}guard``: a
    grant and a row lock take it first, a renewal and a release never do. Both tables are locked by
    primary key alone: under REPEATABLE READ any other index would lock the gap before the row
    too, and with it names that have nothing to do with this one.

    Statements of dblock's own connections do not wait for rows, so they do not deadlock.
    """

    name = "mariadb"
    extra = "mariadb"
    backends: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    drivers: ClassVar[tuple[str, ...]] = ("pymysql",)
    real = "MariaDB"
    named = Query("SELECT VERSION(), @@version_comment", {})
    #: Where the drivers' errors are defined.
    modules: ClassVar[tuple[str, ...]] = ("pymysql", "MySQLdb")
    stale_reads = True  # under REPEATABLE READ, its default
    has_gates = True
    patience = 0.0  # of the sessions of dblock's own
    refusal_holds = True  # InnoDB keeps the lock on a row that did not match
    looks_itself = True
    remaining = _REMAINING
    later = "SYSDATE(6) + INTERVAL {} MICROSECOND"
    upsert = "ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at), holds = VALUES(holds)"
    clock = "UTC_TIMESTAMP(6)"
    ago = "UTC_TIMESTAMP(6) - INTERVAL %(age)s SECOND"

    def __init__(self, schema: str | None, prefix: str, timeouts: Timeouts) -> None:
        super().__init__(schema, prefix, timeouts)
        self.longest_patience: float = max(1.0, math.floor(timeouts.query))
        self.guard_table = self.table("guard")

    def quote(self, identifier: str) -> str:
        return f"`{identifier}`"

    def key(self, name: str) -> object:
        return name.encode()  # VARBINARY: no collation equates 'a' with 'A', 'á' or 'a '

    def shift(self, seconds: float) -> object:
        return _microseconds(seconds)

    def connect_args(self, timeouts: Timeouts) -> dict[str, Any]:
        return {
            "connect_timeout": math.ceil(timeouts.connect),
            "read_timeout": math.ceil(timeouts.socket),
            "write_timeout": math.ceil(timeouts.socket),
        }

    def unbounded(self, connection: Any) -> list[str]:
        return [] if connection._read_timeout else ["read_timeout", "write_timeout"]

    def bound_reads(self, connection: Any, seconds: float) -> None:
        # There is no public way: PyMySQL reads it anew before each of its waits.
        connection._read_timeout = connection._write_timeout = seconds

    @contextlib.contextmanager
    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> Iterator[None]:
        if not hasattr(connection, "_read_timeout"):  # a user's of mysqlclient: nothing to set
            yield
            return
        before = connection._read_timeout, connection._write_timeout
        if within is not None:
            self.bound_reads(connection, within)
        try:
            yield
        finally:
            connection._read_timeout, connection._write_timeout = before

    def prepare_connection(self, connection: Any) -> Session:
        self.set_autocommit(connection)
        # By its greeting, which may be a proxy's, since MySQL does not have all these settings.
        if self.real not in connection.get_server_info():
            self.recognise(*self.ask(connection, self.named))
        self.ask(connection, Query(_SETTINGS, (self.timeouts.query,)))
        said, session, host, server = self.ask(connection, Query(_WHO, {}))
        self.recognise(said)
        # The number begins anew when the server does; with the client's port it is unmistakable.
        end = None if ":" not in host else _end(session, host)
        return Session(server, end)

    def timed_out(self, error: BaseException) -> bool:
        # PyMySQL keeps the cause of a failed connect here, of a failed read there.
        cause = getattr(error, "original_exception", None) or error.__context__
        return isinstance(cause, TimeoutError)

    def is_usable(self, connection: Any) -> bool:
        return bool(connection.open)

    def transaction_trouble(self, connection: Any, locking: bool) -> str | None:
        if not self.is_usable(connection):
            return "its connection is closed"
        if locking and connection.get_autocommit():
            return "its connection is in autocommit mode, so nothing stays locked"
        return None

    def classify(self, error: BaseException) -> Fault | None:
        code = error.args[0] if error.args else None
        if isinstance(code, int) and type(error).__module__.startswith(self.modules):
            return _FAULTS.get(code)
        return None

    def prepare_migrator(self, connection: Any) -> None:
        super().prepare_migrator(connection)
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION wait_timeout = 31536000")

    def hurry(self) -> tuple[str, ...]:
        # 86400 is the default: a day.
        usual = "IF(@@lock_wait_timeout < 86400, @@lock_wait_timeout, 2)"
        return (f"SET SESSION lock_wait_timeout = {usual}",)

    def migration_mutex(self, name: str) -> tuple[str, ...]:
        return (f"SELECT GET_LOCK({_migrations(name)}, 0)",)

    def migration_holder(self, name: str) -> str:
        # Of others' sessions only who has the right PROCESS is told more.
        return f"""SELECT held.session, (
                SELECT user FROM information_schema.processlist WHERE id = held.session
            ) FROM (SELECT IS_USED_LOCK({_migrations(name)}) AS session) AS held"""

    def privileges(self) -> str:
        guard = f"GRANT SELECT, INSERT, UPDATE ON {self.guard_table}"
        return f"{guard}, {super().privileges()}"

    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query:
        return Query(
            f"""BEGIN NOT ATOMIC
                {self._grant(self.turn(f"({_LAST} + {self._gated})"), rest="NULL")}
                SELECT fence, {_REMAINING}, token FROM {self.lock_table}
                    WHERE lock_name = %(name)s;
            END""",
            self._asked(name, token, owner, ttl),
            commands.Grant(name, token, owner, ttl),
            self.patience,
        )

    def _asked(self, name: str, token: str, owner: str, ttl: float) -> dict[str, Any]:
        return {
            "name": self.key(name),
            "token": token,
            "owner": owner,
            "ttl": _microseconds(ttl),
            "gate": self.gate(name),
        }

    def join(self, name: str, token: str, owner: str, ttl: float, ticket: str) -> Query:
        # It looks before it locks, so that who joins disturbs no guard.
        turn = self.turn(self.before)
        return Query(
            f"""BEGIN NOT ATOMIC
                DECLARE free INT DEFAULT 1;
                SELECT {turn} INTO free FROM {self.lock_table} WHERE lock_name = %(name)s;
                IF free THEN
                    BEGIN NOT ATOMIC
                        {self._grant(turn, rest=_REST)}
                    END;
                ELSE
                    UPDATE {self.lock_table} SET waiters = CONCAT_WS(',', waiters, %(ticket)s)
                        WHERE lock_name = %(name)s AND NOT {self.standing}
                            AND NOT token <=> %(token)s;
                END IF;
                SELECT fence, {_REMAINING}, token, {self._columns()},
                    CASE WHEN {self.standing} THEN {self.before} END, {turn}
                    FROM {self.lock_table} WHERE lock_name = %(name)s;
            END""",
            self._asked(name, token, owner, ttl) | {"ticket": ticket},
            commands.Join(name, token, owner, ttl, ticket),
            self.patience,
        )

    def gate(self, name: str) -> str:
        """Return the name of the user lock that is a name's gate, but for the database."""
        return hashlib.blake2b(f"{self.lock_table}/{name}".encode(), digest_size=16).hexdigest()

    @property
    def _gated(self) -> str:
        """One if another is at the gate of a name given back just now, who comes first then."""
        grace = f"INTERVAL {_microseconds(self.grace)} MICROSECOND"
        return f"""(expires_at <= UTC_TIMESTAMP(6) AND expires_at + {grace} > UTC_TIMESTAMP(6)
            AND COALESCE(IS_USED_LOCK({_GATE}) <> CONNECTION_ID(), FALSE))"""

    def wait_in_server(self, name: str, patience: float) -> Query:
        # No more than that: the server finds out only after a second that who waits has died, and
        # the name would be taken for nobody.
        return Query(
            f"""BEGIN NOT ATOMIC
                DECLARE held INT DEFAULT NOT IS_FREE_LOCK({_GATE});
                IF NOT GET_LOCK({_GATE}, %(patience)s) <=> 1 THEN
                    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'the gate';
                END IF;
                SELECT held;
            END""",
            {"gate": self.gate(name), "patience": patience},
            commands.WaitInServer(name),
            patience,
        )

    def gate_was_held(self, reply: Reply) -> bool:
        return bool(reply.rows[0][0])

    def let_go(self, name: str, token: str) -> Query:
        release = self.release(name, token)
        assert isinstance(release.params, dict)
        return Query(
            f"""BEGIN NOT ATOMIC
                DECLARE released INT DEFAULT 0;
                {release.sql};
                SET released = ROW_COUNT();
                DO RELEASE_LOCK({_GATE});
                SELECT 1 FROM DUAL WHERE released = 1;
            END""",
            {"gate": self.gate(name), **release.params},
            commands.LetGo(name, token),
            self.patience,
        )

    def ungate(self) -> Query:
        return Query("DO RELEASE_ALL_LOCKS()", {}, commands.Ungate())

    def _grant(self, free: str, rest: str) -> str:
        """Return the part of a compound statement, which is one round trip, that takes the name.

        ``rest`` is the queue without who takes it and those before.
        """
        # The condition of the UPDATE alone decides, with both rows locked, and once: who is at
        # the gate may go at any moment. No new value depends on another.
        return f"""
                DECLARE known INT DEFAULT 0;
                DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
                START TRANSACTION;
                SELECT 1 INTO known FROM {self.guard_table} AS g STRAIGHT_JOIN {self.lock_table}
                    AS l ON l.lock_name = g.lock_name WHERE g.lock_name = %(name)s FOR UPDATE;
                IF known = 0 THEN
                    INSERT IGNORE INTO {self.guard_table} (lock_name) VALUES (%(name)s);
                    INSERT IGNORE INTO {self.lock_table} (lock_name, fence) VALUES (%(name)s, 0);
                END IF;
                UPDATE {self.lock_table} SET fence = fence + 1, token = %(token)s,
                    owner = %(owner)s, waiters = {rest}, acquired_at = SYSDATE(6),
                    expires_at = {_LATER}
                    WHERE lock_name = %(name)s AND {free};
                COMMIT;"""

    def leave(self, name: str, token: str, ticket: str) -> Query:
        return Query(
            f"""SET STATEMENT innodb_lock_wait_timeout = {_LEAVING} FOR
            UPDATE {self.lock_table} SET waiters = NULLIF(TRIM(BOTH ',' FROM REPLACE(
                CONCAT(',', waiters, ','), CONCAT(',', %(ticket)s, ','), ',')), '')
            WHERE lock_name = %(name)s AND {self.standing}""",
            {"name": self.key(name), "ticket": ticket},
            commands.Leave(name, token, ticket),
            _LEAVING,
        )

    @property
    def before(self) -> str:
        place = f"(LOCATE(%(ticket)s, waiters) - 1) DIV {TICKET + 1}"
        return f"IF({self.standing}, {place}, {_LAST})"

    @property
    def standing(self) -> str:
        return "(LOCATE(%(ticket)s, COALESCE(waiters, '')) > 0)"

    def turn(self, before: str) -> str:
        grace = f"INTERVAL {before} * {_microseconds(self.grace)} MICROSECOND"
        return (
            "(expires_at IS NULL OR token IS NULL AND expires_at > UTC_TIMESTAMP(6) "
            f"OR expires_at + {grace} <= UTC_TIMESTAMP(6))"
        )

    def granted(self, reply: Reply, token: str) -> Granted | None:
        fence, remaining, holder = reply.rows[0][:3]
        return Granted(fence, float(remaining)) if holder == token else None

    def renew(self, asked: Sequence[Renewal]) -> Query:
        # There is no UPDATE ... RETURNING. What was renewed expires later than anything that was
        # to expire a TTL after the start: so it is told, and the holder's term began before that.
        # One busy row fails the statement, with nothing renewed; a small table, read as a whole
        # rather than by its key, would fail it for any busy row.
        # Names go in hexadecimal: they are bytes, whatever the connection's character set.
        rows = [(name.encode().hex(), token, _microseconds(ttl)) for name, token, ttl in asked]
        table = f"""JSON_TABLE(%(asked)s, '$[*]' COLUMNS (
                    hex VARCHAR(2040) CHARACTER SET ascii PATH '$[0]',
                    token CHAR(32) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
                    ttl BIGINT PATH '$[2]'
                )) AS asked STRAIGHT_JOIN {self.lock_table} AS l FORCE INDEX (PRIMARY)
                    ON l.lock_name = UNHEX(asked.hex) AND l.token = asked.token"""
        return Query(
            f"""BEGIN NOT ATOMIC
                DECLARE start DATETIME(6) DEFAULT SYSDATE(6);
                UPDATE {table}
                SET expires_at = {_LATER.replace("%(ttl)s", "asked.ttl")}
                WHERE expires_at > SYSDATE(6);
                SELECT l.token FROM {table}
                WHERE expires_at >= start + INTERVAL asked.ttl MICROSECOND;
            END""",
            {"asked": json.dumps(rows)},
            commands.Renew(tuple(asked)),
            self.patience,
        )

    def release(self, name: str, token: str) -> Query:
        return Query(
            f"""UPDATE {self.lock_table} SET token = NULL, expires_at = SYSDATE(6)
            WHERE lock_name = %(name)s AND token = %(token)s""",
            {"name": self.key(name), "token": token},
            commands.Release(name, token),
            self.patience,
        )

    def sweep(self) -> Query:
        # What is over is found without a lock, for a scan with locks would fail other waiters.
        over = f"SELECT id FROM {self.waiter_table} WHERE {_REMAINING} <= 0 LIMIT 1000"
        return Query(
            f"""DELETE w FROM ({over}) AS expired STRAIGHT_JOIN {self.waiter_table} AS w
                ON w.id = expired.id""",
            {},
            commands.Sweep(),
            self.patience,
        )

    def create(self, name: str) -> Query:
        return Query(
            f"""BEGIN NOT ATOMIC
                INSERT IGNORE INTO {self.guard_table} (lock_name) VALUES (%(name)s);
                INSERT IGNORE INTO {self.lock_table} (lock_name, fence) VALUES (%(name)s, 0);
            END""",
            {"name": self.key(name)},
            commands.Create(name),
            self.patience,
        )

    def lock_row(self, name: str, patience: float | None, *, borrowed: bool) -> Query:
        seconds = self.longest_patience if patience is None else patience
        if seconds < _WORTH_WAITING:
            # Not SKIP LOCKED: by a unique key 10.11 answers it with error 1180 "Operation not
            # permitted". The error of NOWAIT undoes this statement alone.
            limit, wait, seconds = "", "NOWAIT", 0.0
        else:
            # So does the end of its time, which is exact: WAIT knows whole seconds.
            limit = f"SET STATEMENT max_statement_time = {seconds:.3f} FOR "
            wait = f"WAIT {math.ceil(seconds) + 1}"
        key = _EXACT
        if not borrowed:
            # Its own look: a subquery locks nothing, and under the READ COMMITTED of dblock's own
            # sessions it sees what is newest. So the row of a held lease is left alone.
            key = f"(SELECT lock_name FROM {self.lock_table} WHERE lock_name = {key} AND {_FREE})"
        return Query(
            f"""{limit}SELECT STRAIGHT_JOIN l.fence FROM {self.guard_table} AS g
            JOIN {self.lock_table} AS l ON l.lock_name = g.lock_name
            WHERE g.lock_name = {key}
                AND (l.token IS NULL OR l.expires_at <= UTC_TIMESTAMP(6))
            FOR UPDATE {wait}""",
            _hex(name),
            commands.LockRow(name, borrowed),
            seconds,
        )

    def guard(self, name: str, token: str, fence: int) -> Query:
        # That the lease is this one is for the look that follows: no grant can come before it.
        return Query(
            f"""SELECT 1 FROM {self.guard_table} WHERE lock_name = {_EXACT}
            LOCK IN SHARE MODE NOWAIT""",
            _hex(name),
            commands.Guard(name, token, fence),
            0.0,
        )

    def apply(self, key: str) -> Query:
        return Query(
            f"""INSERT IGNORE INTO {self.applied_table} (idempotency_key, applied_at)
            VALUES ({_EXACT}, UTC_TIMESTAMP(6))""",
            _hex(key),
            commands.Apply(key),
        )

    def unapply(self, key: str) -> Query:
        return Query(
            f"DELETE FROM {self.applied_table} WHERE idempotency_key = {_EXACT}",
            _hex(key),
            commands.Unapply(key),
        )

    def begin_run(self, name: str, slot: str, fence: int, owner: str) -> Query:
        key = "lock_name = %(name)s AND slot = %(slot)s"
        return Query(
            f"""BEGIN NOT ATOMIC
                INSERT IGNORE INTO {self.run_table} (lock_name, slot, fence, owner, started_at)
                    VALUES (%(name)s, %(slot)s, %(fence)s, %(owner)s, {self.clock});
                IF ROW_COUNT() = 0 THEN
                    UPDATE {self.run_table} AS run SET fence = %(fence)s, owner = %(owner)s,
                        started_at = {self.clock}, ended_at = NULL, exit_status = NULL
                        WHERE {key} AND {self.startable("%(fence)s")};
                END IF;
                SELECT fence FROM {self.run_table} WHERE {key};
            END""",
            {"name": self.key(name), "slot": self.key(slot), "fence": fence, "owner": owner},
            commands.BeginRun(name, slot, fence, owner),
            self.patience,
        )


# Seconds. The statement itself takes time too.
_WORTH_WAITING = 0.05
# Whole seconds for who leaves the queue, and has to be gone.
_LEAVING = 1

# Whatever the server presets. A lease statement never waits for a row lock: who has it is taking
# the name. An idle row lock is no forgotten client: wait_timeout is the usual eight hours at least.
# Who makes transactions read-only may have put another server in this one's place: so they stay.
_SETTINGS = """SET SESSION innodb_lock_wait_timeout = 0, tx_isolation = 'READ-COMMITTED',
    completion_type = 'NO_CHAIN', time_zone = '+00:00', max_statement_time = %s,
    sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0,
    sql_select_limit = 18446744073709551615, sql_big_selects = 1,
    idle_transaction_timeout = 0, idle_write_transaction_timeout = 0,
    idle_readonly_transaction_timeout = 0, wait_timeout = GREATEST(@@wait_timeout, 28800)"""

_WHO = """SELECT VERSION(), id, host, CONCAT_WS('/', @@server_id, @@hostname, @@port)
    FROM information_schema.processlist WHERE id = CONNECTION_ID()"""

_END = """BEGIN NOT ATOMIC
    DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; -- it has just ended by itself
    IF EXISTS (SELECT 1 FROM information_schema.processlist
               WHERE id = %(session)s AND host = %(host)s) THEN
        KILL CONNECTION %(session)s;
        SELECT 1;
    END IF;
END"""


def _end(session: int, host: str) -> Query:
    """Return what ends a session, which is unmistakable with its client's port."""
    command = commands.EndSession(f"{session} of {host}")
    return Query(_END, {"session": session, "host": host}, command)


def _migrations(name: str) -> str:
    """Return the name of the user lock of migrations. Such names are the whole server's."""
    key = hashlib.blake2b(f"dblock/{name}".encode(), digest_size=8).hexdigest()
    return f"SHA1(CONCAT_WS('/', '{key}', DATABASE()))"


# A name in a session of the user's, whose character set and sql_mode say what else a quote means,
# and whose driver may not know.
_EXACT = "UNHEX(%(name)s)"


def _hex(name: str) -> dict[str, str]:
    return {"name": name.encode().hex()}


def _microseconds(ttl: float) -> int:
    return round(ttl * 1_000_000)
