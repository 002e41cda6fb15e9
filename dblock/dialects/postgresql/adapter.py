"""psycopg 3: how its connections are made ready for dblock, and what its errors mean."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from ...errors import Unsupported
from ...policy import Timeouts
from ...protocol.commands import EndSession
from ...protocol.faults import Fault
from ...protocol.state import Passed
from ...system.platform import poller
from ..adapter import Adapter, Answer, Carry, Send, ServerSession
from ..borrowed_driver import PIPELINE, BorrowedDriver
from ..query import Query, all_rows
from ..tickets import NUMBER, TICKET, UNCALLED
from . import read_deadline
from .arguments import CARRIED
from .drivers import IDLE, Asyncpg, Psycopg2, problem_of, raised_in
from .election import OBSERVED
from .errors import fault_of, refuses
from .fragments import milliseconds
from .opening import Opener, opener
from .queue import CHANNEL, CLASS, PREFIX
from .sender import Sender
from .witness import SERVER


class Psycopg(Adapter):
    """psycopg 3. A :class:`.Sender` sends the statements on dblock's own connections."""

    drivers: ClassVar[tuple[str, ...]] = ("psycopg",)
    package = "psycopg"
    extras: ClassVar[Mapping[str, str]] = {"postgresql": "postgresql"}
    others: ClassVar[tuple[type[BorrowedDriver], ...]] = (Psycopg2, Asyncpg)
    carried: ClassVar[Mapping[str, Carry]] = CARRIED
    real = "PostgreSQL"
    named = Query("SELECT version()", {}, read=all_rows)

    def connect_args(self) -> dict[str, Any]:
        # Both are needed: keepalives notice a peer that died while we wait for its reply,
        # tcp_user_timeout one that died before it acknowledged our request.
        idle, interval = _keepalives(self.timeouts)
        return {
            "client_encoding": "utf8",
            "fallback_application_name": "dblock",
            "connect_timeout": max(2, math.ceil(self.timeouts.connect)),  # libpq: at least 2
            "keepalives": 1,
            "keepalives_idle": idle,
            "keepalives_interval": interval,
            "keepalives_count": 3,
            "tcp_user_timeout": math.ceil(self.timeouts.socket * 1000),
        }

    def unbounded(self, connection: Any) -> list[str]:
        given = connection.info.get_parameters()
        local = connection.info.host.startswith(("/", "@"))  # a Unix socket has no network
        wanted = ["connect_timeout"] if local else ["connect_timeout", *_KERNEL]
        return [name for name in wanted if name not in given]

    def prepare_connection(self, connection: Any) -> ServerSession:
        read_deadline.bound(connection, None)  # the Sender has a deadline of its own
        # Autocommit is a setting of the client alone. A SET would leak through a pooler.
        self.set_autocommit(connection)
        version = connection.info.server_version
        if version < 140000 and self.recognise(*self.ask(connection, self.named)):
            raise Unsupported(f"this server is PostgreSQL {version // 10000}: 14 or newer works")
        doubts: list[str] = []
        connection.add_notice_handler(partial(_note_doubt, doubts))
        said, backend, started = self._who(connection)
        self.recognise(said)
        if backend != connection.info.backend_pid:
            # A pooler, which makes up a pid for its clients. On a backend that it has switched to,
            # a prepared statement with the same name can be another client's.
            connection.prepare_threshold = None
            if connection.info.encoding != "utf-8":
                raise Unsupported(
                    f"this engine's client_encoding is {connection.info.encoding}, which dblock "
                    "cannot change behind a pooler: connect_args={'client_encoding': 'utf8'} works"
                )
            return ServerSession(doubts=doubts)
        self.ask(connection, Query(_SETTINGS, _settings(self.timeouts)))
        (server,) = self.ask(connection, Query(SERVER, {}))
        return ServerSession(server, EndSession(backend, started), doubts)

    def _who(self, connection: Any) -> Sequence[Any]:
        try:
            return self.ask(connection, Query(_WHO, {}))
        except Exception as error:
            if self.classify(error) is None:  # a look-alike may lack some of these functions
                self.recognise(*self.ask(connection, self.named))
            raise

    def prepare_migrator(self, connection: Any) -> None:
        super().prepare_migrator(connection)
        connection.prepare_threshold = None

    def set_autocommit(self, connection: Any) -> None:
        connection.autocommit = True

    def is_usable(self, connection: Any) -> bool:
        return bool(connection.pgconn.status == _OK)

    def broken(self, connection: Any) -> Callable[[], object]:
        return partial(getattr, connection.pgconn, "status")  # a property, written in C; 0 is OK

    def sender(self, connection: Any) -> Send:
        return Sender(connection, poller(connection.fileno())).send

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer:
        if within is None:
            within = self.timeouts.connect
        return self.sender(connection)(query, within, waits)

    def bound_reads(self, connection: Any, seconds: float) -> None:
        read_deadline.bound(connection, seconds)

    def has_rows(self, cursor: Any) -> bool:
        # psycopg builds `cursor.description` each time, which takes as long as a round trip.
        return bool(cursor.pgresult.nfields)

    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> contextlib.AbstractContextManager[None]:
        if within is None:
            return contextlib.nullcontext()
        return read_deadline.Bound(connection, within)

    def opener(self, connection: Any) -> Opener | None:
        return None if self.is_async else opener(connection)

    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        pgconn = connection.pgconn
        if pgconn.pipeline_status:
            return PIPELINE
        return problem_of(connection, locking, pgconn.transaction_status)

    def has_begun(self, connection: Any) -> bool:
        return bool(connection.pgconn.transaction_status != IDLE)

    def listen(
        self,
        connection: Any,
        session: ServerSession,
        token: Callable[[int], str],
        *,
        observes: bool = False,
    ) -> str | None:
        if session.end is None:  # behind a pooler
            return None
        while True:
            channel = token(CHANNEL // 2)
            if (
                channel != UNCALLED
                and self.ask(connection, Query(_OCCUPY, {"channel": channel}))[0]
            ):
                break
        self.send(connection, Query(f"LISTEN {PREFIX}{channel}", {}))
        if observes:
            self.send(connection, Query(f"LISTEN {OBSERVED}", {}))
        return channel

    def called(self, connection: Any) -> list[tuple[str, Passed | None]]:
        connection.pgconn.consume_input()
        called = []
        for call in iter(connection.pgconn.notifies, None):
            called.append(read_call(call.extra.decode("ascii", "replace")))
        return called

    def classify(self, error: BaseException) -> Fault | None:
        state = getattr(error, "sqlstate", None)
        if state is not None:
            return fault_of(state, raised_in(error))
        # psycopg raises an OperationalError without a state only when the connection is broken.
        return Fault.DISCONNECTED if type(error).__name__ == "OperationalError" else None

    def misconfigured(self, error: BaseException) -> bool:
        if getattr(error, "sqlstate", None) is not None:
            return False
        return type(error).__name__ == "ProgrammingError" or refuses(str(error))

    def timed_out(self, error: BaseException) -> bool:
        return type(error).__name__ == "ConnectionTimeout" or read_deadline.given_up(error)

    def precedes(self, server: str, other: str) -> bool:
        (system, _, timeline), (others, _, later) = server.rpartition("/"), other.rpartition("/")
        return system == others and timeline < later


def read_call(message: str) -> tuple[str, Passed | None]:
    """Return the notified ticket, and the hold that is passed on to it, if there is one."""
    ticket, *hold = message.split(" ")
    if len(ticket) == TICKET and len(hold) == 3:
        try:
            return ticket, Passed(int(hold[0]), float(hold[1]), float(hold[2]))
        except ValueError:
            pass  # any client may send a message
    return ticket[:NUMBER], None


_OK = 0  # libpq's CONNECTION_OK

# The server's function that waits for standbys after the local commit. Unlike the message, its name
# is the same in every language.
_REPLICATING = "SyncRepWaitForLSN"

_KERNEL = ("keepalives_idle", "tcp_user_timeout")

_WHO = """SELECT version(), pg_backend_pid(),
    (SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid()))"""

# SQL_ASCII, because every role may notify this channel, with any text: the server ends a session if
# it cannot convert the text to the session's encoding.
_OCCUPY = f"""SELECT pg_try_advisory_lock({CLASS}, ('x' || %(channel)s)::bit(32)::int),
    set_config('client_encoding', 'SQL_ASCII', false)"""

# It sets a parameter that has its default: a value from the URL, the role, the database or the
# server stays. The timeouts of idle sessions and transactions are set in any case, because an idle
# row lock is not a forgotten transaction; so are the isolation level and the encoding, on which the
# statements rely. `default_transaction_read_only` stays: it may mark a server that is no longer the
# primary.
_SETTINGS = """SELECT set_config(wanted.name, wanted.setting, false)
    FROM unnest(%(names)s::text[], %(settings)s::text[]) AS wanted (name, setting)
    JOIN pg_settings AS s ON s.name = wanted.name
    WHERE s.source = 'default'
        OR s.name LIKE ANY ('{idle%%,transaction%%,default%%,client_encoding}')"""


def _settings(timeouts: Timeouts) -> dict[str, list[str]]:
    """Return the settings of dblock's own sessions, with which the server gives up before we do.

    With the server's keepalives, and its checks of the socket during a wait, it notices a client
    that died: that client's wait must not get the lock.
    """
    idle, interval = _keepalives(timeouts)
    limits = {
        "statement_timeout": timeouts.query,
        "client_connection_check_interval": min(0.05, timeouts.query / 2),
        "tcp_user_timeout": timeouts.socket,
        "idle_in_transaction_session_timeout": 0.0,
        "idle_session_timeout": 0.0,
        "transaction_timeout": 0.0,  # PostgreSQL 17
    }
    settings = {name: str(milliseconds(value or None)) for name, value in limits.items()}
    settings |= {
        "application_name": "dblock",
        "client_encoding": "UTF8",
        "default_transaction_isolation": "read committed",
        "tcp_keepalives_idle": str(idle),
        "tcp_keepalives_interval": str(interval),
        "tcp_keepalives_count": "3",
    }
    return {"names": list(settings), "settings": list(settings.values())}


def _note_doubt(doubts: list[str], notice: Any) -> None:
    """Note that a commit's wait for a standby was cut off, which the server reports as success."""
    if notice.source_function == _REPLICATING:
        doubts.append(notice.message_primary)


def _keepalives(timeouts: Timeouts) -> tuple[int, int]:
    """Return the seconds of silence before the first of three probes, and between the probes."""
    idle = max(1, math.floor(timeouts.socket / 2))
    return idle, max(1, math.floor((timeouts.socket - idle) / 3))
