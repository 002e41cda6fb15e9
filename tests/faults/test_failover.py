"""What a failover, a shutdown or a full server says, by its codes, and what dblock makes of it.

A statement that was cut off is settled, and the caller hears nothing of it. While nobody can
serve the caller is told so; afterwards everything goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from dblock import LockLost, Locks, OutcomeUnknown, Timeouts, Unavailable
from dblock.holding.keeper import keeper
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.steps import Reply
from dblock.protocol.term import Term
from dblock.schema import upgrade
from dblock.system import clock
from tests.conftest import Database, NewDatabase, OwnServers
from tests.servers import FAMILY, OWN, MariaDB, OwnServer, PgBouncer, PostgreSQL, execute
from tests.support import LONG, SECONDS, Threads, eventually

Code = str | int | None  # None: psycopg has no code for a connection that broke or was not made


def code_of(error: BaseException | None) -> Code:
    assert error is not None
    number = error.args[0] if error.args else None
    return number if isinstance(number, int) else getattr(error, "sqlstate", None)


class Troubles:
    """Every trouble that a statement of these Locks meets: the driver's code, and its fault."""

    def __init__(self, locks: Locks, patch: pytest.MonkeyPatch) -> None:
        self.seen: set[tuple[Code, Fault]] = set()
        driver: Any = locks._database.run.__self__  # type: ignore[attr-defined]
        self._run: Callable[..., Reply[Any]] = driver._run
        patch.setattr(driver, "_run", self._noting)

    def _noting(self, *args: Any) -> Reply[Any]:
        try:
            return self._run(*args)
        except StatementError as failure:
            self.seen.add((code_of(failure.__cause__), failure.fault))
            raise


# --- a statement that is cut off ---------------------------------------------------------------

BLOCK = {
    "postgresql": ("BEGIN", "LOCK TABLE dblock_lock IN ACCESS EXCLUSIVE MODE"),
    **dict.fromkeys(FAMILY, ("LOCK TABLES dblock_lock WRITE",)),
}
WAITING = {
    "postgresql": "SELECT pid FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database()",
    **dict.fromkeys(
        FAMILY,
        "SELECT id FROM information_schema.processlist "
        "WHERE state = 'Waiting for table metadata lock' AND db = database()",
    ),
}


@dataclass(frozen=True)
class Incident:
    """Who is in it: a statement that waits in its ``session`` for a table that ``blocker`` has."""

    db: Database
    blocker: Connection
    session: int
    troubles: Troubles

    def order(self, statement: str) -> None:
        execute(self.db.url, statement.format(self.session))

    def crash(self) -> None:
        """Kill a session that is not ours: PostgreSQL ends all of them and recovers."""
        os.kill(self._backend(), signal.SIGKILL)

    def restart(self) -> None:
        assert self.db.server is not None
        self.db.server.restart()

    def restart_with_the_blocker_last(self) -> None:
        """Else its table may become free first, and the statement is through before it is cut."""
        assert isinstance(self.db.server, OwnServer)
        blocker = self._backend()
        os.kill(blocker, signal.SIGSTOP)
        self.db.server.begin_to_stop()
        eventually(lambda: bool(self.troubles.seen))
        os.kill(blocker, signal.SIGCONT)
        self.db.server.restart()

    def _backend(self) -> int:
        ((pid,),) = self.blocker.exec_driver_sql("SELECT pg_backend_pid()")
        return int(pid)

    def time_out(self) -> None:
        eventually(lambda: bool(self.troubles.seen))


@dataclass(frozen=True)
class Cut:
    """``alone``: it needs a server of its own. ``query`` and ``socket``: how long the server tries,
    by itself, and the client. ``of_renewal``: what a renewal meets, if it is something else."""

    kind: str
    what: str
    act: Callable[[Incident], None]
    code: Code
    fault: Fault
    alone: bool = False
    query: float = 10.0
    socket: float = SECONDS
    of_renewal: tuple[Code, Fault] | None = None

    def met_by(self, action: str) -> tuple[Code, Fault]:
        of_renewal = self.of_renewal if action == "renew" else None
        return of_renewal or (self.code, self.fault)


def order(statement: str) -> Callable[[Incident], None]:
    return lambda incident: incident.order(statement)


# MariaDB's 1053 and 1927 are for whoever still listens: it closes the socket first.
CUTS = [
    Cut("postgresql", "terminated", order("SELECT pg_terminate_backend({})"), "57P01", Fault.DISCONNECTED),  # noqa: E501 - a table
    Cut("postgresql", "canceled", order("SELECT pg_cancel_backend({})"), "57014", Fault.CANCELED),
    Cut("postgresql", "timed out", Incident.time_out, "57014", Fault.CANCELED, query=0.2),
    Cut("postgresql", "restarted", Incident.restart_with_the_blocker_last, "57P01", Fault.DISCONNECTED, alone=True),  # noqa: E501 - a table
    Cut("postgresql", "crashed", Incident.crash, None, Fault.DISCONNECTED, alone=True),
    Cut("mariadb", "killed", order("KILL {}"), 2013, Fault.DISCONNECTED),
    Cut("mariadb", "interrupted", order("KILL QUERY {}"), 1317, Fault.CANCELED),
    Cut("mariadb", "timed out", Incident.time_out, 1969, Fault.CANCELED, query=0.2),
    Cut("mariadb", "restarted", Incident.restart, 2013, Fault.DISCONNECTED, alone=True),
    Cut("mysql", "killed", order("KILL {}"), 2013, Fault.DISCONNECTED),
    Cut("mysql", "interrupted", order("KILL QUERY {}"), 1317, Fault.CANCELED),
    # Its limit is for reads alone, with which a renewal begins. Else the client gives up.
    Cut("mysql", "timed out", Incident.time_out, 2013, Fault.DISCONNECTED, query=0.2, socket=2.0, of_renewal=(3024, Fault.CANCELED)),  # noqa: E501
    # It ends the statements first, and the connections afterwards.
    Cut("mysql", "restarted", Incident.restart, 1317, Fault.CANCELED, alone=True),
]  # fmt: skip


def a_waiting_session(db: Database) -> int:
    """Its statement may have timed out, and been sent again, by the next look."""
    found: list[int] = []

    def look() -> bool:
        found.extend(session for (session,) in execute(db.url, WAITING[db.kind]))
        return bool(found)

    eventually(look)
    return found[0]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: f"{cut.kind} {cut.what}")
def test_a_statement_that_is_cut_off_is_settled(
    cut: Cut,
    new_database: NewDatabase,
    own_server: OwnServers,
    threads: Threads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = own_server(OWN[cut.kind]) if cut.alone else None
    db = new_database(cut.kind, migrated=True, server=server)
    engine = create_engine(db.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    patience = Timeouts(connect=5, query=cut.query, socket=cut.socket)
    for action in ("acquire", "renew", "release"):
        with Locks(db.url, timeouts=patience) as locks:
            lease = locks.lease(action, ttl=10 * LONG)
            if action == "acquire":
                assert locks.list() == []  # it is connected
            else:
                assert lease.acquire()
            troubles = Troubles(locks, monkeypatch)
            with engine.connect() as blocker:
                for statement in BLOCK[cut.kind]:
                    blocker.exec_driver_sql(statement)
                doing = threads.start(getattr(lease, action))
                session = a_waiting_session(db)
                cut.act(Incident(db, blocker, session, troubles))
                blocker.invalidate()
            assert doing.result(SECONDS) in (True, None)
            assert cut.met_by(action) in troubles.seen
            if action != "release":
                assert lease.fence == locks.show(action).fence
                lease.renew()
                lease.release()
            assert not lease.locked()


# --- a server that cannot serve ----------------------------------------------------------------

APP = "app"  # a role without privileges beyond its tables: the others have connections in reserve


@contextmanager
def setting(server: OwnServer, on: str, off: str) -> Iterator[None]:
    execute(server.url, on)
    yield
    execute(server.url, off, **WRITER[server.kind])


# Sets the server to rights even when its own settings say that nobody may.
WRITER: dict[str, dict[str, str]] = {
    "postgresql": {"options": "-c default_transaction_read_only=off"},
    **{kind: {} for kind in FAMILY},
}


@contextmanager
def read_only_postgresql(server: OwnServer, url: str) -> Iterator[None]:
    alter = f'ALTER DATABASE "{make_url(url).database}" SET default_transaction_read_only = '
    with setting(server, alter + "on", alter + "off"):
        yield


@contextmanager
def shutting_down(server: OwnServer, url: str) -> Iterator[None]:
    """A shutdown that waits for a client to go, and lets no other come."""
    engine = create_engine(server.url, poolclass=NullPool)
    with engine.connect():
        os.kill(server.pids[0], signal.SIGTERM)
        eventually(lambda: "shutting down" in refusal(url))
        yield
    eventually(lambda: not server.running)
    server.start()


@contextmanager
def full(server: OwnServer, url: str) -> Iterator[None]:
    """Others have all the connections."""
    engine = create_engine(url, poolclass=NullPool)
    with ExitStack() as stack:
        with contextlib.suppress(DBAPIError):
            while True:
                stack.enter_context(engine.connect())
        yield


def refusal(url: str) -> str:
    """What a new client is told."""
    try:
        execute(url, "SELECT 1", connect_timeout=5)
    except DBAPIError as error:
        return str(error)
    return ""


def globally(variable: str) -> Callable[[OwnServer, str], AbstractContextManager[None]]:
    set_global = f"SET GLOBAL {variable} = "
    return lambda server, url: setting(server, set_global + "1", set_global + "0")


@dataclass(frozen=True)
class Away:
    kind: str
    what: str
    state: Callable[[OwnServer, str], AbstractContextManager[None]]
    code: Code
    fault: Fault
    says: str


AWAY = [
    Away("postgresql", "read-only", read_only_postgresql, "25006", Fault.READ_ONLY, "read-only"),
    Away("postgresql", "shutting down", shutting_down, None, Fault.UNREACHABLE, "shutting down"),  # 57P03  # noqa: E501
    Away("postgresql", "full", full, None, Fault.UNREACHABLE, "too many connections"),  # 53300
    Away("mariadb", "--read-only", globally("read_only"), 1290, Fault.READ_ONLY, "read-only"),
    Away("mariadb", "transactions read-only", globally("tx_read_only"), 1792, Fault.READ_ONLY, "READ ONLY"),  # noqa: E501
    Away("mariadb", "full", full, 1040, Fault.UNREACHABLE, "Too many connections"),
    Away("mysql", "--read-only", globally("read_only"), 1290, Fault.READ_ONLY, "read-only"),
    Away("mysql", "transactions read-only", globally("transaction_read_only"), 1792, Fault.READ_ONLY, "READ ONLY"),  # noqa: E501
    Away("mysql", "full", full, 1040, Fault.UNREACHABLE, "Too many connections"),
]  # fmt: skip


def as_app(server: OwnServer, db: Database) -> str:
    """The database's URL for a role that may have few connections, and writes only if allowed."""
    name = make_url(db.url).database
    if server.kind == "postgresql":
        execute(
            db.url,
            f"CREATE ROLE {APP} LOGIN CONNECTION LIMIT 10",
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {APP}",
        )
    else:
        execute(
            db.url,
            "SET GLOBAL max_connections = 12",
            f"CREATE USER {APP}",
            f"GRANT ALL ON {name}.* TO {APP}",
        )
    return make_url(db.url).set(username=APP).render_as_string(hide_password=False)


@pytest.mark.parametrize("away", AWAY, ids=lambda away: f"{away.kind} {away.what}")
def test_a_server_that_cannot_serve(
    away: Away,
    new_database: NewDatabase,
    own_server: OwnServers,
    threads: Threads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = own_server(OWN[away.kind])
    db = new_database(away.kind, migrated=True, server=server)
    url = as_app(server, db)
    with Locks(url, timeouts=Timeouts(connect=LONG, query=1, socket=2)) as locks:
        kept, lost = locks.lease("kept", ttl=20 * LONG), locks.lease("lost", ttl=20 * LONG)
        troubles = Troubles(locks, monkeypatch)
        assert kept.acquire()
        assert lost.acquire()
        locks._database.connections.clear()  # a failover ends them; a new process has none
        hold = lost._holds.find()
        assert hold is not None
        with away.state(server, url):
            keeper.moved(hold, Term(clock.now(), 1.0))  # as if it had been held for long
            renewing = threads.attempt(lost.renew)
            refused: list[Future[Any]] = [threads.attempt(kept.release)]
            ways: list[dict[str, Any]] = [{"blocking": False}, {"timeout": 0.5}, {}]
            for number, way in enumerate(ways):
                lease = locks.lease(f"report {number}")
                refused.append(threads.attempt(lease.acquire, **way))
            for outcome in refused:
                with pytest.raises(Unavailable, match=away.says) as told:
                    outcome.result(SECONDS)
                assert code_of(told.value.__cause__) == away.code
            assert not kept.held
            with pytest.raises(LockLost) as ran_out:
                renewing.result(SECONDS)
            assert ran_out.value.reason == "unreachable"
            assert troubles.seen == {(away.code, away.fault)}
        kept.release()
        assert not kept.locked()
        assert locks.lease("report").acquire(timeout=SECONDS)


def test_a_pooler_whose_server_is_gone(
    new_database: NewDatabase, own_server: OwnServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pooler answers in its place, in the end, with a protocol violation."""
    server = own_server(PostgreSQL)
    pooler = own_server(lambda: PgBouncer(server))
    server.create_database("app")
    upgrade(server.url_for("app"))
    url, patience = pooler.url_for("app"), Timeouts(connect=2, query=1, socket=2)
    with Locks(url, timeouts=patience) as locks:
        kept = locks.lease("kept", ttl=20 * LONG)
        assert kept.acquire()
        troubles = Troubles(locks, monkeypatch)
        server.stop()
        with pytest.raises((Unavailable, OutcomeUnknown)):
            locks.lease("report").acquire()
        with pytest.raises((Unavailable, OutcomeUnknown)):
            kept.release()
        assert "08P01" in {code for code, _ in troubles.seen}
        assert {fault for _, fault in troubles.seen} <= {Fault.DISCONNECTED, Fault.UNREACHABLE}
        server.start()
        eventually(lambda: not refusal(url))
        kept.release()
        assert locks.lease("report").acquire(timeout=SECONDS)


# --- a user's transaction whose session the server ended ---------------------------------------


@pytest.mark.parametrize(
    ("kind", "limit", "code"),
    [
        ("postgresql", "idle_session_timeout = '1s'", "57P05"),
        ("postgresql", "idle_in_transaction_session_timeout = '1s'", "25P03"),
        ("mariadb", "wait_timeout = 1", 2006),
        ("mariadb", "idle_transaction_timeout = 1", 2006),
        # The server says why before it ends the session (4031); PyMySQL does not pass that on.
        ("mysql", "wait_timeout = 1", 2013),
    ],
)
def test_a_users_session_that_was_idle_too_long(
    kind: str, limit: str, code: Code, new_database: NewDatabase
) -> None:
    """The row lock it is to have is not had, and the lease it is to prove is still held."""
    db = new_database(kind, migrated=True)
    engine = create_engine(db.url, poolclass=NullPool)
    mine = "SELECT " + ("CONNECTION_ID()" if kind in FAMILY else "pg_backend_pid()")
    sessions = {
        "postgresql": "SELECT 1 FROM pg_stat_activity WHERE pid = {}",
        **dict.fromkeys(FAMILY, "SELECT 1 FROM information_schema.processlist WHERE id = {}"),
    }[kind]
    with Locks(db.url) as locks, locks.lease("report", ttl=LONG) as lease:

        def guard(connection: Connection) -> None:
            with lease.guard(connection):
                pytest.fail("the body was run")

        uses: list[Callable[[Connection], object]] = [
            lambda connection: locks.row("order", on=connection).acquire(),
            guard,
        ]
        with ExitStack() as stack:
            connections = [stack.enter_context(engine.connect()) for _ in uses]
            ids = [connection.exec_driver_sql(mine).scalar_one() for connection in connections]
            for connection in connections:
                connection.exec_driver_sql(f"SET SESSION {limit}")
                connection.commit()
                if "transaction" in limit:
                    connection.exec_driver_sql("SELECT * FROM dblock_lock")
            eventually(lambda: not any(execute(db.url, sessions.format(id)) for id in ids))
            for use, connection in zip(uses, connections, strict=True):
                with pytest.raises(Unavailable, match="transaction's connection broke") as caught:
                    use(connection)
                assert code_of(caught.value.__cause__) == code
        lease.check()
        with locks.row("order", wait=0):
            pass


def test_an_idle_row_lock_outlives_the_servers_patience(
    new_database: NewDatabase, own_server: OwnServers
) -> None:
    """Its wait_timeout is for forgotten clients; a row lock of dblock's own is none."""
    server = own_server(MariaDB)
    db = new_database("mariadb", migrated=True, server=server)
    execute(server.url, "SET GLOBAL wait_timeout = 1")
    engine = create_engine(db.url, poolclass=NullPool)
    alive = "SELECT 1 FROM information_schema.processlist WHERE id = {}"
    with Locks(db.url) as locks, locks.row("order") as row, engine.connect() as yardstick:
        session = yardstick.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
        eventually(lambda: not execute(db.url, alive.format(session)))
        yardstick.invalidate()
        row.check()
