"""Real PostgreSQL, whose clock, patience, crashes and failovers are virtual."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled

from dblock import Locks, Timeouts
from dblock.dialects import PostgreSQL
from dblock.dialects.adapter import Answer
from dblock.dialects.postgresql.adapter import Psycopg
from dblock.dialects.postgresql.election import OBSERVED
from dblock.protocol.epoch import consult
from dblock.schema import upgrade
from tests.servers import execute
from tests.simulation.client import Client
from tests.simulation.errors import Lost
from tests.simulation.lending import Catalogue, lending_engine, lost_errors
from tests.simulation.lending import Statement as Lent
from tests.simulation.rates import Taken
from tests.simulation.schedule import LATE, Fault
from tests.simulation.store import Blocked, Store, losable
from tests.simulation.stores.postgresql_backend import (
    Backend,
    Cause,
    Overseer,
    Waits,
)
from tests.simulation.stores.postgresql_lent import LentPsycopg
from tests.simulation.stores.postgresql_server import EPOCH, SimulatedServer, told
from tests.simulation.stores.postgresql_session import Driver
from tests.simulation.stores.postgresql_tables import Tables
from tests.simulation.tables import Committed, Row
from tests.simulation.transport import simulated

#: The longest TTL that has been granted before a run: a pause after a crash is as long.
LONGEST_TTL = 10.0
#: How long who waits to be called does not look by itself, with two before it.
LOOK = 2.7
#: Seconds of a wait before the server looks whether it would never end: its default.
DEADLOCK_TIMEOUT = 1.0
#: Moments this near are one: the clock is a float.
ROUNDED = 1e-9

_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|COMMIT)\b", re.IGNORECASE)
_LISTEN = re.compile(rf"LISTEN (?!{OBSERVED})(\w+)")


class PostgreSQLStore(Store):
    """A database, whose sessions are used one at a time."""

    url = "postgresql+psycopg://"
    database = "postgresql"
    adapter = simulated(Psycopg)
    has = frozenset({"runs", "rows", "lending", "snapshots", "calls", "epochs", "operators"})
    lent = LentPsycopg
    look = LOOK
    ends_sessions = True
    faults = (
        *LATE,
        *(Fault("cut", 0.2), Fault("crash", 9.0), Fault("crash-after", 9.0)),
        *map(Fault, ("promote",) * 3, (0.0, 1.0, 3.0)),
    )

    def __init__(
        self, server: SimulatedServer, *, volatile: bool = False, pooled: bool = False
    ) -> None:
        self.name = f"postgresql{' volatile' * volatile}{' pooled' * pooled}"
        self._server = server
        self._pooled = pooled
        self.keeps = not volatile
        self._database = self.name.replace(" ", "_")
        server.create_database(self._database)
        url = server.url_for(self._database)
        self._durability = "volatile" if volatile else "durable"
        upgrade(url, durability=self._durability)
        self._plain = PostgreSQL(None, "dblock_", Timeouts())
        server.install(self._database)
        # A run begins with rows that are put there as they are.
        execute(url, "ALTER TABLE dblock_epoch ENABLE REPLICA TRIGGER dblock_arrived")
        server.set_clock(0.0)
        server.set_timeline(1)
        with Locks(f"{url}?options=-csearch_path%3Dsim,pg_catalog,public") as locks:
            locks._database.run(consult(locks._database.exchange(), LONGEST_TTL))
        beside = server.connect(self._database, simulated=False)
        self._lost = lost_errors(psycopg)
        self.lending = lending_engine(
            self, url, lambda: server.connect(self._database, simulated=False)
        )
        self._catalogue = Catalogue(server.connect(self._database, simulated=False))
        self._overseer = Overseer(beside)
        self.tables = Tables(beside)
        self._idle: list[Backend] = []
        self._sessions: dict[int, Driver] = {}
        self._opened = self._timeline = 0

    def reset(self) -> None:
        for driver in tuple(self._sessions.values()):
            self.undo(driver)
        self._opened, self._timeline = 0, 1
        usual = "durable" if self.keeps else "volatile"
        if self._durability != usual:
            self.set_durability(usual)
        self._server.set_timeline(1)
        self.tables.reset()

    def open(self, client: Client | None = None) -> Driver:
        if not self._idle:
            self._idle.append(Backend(self._server, self._database, self._overseer.cause))
        backend = self._idle.pop()
        self._opened += 1
        pid = 0 if self._pooled else backend.pid  # a pooler makes one up
        driver = self._sessions[backend.pid] = Driver(self._opened, backend, pid)
        self._tell_sessions()
        return driver

    def _tell_sessions(self) -> None:
        self._server.set_sessions({pid: one.number for pid, one in self._sessions.items()})

    def undo(self, driver: Driver) -> None:
        backend = driver.backend
        if self._sessions.get(backend.pid) is driver:
            del self._sessions[backend.pid]
            self._tell_sessions()
            backend.rest()
            self._idle.append(backend)

    def rows(self) -> dict[str, Row]:
        return self.tables.rows()

    def committed(self) -> Committed:
        rows = self.tables.decoded()
        return Committed(
            {row["id"]: (row["name"], row["fence"]) for row in rows["written"]},
            {row["id"]: row["amount"] for row in rows["stock"]},
            {row["idempotency_key"] for row in rows["dblock_applied"]},
            {(run["lock_name"], run["slot"]): run["exit_status"] for run in rows["dblock_run"]},
            {row["id"]: (row["idempotency_key"], row["result"]) for row in rows["effect"]},
            {row["idempotency_key"]: row["result"] for row in rows["dblock_once"]},
            {row["id"]: (row["name"], row["fence"]) for row in rows["passed"]},
        )

    def limits(self) -> dict[str, int]:
        found = self.tables.decoded()["dblock_value"]
        return {row["lock_name"]: int(row["value"]) for row in found if row["fence"] == 0}

    def rates(self) -> dict[str, Taken]:
        return {
            row["lock_name"]: Taken(-row["fence"] / 1e6 - EPOCH.timestamp(), row["value"])
            for row in self.tables.decoded()["dblock_value"]
            if row["fence"] < 0
        }

    def waiters(self) -> list[tuple[str, str]]:
        rows = sorted(self.tables.decoded()["dblock_waiter"], key=lambda row: row["since"])
        return [(row["id"], row["lock_name"]) for row in rows]

    def closed_until(self) -> float:
        return self.tables.epoch().closed_until

    def longest_pause(self) -> float:
        return self.tables.epoch().longest_ttl

    def epoch(self) -> int:
        return self.tables.epoch().number

    def known_ttl(self) -> tuple[float, float]:
        return self.tables.known_ttl()

    # --- the users' own transactions ---------------------------------------------------------

    def open_lent(self) -> Driver:
        return self.open()

    def lost(self, kind: type[Lost]) -> type[Exception]:
        return self._lost[kind]

    def in_transaction(self, driver: Driver) -> bool:
        return driver.in_transaction

    def locked(self, name: str) -> bool:
        open_ones = any(driver.in_transaction for driver in self._sessions.values())
        return open_ones and self._overseer.locked(name)

    def settings(self, driver: Driver) -> object:
        limits = map(driver.requests.seconds, ("lock_timeout", "statement_timeout"))
        return *limits, driver.requests.get("synchronous_commit")

    def put(self, stock: dict[int, int]) -> None:
        self.tables.put(stock)

    # --- statements --------------------------------------------------------------------------

    def is_local(self, query: Any) -> bool:
        return isinstance(query, Lent) and "pg_catalog.pg_class" in query.sql

    def execute(self, driver: Driver, query: Any) -> Answer:
        lent = isinstance(query, Lent)
        if lent and self.is_local(query):
            return self._catalogue.answer(query)
        listen = _LISTEN.fullmatch(query.sql)
        if listen is not None:
            driver.channel = listen[1]
            return (), -1
        driver.began, driver.wait = self.clock(), None
        driver.requests.begin()
        backend = driver.backend
        if lent and not driver.in_transaction:
            backend.begin(told(self.clock()), snapshot=self.snapshots)
        return self._run(
            driver, query, lambda: backend.execute(query.sql, query.params, binary=not lent)
        )

    def retry(self, driver: Driver, query: Any) -> Answer:
        cause = self._overseer.cause(driver.backend.pid)
        if cause is not None:
            raise self._blocked(driver, cause)
        driver.wait = None
        return self._run(driver, query, driver.backend.go_on)

    def _run(self, driver: Driver, query: Any, run: Callable[[], Answer]) -> Answer:
        self._server.set_clock(self.clock())
        try:
            answer = run()
        except Waits as waits:
            self._heed(driver)
            raise self._blocked(driver, waits.cause) from None
        except Exception:
            self._undone(driver)
            raise
        self._heed(driver)
        if isinstance(query, Lent):
            query.description = driver.backend.description
        driver.transaction = driver.backend.transaction
        if not driver.in_transaction:
            self._ended(driver, query)
        return answer

    def overdue(self, driver: Driver, blocked: Blocked) -> Answer:
        assert driver.wait is not None
        cause, since = driver.wait
        now = self.clock() + ROUNDED
        error: Exception
        if now >= since + driver.requests.seconds("lock_timeout"):
            error = LockNotAvailable("canceling statement due to lock timeout")
        elif now >= driver.began + driver.requests.seconds("statement_timeout"):
            error = QueryCanceled("canceling statement due to statement timeout")
        elif self._overseer.in_cycle(driver.backend.pid):
            error = DeadlockDetected("deadlock detected")
        else:
            raise self._blocked(driver, cause)
        driver.backend.cancel()
        self._undone(driver)
        raise error

    def _blocked(self, driver: Driver, cause: Cause) -> Blocked:
        """Return for how long a statement may wait now."""
        now, requests = self.clock(), driver.requests
        if driver.wait is None or driver.wait[0] != cause:
            driver.wait = cause, now
        since = driver.wait[1]
        until = min(
            since + requests.seconds("lock_timeout"),
            driver.began + requests.seconds("statement_timeout"),
        )
        look = since + DEADLOCK_TIMEOUT
        until = min(look, until) if now + ROUNDED < look else until
        return Blocked(until - now, cause=driver.wait)

    def _heed(self, driver: Driver) -> None:
        """See to what a statement has asked the server for."""
        said, driver.backend.said = driver.backend.said, []
        for what in said:
            match what:
                case ["set", name, value, local]:
                    driver.requests.set(name, value, local=local == "true")
                case ["notify", channel, payload]:
                    driver.requests.notifications.append((channel, payload))
                case ["terminate", pid]:
                    self._terminate(self._sessions[int(pid)])
                case _:
                    raise AssertionError(f"what is that? {what}")

    def _undone(self, driver: Driver) -> None:
        """A statement has failed."""
        driver.backend.said.clear()
        driver.requests.undo()
        driver.transaction = driver.backend.transaction
        if not driver.in_transaction:
            driver.requests.end()

    def _ended(self, driver: Driver, query: Any) -> None:
        """A transaction has ended, with a statement that did not fail."""
        flushed = driver.requests.get("synchronous_commit") != "off"
        notifications = driver.requests.end()
        if driver.backend.status == "ROLLBACK":
            return
        if _WRITES.search(query.sql):
            self.tables.note(flushed)
        for channel, payload in notifications:
            for link in self.links:
                if link.driver.channel == channel or (link.observes and channel == OBSERVED):
                    link.tell(payload)

    def _terminate(self, driver: Driver) -> None:
        for link in tuple(self.links):
            if link.driver is driver:
                link.break_off()

    # --- crashes and failovers ---------------------------------------------------------------

    def losable(self, *, promoted: bool) -> float:
        return losable([commit.flushed for commit in self.tables.history], promoted=promoted)

    def forget(self, lost: int) -> bool:
        return self.tables.crash(lost)

    def set_durability(self, durability: str) -> None:
        """Let leases outlive a crash from now on, or not."""
        statements = self._plain.set_durability(durability)
        self.tables.change(statements, unlogged=durability == "volatile")
        self._durability = durability

    def restore(self) -> None:
        """Put all back from a dump of the beginning, while it runs."""
        self.falls += 1
        self.tables.restore()
        self.note_loss()

    def replicate(self) -> None:
        """Take the place of a server that has published its first rows, and none of later."""
        self.falls += 1
        self.tables.replicate()
        self.note_loss()

    def promote(self, lost: int = 0) -> None:
        self.go_down()
        self._timeline += 1
        self._server.set_timeline(self._timeline)
        if self.tables.fall_back(lost):
            self.note_loss()
