"""A server of the matrix's own with one database, and how its cells are run on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from sqlalchemy import NullPool, create_engine

from dblock import Locks, Timeouts
from dblock.schema import upgrade
from tests.faults.matrix.expected import STATEMENTS, Cell, Fault, Row
from tests.faults.matrix.kinds import OF_KINDS
from tests.faults.matrix.operations import OPERATIONS, Operation, Ways, metadata
from tests.faults.matrix.waiting import WAITING
from tests.faults.matrix.within import impatient_engine
from tests.faults.proxy import SECONDS, Lose, Proxy
from tests.servers import FAMILY, OWN, OwnServer, Pooled, execute
from tests.support import LONG, MOMENT
from tests.worlds.world import World

KINDS = dict(OWN)
WAITED_ON = KINDS | {"pgbouncer": Pooled}

# What is cut is told at once, so a busy machine may take its time. Silence is waited for.
PATIENT = Timeouts(connect=SECONDS, query=SECONDS / 2, socket=SECONDS)
# One connection falls silent. On a busy machine the server answers the others late.
SILENT = Timeouts(connect=10, query=5, socket=6)
# The whole server falls silent. A busy machine still comes to the statement within these bounds.
UNREACHABLE = Timeouts(connect=3, query=1.5, socket=3)
TTL = 15.0  # where nobody can be reached, a renewal is tried until it is over
SESSIONS_END = 5.0

TIMEOUTS = {Fault.DEAF: SILENT, Fault.STOPPED: UNREACHABLE}

# What the server sends to one who listens, with the channel; it is no request.
CALL, CHANNEL = "call", b"dblock_"
COM_QUIT = b"\1\0\0\0\1"
SET_UP = (
    b"client_encoding\0",  # PostgreSQL's
    b"pg_backend_pid()",
    b"wanted.setting",
    b"pg_control_system()",
    b"mysql_native_password",  # MariaDB's
    b"caching_sha2_password",  # MySQL's
    b"SET NAMES",
    b"\x03\0\0\0\x1b",  # lets MySQL take several statements at once
    b"SET AUTOCOMMIT",
    b"SET SESSION",
    b"id = CONNECTION_ID()",
    b"s.* FROM",  # the look where the tables are
)
SESSIONS = {
    "postgresql": "SELECT client_port, state, query FROM pg_stat_activity "
    "WHERE datname = current_database() AND client_port > 0",
    **dict.fromkeys(
        FAMILY,
        "SELECT CAST(SUBSTRING_INDEX(host, ':', -1) AS UNSIGNED), command, info "
        "FROM information_schema.processlist WHERE db = database()",
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one cell. ``left`` are the client's sessions that were still on the server."""

    told: str
    found: str
    left: tuple[str, ...]

    def fits(self, cell: Cell) -> bool:
        if cell.instead is not None and self.fits(cell.instead):
            return True
        if self.told not in cell.told or bool(self.left) != cell.left:
            return False
        found = self.found
        for what in cell.perhaps:
            found = found.replace(f", {what}", "")
        return self.found in cell.found or found in cell.found

    def __str__(self) -> str:
        text = f"{self.told}; {self.found}"
        return f"{text}; left: {', '.join(self.left)}" if self.left else text


# Of the other faults the server itself is the object.
LOSES = {
    Fault.REQUEST: Lose.REQUEST,
    Fault.REPLY: Lose.REPLY,
    Fault.RESET: Lose.CONNECTIONS,
    Fault.DEAF: Lose.HEARING,
}


@dataclass
class Case:
    """One cell while it runs, its operation in a thread."""

    cell: Cell
    subject: Operation
    proxy: Proxy
    client: ExitStack  # closes its connections
    told: str = "never ended"
    reached: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Run it until its statement is on the way."""
        threading.Thread(target=self._run, daemon=True).start()
        assert self.reached.wait(SECONDS), f"the statement was not sent: {self.told}"

    def _run(self) -> None:
        try:
            self.told = self.subject.told()
        except BaseException as error:
            self.told = f"{type(error).__name__}: {error}"
        finally:
            self.ended.set()

    def wait_for_the_server(self) -> None:
        """Hold the request, and all that comes after, until the server is as it shall be.

        To the client it is so from now on.
        """
        self.proxy.passing.clear()
        self.reached.set()
        self.proxy.passing.wait()

    def close(self) -> None:
        if not self.ended.is_set():
            self.proxy.cut()
            assert self.ended.wait(SECONDS)
        self.client.close()


class Site:
    """One server and database for many cells, each with a name and rows of its own."""

    def __init__(self, server: OwnServer, world: World | None = None) -> None:
        self.server = server
        self.world = world or World()
        server.create_database("matrix")
        self.url = server.url_for("matrix")
        upgrade(self.url)
        with Locks(self.url) as first:  # it writes the witness, with its TTL
            first.lease("first", ttl=LONG).acquire()
        self.onlooker = create_engine(self.url, poolclass=NullPool)
        metadata.create_all(self.onlooker)

    def requests(self, operation: str) -> list[str]:
        """Name the statements of an operation in a healthy run, as they pass the proxy."""
        with Proxy(self.url) as proxy, Locks(self.url) as direct, ExitStack() as client:
            subject = self._subject(operation, proxy, direct, client, PATIENT, LONG)
            before = len(proxy.requests)
            subject.told()
            # The user's pool rolls back what it is given back; that is the user's own.
            seen = [request for request in proxy.requests[before:] if not is_rollback(request)]
            subject.found()
        return [name_of(request) for request in seen if not is_set_up(request)]

    def meet(self, fault: Fault, rows: Sequence[Row]) -> list[Outcome]:
        """Let each row's statement meet a fault, all at the same time; return what came of them.

        They have clients, connections and locks of their own, and only the server in common. What
        happens to that happens once, when each has its statement on the way. It ends whatever the
        code under test does.
        """
        with ExitStack() as clients:
            cases = []
            for row in rows:
                cases.append(case := self._case(row, fault, clients))
                case.begin()
            try:
                if fault is Fault.STOPPED:
                    self.server.pause()
                elif fault is Fault.RESTARTED:
                    self.server.kill()
                    self.server.start()
                for case in cases:
                    case.proxy.passing.set()
                deadline = time.monotonic() + SECONDS
                for case in cases:
                    case.ended.wait(max(0.0, deadline - time.monotonic()))
            finally:
                self.server.resume()
            for case in cases:
                case.close()
            closed = time.monotonic()
            return [self._outcome(case, closed) for case in cases]

    def _case(self, row: Row, fault: Fault, clients: ExitStack) -> Case:
        """Return a row whose operation is about to begin, and to meet the fault."""
        proxy = clients.enter_context(Proxy(self.url))
        direct = clients.enter_context(Locks(self.url))
        client = clients.enter_context(ExitStack())
        timeouts = TIMEOUTS.get(fault, PATIENT)
        ttl = TTL if fault is Fault.STOPPED else LONG
        subject = self._subject(row.operation, proxy, direct, client, timeouts, ttl)
        case = Case(row.cells[fault], subject, proxy, client)
        if row.statement == CALL:
            proxy.lose(LOSES[fault], CHANNEL, case.reached.set, of_replies=True)
            return case
        marker = marker_of(row.statement, database_of(self.server))
        if fault in LOSES:
            proxy.lose(LOSES[fault], marker, case.reached.set, row.nth)
        else:
            proxy.lose(Lose.NOTHING, marker, case.wait_for_the_server, row.nth)
        return case

    def _outcome(self, case: Case, closed: float) -> Outcome:
        """Look at what came of it, its client being closed."""
        left = self._left(case.proxy, closed + (MOMENT if case.cell.left else SESSIONS_END))
        case.proxy.cut()  # as the server's own keepalive does, in the end
        left_for_ever = self._left(case.proxy, time.monotonic() + SECONDS)
        assert not left_for_ever, f"sessions without a client: {left_for_ever}"
        return Outcome(case.told, case.subject.found(), left)

    def _subject(
        self,
        operation: str,
        proxy: Proxy,
        direct: Locks,
        client: ExitStack,
        timeouts: Timeouts,
        ttl: float,
    ) -> Operation:
        """Return an operation that is about to begin; ``client`` closes its connections."""
        locks = client.enter_context(self.world.locks(proxy.url, timeouts=timeouts))
        engine = impatient_engine(proxy.url, timeouts.socket)
        client.callback(engine.dispose)
        made = (OPERATIONS | WAITING | OF_KINDS)[operation]
        subject = made(Ways(locks, engine, direct, self.onlooker, ttl, timeouts.socket))
        subject.prepare()
        return subject

    def _left(self, proxy: Proxy, deadline: float) -> tuple[str, ...]:
        """Return what is left of the client's sessions on the server at the deadline.

        Behind a pooler the server's sessions are the pooler's, with ports that say nothing of ours.
        """
        while not isinstance(self.server, Pooled):
            left = tuple(
                " ".join(f"{state} {query or ''}".split())[:60]
                for port, state, query in execute(self.url, SESSIONS[database_of(self.server)])
                if port in proxy.ports
            )
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.01)
        return ()


def unexpected(site: Site, fault: Fault, rows: Sequence[Row]) -> list[str]:
    """Let the rows' statements meet a fault; say which outcomes are not as demanded."""
    outcomes = site.meet(fault, rows)
    return [
        f"{row.operation}, {row.statement}: expected {row.cells[fault]}, but {outcome}"
        for row, outcome in zip(rows, outcomes, strict=True)
        if not outcome.fits(row.cells[fault])
    ]


def marker_of(statement: str, kind: str) -> bytes:
    named = {"postgresql": ["PostgreSQL"], "mariadb": ["MariaDB"], "mysql": ["MySQL", "MariaDB"]}
    names = [statement, *(f"{statement} ({one})" for one in named[kind])]
    return next(STATEMENTS[name] for name in names if name in STATEMENTS)


def database_of(server: OwnServer) -> str:
    return server.kind if server.kind in FAMILY else "postgresql"


def name_of(request: bytes) -> str:
    """Name a request by what only its statement contains."""
    for name, marker in STATEMENTS.items():
        if marker in request:
            return name.partition(" (")[0]
    return f"a statement the matrix does not know: {request!r}"


def is_set_up(request: bytes) -> bool:
    """Whether it is of a connection that is being made, which tests/soak/test_found.py breaks; or
    that is being closed."""
    return request == COM_QUIT or any(marker in request for marker in SET_UP)


def is_rollback(request: bytes) -> bool:
    return b"ROLLBACK" in request and len(request) < 64
