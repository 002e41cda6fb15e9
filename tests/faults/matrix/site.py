"""A server of the matrix's own with one database, and how one cell is run on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from sqlalchemy import NullPool, create_engine

from dblock import Locks, Timeouts
from dblock.schema import upgrade
from tests.faults.matrix.expected import STATEMENTS, Cell, Fault, Row
from tests.faults.matrix.operations import OPERATIONS, Operation, Ways, metadata
from tests.faults.matrix.within import impatient_engine
from tests.faults.proxy import SECONDS, Lose, Proxy, Rule
from tests.servers import MariaDB, OwnServer, PostgreSQL, execute
from tests.support import LONG, MOMENT
from tests.worlds.world import World

KINDS: dict[str, Callable[[], OwnServer]] = {"postgresql": PostgreSQL, "mariadb": MariaDB}

# Deaf and stopped servers are waited for as long as these say; a restart takes its time.
SHORT = Timeouts(connect=1, query=0.5, socket=1)
PATIENT = Timeouts(connect=SECONDS, query=0.5, socket=SECONDS)
TTL = 2.0  # where nobody can be reached, a renewal is tried until it is over
SESSIONS_END = 5.0

SESSIONS = {
    "postgresql": "SELECT client_port, state, query FROM pg_stat_activity "
    "WHERE datname = current_database() AND client_port > 0",
    "mariadb": "SELECT CAST(SUBSTRING_INDEX(host, ':', -1) AS UNSIGNED), command, info "
    "FROM information_schema.processlist WHERE db = database()",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one cell. ``left`` are the client's sessions that were still on the server."""

    told: str
    found: str
    left: tuple[str, ...]
    seconds: float

    def fits(self, cell: Cell) -> bool:
        return self.told in cell.told and self.found in cell.found and bool(self.left) == cell.left

    def __str__(self) -> str:
        text = f"{self.told}; {self.found}"
        return f"{text}; left: {', '.join(self.left)}" if self.left else text


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
            subject = self._subject(operation, proxy, direct, client, SHORT, LONG)
            before = len(proxy.requests)
            subject.told()
            # The user's pool rolls back what it is given back; that is the user's own.
            seen = [request for request in proxy.requests[before:] if not is_rollback(request)]
        return [name_of(request) for request in seen]

    def run(self, row: Row, fault: Fault) -> Outcome:
        """Run one cell; it ends whatever the code under test does."""
        cell, start = row.cells[fault], time.monotonic()
        stopped, restarted = fault is Fault.STOPPED, fault is Fault.RESTARTED
        with Proxy(self.url) as proxy, Locks(self.url) as direct, ExitStack() as client:
            subject = self._subject(
                row.operation,
                proxy,
                direct,
                client,
                PATIENT if restarted else SHORT,
                TTL if stopped else LONG,
            )
            rule = self._put(fault, row, proxy)
            try:
                told, ended = in_thread(subject.told)
                assert rule.done.wait(SECONDS), "the statement was not sent"
            finally:
                self.server.resume()
            if not ended.is_set():
                proxy.cut()
                assert ended.wait(SECONDS)
            client.close()
            left = self._left(proxy, MOMENT if cell.left else SESSIONS_END)
            proxy.cut()  # as the server's own keepalive does, in the end
            assert not self._left(proxy, SECONDS), "sessions without a client"
            found = subject.found()
        return Outcome(told, found, left, time.monotonic() - start)

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
        engine = impatient_engine(proxy.url)
        client.callback(engine.dispose)
        subject = OPERATIONS[operation](Ways(locks, engine, direct, self.onlooker, ttl))
        subject.prepare()
        return subject

    def _put(self, fault: Fault, row: Row, proxy: Proxy) -> Rule:
        marker = marker_of(row.statement, self.server.kind)
        match fault:
            case Fault.REQUEST:
                return proxy.lose(Lose.REQUEST, marker, nth=row.nth)
            case Fault.REPLY:
                return proxy.lose(Lose.REPLY, marker, nth=row.nth)
            case Fault.RESET:
                return proxy.lose(Lose.CONNECTIONS, marker, nth=row.nth)
            case Fault.DEAF:
                return proxy.lose(Lose.HEARING, marker, nth=row.nth)
            case Fault.STOPPED:
                return proxy.lose(Lose.NOTHING, marker, self.server.pause, row.nth)
            case Fault.RESTARTED:
                return proxy.lose(Lose.NOTHING, marker, self._crash, row.nth)

    def _crash(self) -> None:
        self.server.kill()
        self.server.start()

    def _left(self, proxy: Proxy, seconds: float) -> tuple[str, ...]:
        """Return what is left of the client's sessions on the server after so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            left = tuple(
                " ".join(f"{state} {query or ''}".split())[:60]
                for port, state, query in execute(self.url, SESSIONS[self.server.kind])
                if port in proxy.ports
            )
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.01)


def in_thread(function: Callable[[], str]) -> tuple[str, threading.Event]:
    """Return what it returns, or that it did not within the tests' patience."""
    outcome, ended = ["never ended"], threading.Event()

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(f"{type(error).__name__}: {error}")
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    ended.wait(SECONDS)
    return outcome[-1], ended


def marker_of(statement: str, kind: str) -> bytes:
    named = {"postgresql": "PostgreSQL", "mariadb": "MariaDB"}[kind]
    return STATEMENTS.get(statement) or STATEMENTS[f"{statement} ({named})"]


def name_of(request: bytes) -> str:
    """Name a request by what only its statement contains."""
    for name, marker in STATEMENTS.items():
        if marker in request:
            return name.partition(" (")[0]
    return f"a statement the matrix does not know: {request!r}"


def is_rollback(request: bytes) -> bool:
    return b"ROLLBACK" in request and len(request) < 64
