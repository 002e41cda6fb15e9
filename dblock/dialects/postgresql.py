"""PostgreSQL 14 or newer, through psycopg 3."""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

from ..errors import Unsupported
from ..protocol import commands
from ..protocol.faults import Fault
from ..protocol.state import Granted, Renewal
from ..protocol.steps import Query, Reply
from ..timeouts import Timeouts
from . import reading
from .base import Answer, Session
from .migrating import MigrationMutex
from .queueing import CALL, LAZY, Queueing
from .witness import DURABLE, KNOWN, NEXT_FENCE, OPEN, SERVER

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_FAULTS = {
    "55P03": Fault.BUSY,  # lock_not_available: NOWAIT or lock_timeout
    "40P01": Fault.DEADLOCK,
    "40001": Fault.SERIALIZATION,
    "57014": Fault.CANCELED,
    "42P01": Fault.SCHEMA,  # undefined_table
    "42703": Fault.SCHEMA,  # undefined_column
    "3F000": Fault.SCHEMA,  # invalid_schema_name
    "42501": Fault.PRIVILEGE,
    "25006": Fault.READ_ONLY,
    "0A000": Fault.READ_ONLY,  # an UNLOGGED table, on a standby
    "57P01": Fault.DISCONNECTED,  # admin_shutdown
    "57P02": Fault.DISCONNECTED,  # crash_shutdown
    "57P03": Fault.DISCONNECTED,  # cannot_connect_now
    "57P04": Fault.DISCONNECTED,  # database_dropped
    "57P05": Fault.DISCONNECTED,  # idle_session_timeout
    "25P03": Fault.DISCONNECTED,  # idle_in_transaction_session_timeout
    "25P04": Fault.DISCONNECTED,  # transaction_timeout, of PostgreSQL 17
}
# A pooler gave this session another one's backend: 26000 "does not exist", 42P05 "exists already".
# Both are raised before the statement runs.
_FOREIGN_PREPARED = {"26000", "42P05"}

_FREE = "(token IS NULL OR expires_at <= clock_timestamp())"
_REMAINING = "extract(epoch FROM expires_at - clock_timestamp())::float8"
# Whether a statement sees the newest rows. Asked there: without an encoding text comes as bytes.
_NEWEST = "current_setting('transaction_isolation') = 'read committed'"


class PostgreSQL(Queueing):
    """Expiry is written and compared with ``clock_timestamp()``, and a new one only after the row
    is locked: ``now()`` is the transaction's start, and even ``clock_timestamp()`` is read before a
    wait when the statement that waits also reads it.

    A guard is ``FOR KEY SHARE``, the lock of a foreign key's check: renewal and release change no
    key, so they pass it; a grant and a row lock take the row ``FOR UPDATE`` first and do not. Under
    REPEATABLE READ a guard is not disturbed by renewals since the snapshot, but by grants.
    """

    name = "postgresql"
    extra = "postgresql"
    backends: ClassVar[tuple[str, ...]] = ("postgresql",)
    drivers: ClassVar[tuple[str, ...]] = ("psycopg",)
    real = "PostgreSQL"
    named = Query("SELECT version()", {})
    failure_aborts = True
    remaining = _REMAINING
    later = "clock_timestamp() + {} * interval '1 s'"
    lazily = f"RETURNING {LAZY}"
    clock = "clock_timestamp()"
    ago = "clock_timestamp() - make_interval(secs => %(age)s)"
    durably = f" RETURNING {DURABLE}"

    def __init__(self, schema: str | None, prefix: str, timeouts: Timeouts) -> None:
        super().__init__(schema, prefix, timeouts)
        self.longest_patience: float = timeouts.query

    def connect_args(self, timeouts: Timeouts) -> dict[str, Any]:
        # Both are needed: keepalives notice a peer that died while we wait for its reply,
        # tcp_user_timeout one that died before it acknowledged our request.
        idle, interval = _keepalives(timeouts)
        return {
            "client_encoding": "utf8",
            "connect_timeout": max(2, math.ceil(timeouts.connect)),  # libpq: at least 2
            "keepalives": 1,
            "keepalives_idle": idle,
            "keepalives_interval": interval,
            "keepalives_count": 3,
            "tcp_user_timeout": math.ceil(timeouts.socket * 1000),
        }

    def unbounded(self, connection: Any) -> list[str]:
        given = connection.info.get_parameters()
        local = connection.info.host.startswith(("/", "@"))  # a Unix socket has no network
        wanted = ["connect_timeout"] if local else ["connect_timeout", *_KERNEL]
        return [name for name in wanted if name not in given]

    def bound_reads(self, connection: Any, seconds: float) -> None:
        reading.bound(connection, seconds)

    @contextlib.contextmanager
    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> Iterator[None]:
        if within is None:
            yield
            return
        reading.bound(connection, within)
        try:
            yield
        finally:
            reading.bound(connection, None)

    def cursor(self, connection: Any) -> Any:
        # As text, moments and numbers would come as DateStyle and extra_float_digits have it.
        return connection.cursor(binary=True)

    def send(
        self, connection: Any, query: Query, kept: Any = None, *, waits: bool = False
    ) -> Answer:
        cursor = self.cursor(connection) if kept is None else kept
        cursor.execute(query.sql, query.params)
        # A description would be made for this alone.
        return cursor.fetchall() if cursor.pgresult.nfields else (), cursor.rowcount

    def ask(self, connection: Any, query: Query) -> Sequence[Any]:
        with self.cursor(connection) as cursor:
            # Not prepared: behind a pooler another client may have prepared another.
            cursor.execute(query.sql, query.params or None, prepare=False)
            return cursor.fetchone() or ()

    def set_autocommit(self, connection: Any) -> None:
        connection.autocommit = True

    def prepare_connection(self, connection: Any) -> Session:
        # Autocommit is the client's own matter. No SET: it would leak through a pooler.
        self.set_autocommit(connection)
        version = connection.info.server_version
        if version < 140000 and self.recognise(*self.ask(connection, self.named)):
            raise Unsupported(f"this server is PostgreSQL {version // 10000}: 14 or newer works")
        doubts: list[str] = []
        connection.add_notice_handler(partial(_note_doubt, doubts))
        said, backend, started = self._who(connection)
        self.recognise(said)
        if backend != connection.info.backend_pid:
            # A pooler, which makes that pid up. On a backend that it hands over, a statement
            # prepared under the same name can be another client's.
            connection.prepare_threshold = None
            if connection.info.encoding != "utf-8":
                raise Unsupported(
                    f"this engine's client_encoding is {connection.info.encoding}, which dblock "
                    "cannot change behind a pooler: connect_args={'client_encoding': 'utf8'} works"
                )
            return Session(doubts=doubts)
        self.ask(connection, Query(_SETTINGS, _settings(self.timeouts)))
        (server,) = self.ask(connection, Query(SERVER, {}))
        command = commands.EndSession(f"{backend} since {started}")
        end = Query(_END, {"pid": backend, "started": started}, command)
        return Session(server, end, doubts)

    def _who(self, connection: Any) -> Sequence[Any]:
        try:
            return self.ask(connection, Query(_WHO, {}))
        except Exception as error:
            if self.classify(error) is None:  # a look-alike need not have all these functions
                self.recognise(*self.ask(connection, self.named))
            raise

    def precedes(self, server: str, other: str) -> bool:
        (system, _, timeline), (others, _, later) = server.rpartition("/"), other.rpartition("/")
        return system == others and timeline < later

    def timed_out(self, error: BaseException) -> bool:
        return type(error).__name__ == "ConnectionTimeout" or reading.given_up(error)

    def is_usable(self, connection: Any) -> bool:
        return not connection.closed  # as a broken one is

    def can_resend(self, connection: Any, error: Exception) -> bool:
        if getattr(error, "sqlstate", None) not in _FOREIGN_PREPARED:
            return False
        connection.prepare_threshold = None
        return True

    def transaction_trouble(self, connection: Any, locking: bool) -> str | None:
        if connection.closed:
            return "its connection is closed"
        if locking and connection.autocommit:
            return "its connection is in autocommit mode, so nothing stays locked"
        if connection.pgconn.transaction_status == _IN_ERROR:
            return "its transaction has already failed; roll it back first"
        return None

    def classify(self, error: BaseException) -> Fault | None:
        state = getattr(error, "sqlstate", None)
        if state is not None:
            if state in _FAULTS:
                return _FAULTS[state]
            if state.startswith("08"):
                return Fault.DISCONNECTED
            # Resources, system errors, and the server's own defects; and text that the database's
            # encoding does not have.
            refused = state[:2] in ("53", "58", "XX") or state == "22P05"
            return Fault.REFUSED if refused else None
        # psycopg raises without a state when the connection broke under it, and only then.
        return Fault.DISCONNECTED if type(error).__name__ == "OperationalError" else None

    def prepare_migrator(self, connection: Any) -> None:
        super().prepare_migrator(connection)
        connection.prepare_threshold = None

    def hurry(self) -> tuple[str, ...]:
        return (
            "SELECT set_config('lock_timeout', '2s', true) "
            "WHERE current_setting('lock_timeout') = '0'",
        )

    def migration_mutex(self, name: str) -> tuple[str, ...]:
        # A transaction keeps its backend behind a pooler too. It must have no snapshot while it
        # is idle, or CREATE INDEX CONCURRENTLY would wait for it: so no REPEATABLE READ, and
        # neither parameters nor a prepared statement, whose portal would stay open.
        return (
            "BEGIN ISOLATION LEVEL READ COMMITTED",
            _ENDLESS,
            MigrationMutex(name).take(secrets.randbits(31)),
        )

    def migration_holder(self, name: str) -> str:
        return MigrationMutex(name).holder()

    def grant(self, name: str, token: str, owner: str, ttl: float) -> Query:
        asked = {"name": name, "token": token, "owner": owner, "ttl": ttl}
        return Query(self._grant, asked, commands.Grant(name, token, owner, ttl), 0.0)

    @cached_property
    def _grant(self) -> str:
        # `mine` reads before it locks, so a refused try writes nothing: no WAL, no sync.
        # Every node of the plan is made ready each time, whether it runs or not, so there are few.
        # By `ctid` it need not be sought again, among as many versions as an old snapshot keeps. A
        # version that is newer than this statement is not seen then, which another try mends.
        # The grant is on disk before it is told, even where synchronous_commit is off.
        return f"""WITH taken AS (
                UPDATE {self.lock_table} AS l SET fence = {NEXT_FENCE}, waiters = {self.others()},
                    token = %(token)s, owner = %(owner)s, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + make_interval(secs => %(ttl)s)
                FROM (
                    SELECT k.ctid, open.epoch FROM {self.open}, {self.lock_table} AS k
                    WHERE lock_name = %(name)s AND {self.turn(self.earlier)}
                    FOR UPDATE OF k SKIP LOCKED
                ) AS mine WHERE l.ctid = mine.ctid
                RETURNING fence, {_REMAINING}, {DURABLE}
            ), created AS (
                {self.first_grant} RETURNING fence, {_REMAINING}, {DURABLE}
            )
            TABLE taken UNION ALL TABLE created"""

    def granted(self, reply: Reply, token: str) -> Granted | None:
        if not reply.rows or reply.rows[0][0] is None:
            return None
        return Granted(reply.rows[0][0], reply.rows[0][1])

    def renew(self, asked: Sequence[Renewal]) -> Query:
        # `mine.expires_at`, because l's own may be compared before `mine` has the row locked.
        # Where an expiry is brought forward the first who waits is told, to look again in time.
        # The arrays are selected so that the planner does not see how long they are: for many it
        # would read the whole table rather than go by its key.
        names, tokens, ttls = zip(*asked, strict=True)
        return Query(
            f"""WITH present AS MATERIALIZED ({self.epoch(KNOWN)}
            ), mine AS MATERIALIZED (
                SELECT k.lock_name, k.expires_at, asked.token, asked.ttl FROM unnest(
                    (SELECT %(names)s::text[]), (SELECT %(tokens)s::text[]),
                    (SELECT %(ttls)s::float8[])
                ) AS asked (lock_name, token, ttl)
                JOIN {self.lock_table} AS k
                    ON k.lock_name = asked.lock_name AND k.token = asked.token
                JOIN present ON k.fence > present.epoch
                FOR NO KEY UPDATE OF k SKIP LOCKED
            )
            UPDATE {self.lock_table} AS l
            SET expires_at = clock_timestamp() + make_interval(secs => mine.ttl)
            FROM mine WHERE l.lock_name = mine.lock_name AND l.token = mine.token
                AND mine.expires_at > clock_timestamp()
            RETURNING l.token, {DURABLE},
                CASE WHEN l.expires_at < mine.expires_at THEN {CALL} END""",
            {
                "names": list(names),
                "tokens": list(tokens),
                "ttls": list(ttls),
                "ttl": max(ttls),
            },
            commands.Renew(tuple(asked)),
            0.0,
        )

    def sweep(self) -> Query:
        over = f"SELECT id FROM {self.waiter_table} WHERE {_REMAINING} <= 0 FOR UPDATE SKIP LOCKED"
        sql = f"DELETE FROM {self.waiter_table} WHERE id IN ({over}) {self.lazily}"
        return Query(sql, {}, commands.Sweep(), 0.0, durable=False)

    def create(self, name: str) -> Query:
        return Query(
            f"""INSERT INTO {self.lock_table} (lock_name, fence) VALUES (%(name)s, 0)
            ON CONFLICT (lock_name) DO NOTHING""",
            {"name": name},
            commands.Create(name),
        )

    def lock_row(self, name: str, patience: float | None, *, borrowed: bool) -> Query:
        free = (
            f"SELECT fence FROM {self.lock_table} "
            f"WHERE lock_name = %(name)s AND {_FREE} AND EXISTS (TABLE open)"
        )
        if not borrowed:
            # In a transaction of dblock's own settings may stay to its end. It changes nothing, so
            # nothing is lost when a crash forgets its commit, and that need not wait for a sync.
            return Query(
                f"""WITH open AS MATERIALIZED ({self.epoch(OPEN)}), locked AS MATERIALIZED ({free}
                    AND set_config('lock_timeout', %(patience)s, true) IS NOT NULL
                    AND {LAZY} IS NOT NULL
                    FOR UPDATE {"SKIP LOCKED" if patience == 0 else ""})
                SELECT {_NEWEST}, locked.fence, EXISTS (TABLE open)
                FROM (SELECT) AS always LEFT JOIN locked ON true""",
                {"name": name, "patience": str(_milliseconds(patience))},
                commands.LockRow(name, borrowed),
                patience,
                durable=False,
            )
        return Query(
            f"""WITH open AS MATERIALIZED ({self.epoch(OPEN)}), before AS MATERIALIZED (
                SELECT current_setting('lock_timeout') AS patience
            ), during AS MATERIALIZED (
                SELECT set_config('lock_timeout', %(patience)s, true) AS patience
                FROM before WHERE before.patience IS NOT NULL
            ), locked AS MATERIALIZED (
                {free} AND (SELECT count(patience) FROM during) = 1 FOR UPDATE
            )
            SELECT {_NEWEST}, locked.fence,
                set_config('lock_timeout', before.patience, true), EXISTS (TABLE open)
            FROM before LEFT JOIN locked ON true""",
            {"name": name, "patience": str(_milliseconds(patience))},
            commands.LockRow(name, borrowed),
            patience,
        )

    def row_locked(self, reply: Reply) -> bool:
        return bool(reply.rows) and reply.rows[0][1] is not None

    def stale_snapshot(self, reply: Reply) -> bool:
        return not reply.rows[0][0]

    def guard(self, name: str, token: str, fence: int) -> Query:
        return Query(
            f"""SELECT fence FROM {self.lock_table}
            WHERE lock_name = %(name)s AND fence = %(fence)s AND token = %(token)s
                AND fence > ({self.epoch()})
            FOR KEY SHARE SKIP LOCKED""",
            {"name": name, "fence": fence, "token": token},
            commands.Guard(name, token, fence),
            0.0,
        )

    def apply(self, key: str) -> Query:
        return Query(
            f"""INSERT INTO {self.applied_table} (idempotency_key, applied_at)
            VALUES (%(key)s, clock_timestamp()) ON CONFLICT (idempotency_key) DO NOTHING""",
            {"key": key},
            commands.Apply(key),
        )

    def unapply(self, key: str) -> Query:
        return Query(
            f"DELETE FROM {self.applied_table} WHERE idempotency_key = %(key)s",
            {"key": key},
            commands.Unapply(key),
        )


_IN_ERROR = 3  # libpq's PQTRANS_INERROR

# Where the server waits for its standbys, after the local commit. Its messages are translated.
_REPLICATING = "SyncRepWaitForLSN"

_KERNEL = ("keepalives_idle", "tcp_user_timeout")

_WHO = """SELECT version(), pg_backend_pid(),
    (SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid()))"""

# The pid alone could be another's by now.
_END = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = %(pid)s AND backend_start = %(started)s"""

# What nobody has set, in the URL, for the role, the database or the server. An idle row lock is
# not a forgotten transaction, so of those limits none holds for it; and what the statements mean is
# nobody else's to set. But who makes transactions read-only by default may have put another server
# in this one's place.
_SETTINGS = """SELECT set_config(wanted.name, wanted.setting, false)
    FROM unnest(%(names)s::text[], %(settings)s::text[]) AS wanted (name, setting)
    JOIN pg_settings AS s ON s.name = wanted.name
    WHERE s.source = 'default'
        OR s.name LIKE ANY ('{idle%%,transaction%%,default%%,client_encoding}')"""

# For one transaction, which may have to be idle for as long as a migration takes.
_ENDLESS = """SELECT count(set_config(name, '0', true)) FROM pg_settings
    WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"""


def _settings(timeouts: Timeouts) -> dict[str, list[str]]:
    """Return what dblock's own sessions ask of the server, so that it gives up before we do.

    The server's keepalives and its look at the socket during a wait are for clients that die: a
    wait of theirs must not get the lock.
    """
    idle, interval = _keepalives(timeouts)
    milliseconds = {
        "statement_timeout": timeouts.query,
        "client_connection_check_interval": min(0.05, timeouts.query / 2),
        "tcp_user_timeout": timeouts.socket,
        "idle_in_transaction_session_timeout": 0.0,
        "idle_session_timeout": 0.0,
        "transaction_timeout": 0.0,  # PostgreSQL 17
    }
    settings = {name: str(_milliseconds(value or None)) for name, value in milliseconds.items()}
    settings |= {
        "client_encoding": "UTF8",
        "default_transaction_isolation": "read committed",
        "tcp_keepalives_idle": str(idle),
        "tcp_keepalives_interval": str(interval),
        "tcp_keepalives_count": "3",
    }
    return {"names": list(settings), "settings": list(settings.values())}


def _note_doubt(doubts: list[str], notice: Any) -> None:
    """Take down that a commit's wait for a standby was cut off, which is told as success."""
    if notice.source_function == _REPLICATING:
        doubts.append(notice.message_primary)


def _keepalives(timeouts: Timeouts) -> tuple[int, int]:
    """Return the seconds of silence before the first of three probes, and those between them."""
    idle = max(1, math.floor(timeouts.socket / 2))
    return idle, max(1, math.floor((timeouts.socket - idle) / 3))


def _milliseconds(patience: float | None) -> int:
    return 0 if patience is None else max(1, math.floor(patience * 1000))
