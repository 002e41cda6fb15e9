"""Real MariaDB or MySQL, whose clock and patience are virtual: a server of the simulation's own.

What a statement waits for is asked of the server itself, where that is told at once: the InnoDB
monitor knows who has got a row before the one who gave it away has an answer, ``IS_USED_LOCK`` the
same for user locks. Nothing is purged during a run, as that would come at some moment of real time.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from dblock import Timeouts
from dblock.dialects.adapter import Adapter, Answer
from dblock.dialects.query import Query
from dblock.schema import upgrade
from tests.servers.mysql_base import OwnFamily
from tests.simulation.client import Client
from tests.simulation.errors import Lost
from tests.simulation.lending import Catalogue, lending_engine, lost_errors
from tests.simulation.lending import Statement as Lent
from tests.simulation.loop import Loop
from tests.simulation.rates import Taken
from tests.simulation.schedule import LATE, Fault, Schedule
from tests.simulation.store import Blocked, Pending, Store
from tests.simulation.stores.innodb_session import Driver, For, Wait
from tests.simulation.stores.innodb_statements import ENDLESS, EPOCH, Statement, function_of
from tests.simulation.tables import USERS, Committed, Row
from tests.simulation.transport import Simulated


class Bounded(Simulated):
    """An adapter whose bounds of a borrowed connection are its link's."""

    @contextmanager
    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> Iterator[None]:
        link = self.client.link(connection)
        before = link.bound
        if within is not None:
            link.bound = within
        try:
            yield
        finally:
            link.bound = before


_DATABASE, _USER = "simulated", "client"
_EPOCH = int(datetime.fromisoformat(f"{EPOCH}+00:00").timestamp())
_TABLES = (
    *(f"dblock_{name}" for name in ("lock", "guard", "waiter", "run", "applied", "once", "value")),
    *(table.name for table in USERS.sorted_tables),
)
#: Seconds of the real clock after which the server hangs.
HANGS = 60
#: And within which a session ends that was killed.
_ENDS = 5
#: Seconds after which the server looks again whether somebody is still there who waits for a lock.
_NOTICES = 1.0
_SESSIONS = "LIST OF TRANSACTIONS FOR EACH SESSION:"
_WAITING = re.compile(r"^LOCK WAIT .*\nM\w+ thread id (\d+),", re.MULTILINE)
_BUSY = 1205
OPTIONS = (
    f"--innodb-lock-wait-timeout={ENDLESS}",
    "--innodb-flush-log-at-trx-commit=0",  # its crashes are simulated
    "--innodb-flush-method=nosync",
)


class InnoDBStore(Store):
    """A database, whose sessions tell the loop's time."""

    url = "mysql+pymysql://"
    faults = (*LATE, Fault("cut", 0.2))
    #: The table of the sessions.
    processes = "information_schema.processlist"
    # A user's transaction sees what there was when it began: that is the usual level here.
    has = frozenset({"runs", "rows", "lending", "snapshots", "gates"})

    #: What makes its server.
    server: Callable[[Sequence[str]], OwnFamily]
    #: The production adapter, which sends statements over a session.
    plain: type[Adapter]
    #: The SQL of the virtual clock, that of what a statement could leave behind in a session, and
    #: of the seconds that a session's statements may take, and wait for rows.
    now: str
    left_behind: str
    limits_of_session: str
    #: Makes the limits of a session endless, whose wait for rows is a parameter.
    without_limits: str
    #: The error of a statement that takes longer than it may.
    too_long: tuple[int, str]
    #: The code of NOWAIT's error.
    at_once = _BUSY

    def __init__(self, folder: Path) -> None:
        self._server = type(self).server(OPTIONS)
        self._server.start()
        self._server.create_database(_DATABASE)
        url = self._server.url_for(_DATABASE)
        upgrade(url)
        self.idle: list[Driver] = []
        self._sessions: dict[int, Driver] = {}
        self._touched: set[str] = set()
        self.direct = self.plain(Timeouts())
        options = {"port": self._server.port, "database": _DATABASE, "ssl_disabled": True}
        options |= {"read_timeout": HANGS, "write_timeout": HANGS}
        options["client_flag"] = CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS
        self._options = {"host": "127.0.0.1", "user": _USER, **options}
        self._admin = self.connect()
        self._past = self.connect()
        self._ask(f"CREATE USER {_USER}")
        self._ask(f"GRANT ALL ON *.* TO {_USER}")
        self._ask(function_of(self.now))
        self._lost = lost_errors(pymysql)
        self.begin(Loop(Schedule()))
        self.lending = lending_engine(self, url)
        self._catalogue = Catalogue(self._admin)

    def close(self) -> None:
        """End the server."""
        self._server.close()

    def reset(self) -> None:
        for driver in self.sessions:
            self.undo(driver)
        # A purge changes what can be locked, at whatever moment: so it ends at this one.
        with self._past.cursor() as cursor:
            cursor.execute("COMMIT")
            for table in sorted(self._touched):
                self._ask(f"TRUNCATE {table}")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        self._touched.clear()

    # --- what each of them does its own way ---------------------------------------------------

    @abstractmethod
    def setting(self, now: int) -> str:
        """Return the SQL that sets the virtual clock to so many microseconds."""

    @abstractmethod
    def virtual(self, sql: str) -> Sequence[Statement]:
        """Return what to send in the place of what is asked for: a packet's statements."""

    def parts(self, sql: bytes) -> Sequence[bytes]:
        """Return a packet's statements, as they are sent."""
        return [sql]

    def joined(self, statements: Sequence[Statement]) -> str:
        """Return a packet of statements."""
        (one,) = statements
        return one.sql

    def send(self, driver: Driver, query: Query[Any]) -> Answer:
        """Have a session's server carry a statement out, or a packet."""
        return self.direct.send(driver, query)

    def end_all(self, user: str) -> None:
        """End all sessions of a user's."""
        self._ask(f"KILL CONNECTION USER {user}")

    def settled(self) -> bool:
        """Whether all that wait for rows go on waiting, whatever the server does by itself."""
        return True

    def moment(self) -> bytes:
        """Return what tells a session, and all that wait, the time."""
        # A half more, since a number of seconds is cut off to microseconds.
        now = round(self.clock() * 1e6)
        seconds, rest = divmod(now, 1_000_000)
        stamp = f"{_EPOCH + seconds}.{rest:06}5"
        return f"SET GLOBAL {self.setting(now)}, SESSION timestamp = {stamp};".encode()

    # --- sessions ----------------------------------------------------------------------------

    @property
    def sessions(self) -> tuple[Driver, ...]:
        """The clients' sessions that there are."""
        return tuple(self._sessions.values())

    def connect(self) -> pymysql.connections.Connection:
        """Return a connection outside of the simulation."""
        return pymysql.connect(**{**self._options, "user": "root", "autocommit": True})

    def open(self, client: Client | None = None) -> Driver:
        driver = self.idle.pop() if self.idle else Driver(self, **self._options)
        self._sessions[driver.id] = driver
        return driver

    def undo(self, driver: Driver) -> None:
        if self._sessions.pop(driver.id, None) is None:
            return
        if self.loop.over and driver.wait is None:
            driver.renew()
            self.idle.append(driver)
            return
        with suppress(pymysql.Connection.Error):  # it has just gone by itself
            self._ask("KILL CONNECTION %s", driver.id)
        self._await_end("id = %s", driver.id)
        driver.abandon()

    def _await_end(self, which: str, *params: Any) -> None:
        """Wait until sessions have gone: what they had is free then."""
        until = time.monotonic() + _ENDS
        while self._ask(f"SELECT 1 FROM {self.processes} WHERE {which}", *params):
            assert time.monotonic() < until, "a session was not ended"

    def end_session(self, driver: Driver, error: BaseException | None = None) -> None:
        """A session ends at once where it was ended; else when its statement is over.

        For so long nobody looks whether the client is still there; at a user lock every second.
        """
        pending = next((one for one in self.pending if one.driver is driver), None)
        if pending is None or error is not None or self.loop.over:
            super().end_session(driver, error)
            return
        pending.then = lambda answer: self.end_session(driver)
        wait = driver.wait
        assert wait is not None
        if wait.for_ is For.LOCK:
            seconds = _NOTICES - (self.clock() - wait.since) % _NOTICES
            label = self.loop.label("server.notices")
            self.loop.at(seconds / self.rate, label, lambda: self._notice(pending))

    def _notice(self, pending: Pending) -> None:
        if pending in self.pending:
            super().end_session(pending.driver)

    def _kill(self, driver: Driver) -> None:
        """A session has been ended by another."""
        for link in tuple(self.links):
            if link.driver is driver:
                link.break_off()
        self.end_session(driver, Lost("connection was killed"))  # where it has no link any more

    def go_down(self) -> None:
        # All at once, for nobody may be let go on by the end of another.
        self.end_all(_USER)
        self._await_end("user = %s", _USER)
        for driver in (*self.idle, *self._sessions.values()):
            driver.abandon()
        self.idle.clear()
        self._sessions.clear()
        super().go_down()

    # --- statements --------------------------------------------------------------------------

    def is_local(self, query: Any) -> bool:
        return isinstance(query, Lent) and query.kind == "show"

    def execute(self, driver: Driver, query: Any) -> Answer:
        if self.is_local(query):
            return self._catalogue.answer(query)
        statements = self.virtual(query.sql)
        self._touched.update(table for table in _TABLES if table in query.sql)
        driver.asked = query
        sent: Query[Any] = Query(self.joined(statements), query.params)
        outcome = driver.begin(statements, query.params, lambda: self.send(driver, sent))
        return self._told(driver, outcome)

    def _told(self, driver: Driver, outcome: Answer | Wait) -> Answer:
        """Return an answer, with what it changes; raise Blocked where it is none yet."""
        if isinstance(outcome, Wait):
            raise outcome.blocked
        asked: Any = driver.asked
        if isinstance(asked, Lent):
            asked.description = driver.description
        statements = self.virtual(asked.sql)
        if any(one.sets for one in statements):
            self._take_limits(driver)
        if any(one.kills for one in statements) and outcome[0]:
            ended = self._sessions.get(asked.params["number"])
            if ended is not None:
                self._await_end("id = %s", ended.id)
                self._kill(ended)
        return outcome

    def _take_limits(self, driver: Driver) -> None:
        """Take a session's limits over from the server."""
        asked: Query[Any] = Query(self.limits_of_session, ())
        (longest, for_rows), *_ = self.direct.send(driver, asked)[0]
        if longest:
            driver.longest = float(longest)
        if for_rows != ENDLESS:
            driver.for_rows = float(for_rows)
        endless = ENDLESS if for_rows else 0
        self.direct.send(driver, Query(self.without_limits, (endless,)))

    def waits(self, driver: Driver) -> Wait | None:
        """Return what a session waits for, if it does: to be asked again otherwise."""
        statement, now = driver.statement, self.clock()
        longest = statement.longest or (driver.longest if statement.limited else 0)
        longest = (longest or inf) - (now - driver.began)
        if self._waits_for_row(driver) and self.settled():
            own = driver.for_rows if statement.for_rows is None else statement.for_rows
            if statement.compound and own < longest:
                raise NotImplementedError("a handler in it would see the end of the wait")
            error = self._error(own < longest)
            return Wait(For.ROW, Blocked(min(own, longest), error, object()), now)
        state = f"SELECT state FROM {self.processes} WHERE id = %s"
        at_lock = statement.lock and self._ask(state, driver.id) == (("User lock",),)
        if at_lock and self._waits_for_lock(driver):  # it may just not have noticed that it has it
            own = float(self._ask(f"SELECT {statement.for_lock}", driver.params)[0][0])
            blocked = Blocked(min(own, longest), self._error(), object())
            return Wait(For.LOCK, blocked, now, refused=own < longest)
        return None

    def _waits_for_row(self, driver: Driver) -> bool:
        return driver.id in self.at_rows()

    def at_rows(self) -> set[int]:
        """Return the sessions that wait for rows."""
        ((_, _, told),) = self._ask("SHOW ENGINE INNODB STATUS")
        _, _, sessions = told.partition(_SESSIONS)  # before them comes the latest deadlock
        return set(map(int, _WAITING.findall(sessions)))

    def _waits_for_lock(self, driver: Driver) -> bool:
        ((holder,),) = self._ask(f"SELECT IS_USED_LOCK({driver.statement.lock})", driver.params)
        return bool(holder != driver.id)

    def turn(self, driver: Driver) -> Wait:
        """Let the next statement of a packet begin at a moment of its own."""
        if not driver.in_transaction:  # what was done so far is seen
            self._carried_out(driver, driver.asked)
        wait = Wait(For.TURN, Blocked(inf, cause=object()), self.clock())
        link = next((link for link in self.links if link.driver is driver), None)
        whose = link.actor.name if link is not None and link.actor is not None else "server"

        def come() -> None:
            wait.come = True
            self.go_on()

        self.loop.at(0.0, self.loop.label(f"{whose}.then"), come)
        return wait

    def retry(self, driver: Driver, query: Any) -> Answer:
        wait = driver.wait
        if wait is None:  # it goes on just now, and has let others go on
            raise Blocked(inf)
        if wait.for_ is For.TURN:
            waits = not wait.come
        elif wait.for_ is For.ROW:
            waits = self._waits_for_row(driver)
        else:
            waits = self._waits_for_lock(driver)
        if waits:
            raise wait.blocked
        return self._told(driver, driver.go_on())

    def overdue(self, driver: Driver, blocked: Blocked) -> Answer:
        wait = driver.wait
        assert wait is not None
        self._ask("KILL QUERY %s", driver.id)
        return self._told(driver, driver.go_on(ended=wait))

    def _error(self, busy: bool = False) -> Exception:
        """Return the error at the end of a wait for a row, or of a statement's own time."""
        told = (_BUSY, _LATE) if busy else self.too_long
        error: Exception = pymysql.Connection.OperationalError(*told)
        return error

    def tell(self, sql: str) -> None:
        """Have a packet carried out from outside of the simulation."""
        with self._admin.cursor() as cursor:
            cursor.execute(sql)

    def _ask(self, sql: str, *params: Any) -> Any:
        """Ask the server something from outside of the simulation."""
        with self._admin.cursor() as cursor:
            cursor.execute(sql, params[0] if params and isinstance(params[0], dict) else params)
            return cursor.fetchall()

    def rows(self) -> dict[str, Row]:
        return {
            name.decode(): Row(
                token,
                fence,
                None if expires is None else expires / 1e6,
                tuple(waiters.split(",")) if waiters else (),
                readers,
            )
            for name, token, fence, expires, waiters, readers in self._ask(_ROWS)
        }

    def committed(self) -> Committed:
        ask = self._ask
        runs = ask("SELECT lock_name, slot, exit_status FROM dblock_run")
        return Committed(
            {id: (name, fence) for id, name, fence in ask("SELECT id, name, fence FROM written")},
            dict(ask("SELECT id, amount FROM stock")),
            {key.decode() for (key,) in ask("SELECT idempotency_key FROM dblock_applied")},
            {(name.decode(), slot.decode()): status for name, slot, status in runs},
            {id: (key, n) for id, key, n in ask("SELECT id, idempotency_key, result FROM effect")},
            dict(ask("SELECT CONVERT(idempotency_key USING utf8mb4), result FROM dblock_once")),
            {id: (name, fence) for id, name, fence in ask("SELECT id, name, fence FROM passed")},
        )

    def limits(self) -> dict[str, int]:
        found = self._ask("SELECT lock_name, value FROM dblock_value WHERE fence = 0")
        return {name.decode(): int(limit) for name, limit in found}

    def rates(self) -> dict[str, Taken]:
        found = self._ask("SELECT lock_name, fence, value FROM dblock_value WHERE fence < 0")
        return {name.decode(): Taken(-fence / 1e6 - _EPOCH, mark) for name, fence, mark in found}

    def waiters(self) -> list[tuple[str, str]]:
        found = self._ask("SELECT id, lock_name FROM dblock_waiter ORDER BY since, id")
        return [(id, name.decode()) for id, name in found]

    # --- the users' own transactions ---------------------------------------------------------

    def open_lent(self) -> Driver:
        return self.open()

    def lost(self, kind: type[Lost]) -> type[Exception]:
        return self._lost[kind]

    def in_transaction(self, driver: Driver) -> bool:
        return driver.in_transaction

    def locked(self, name: str) -> bool:
        if all(one.get_autocommit() and not one.in_transaction for one in self.sessions):
            return False
        try:
            self._ask(_TAKES, name.encode())
        except pymysql.Connection.OperationalError as error:
            if error.args[0] != self.at_once:
                raise
            return True
        return False

    def settings(self, driver: Driver) -> object:
        if driver.wait is None and driver.id in self._sessions:  # else it cannot be asked
            driver.settings = self.direct.send(driver, Query(self.left_behind, ()))[0]
        return driver.settings, driver.longest, driver.for_rows

    def put(self, stock: dict[int, int]) -> None:
        for id, amount in stock.items():
            self._ask("INSERT INTO stock (id, amount) VALUES (%s, %s)", id, amount)
        self._touched.add("stock")


_ROWS = f"""SELECT lock_name, token, fence, TIMESTAMPDIFF(MICROSECOND, '{EPOCH}', expires_at),
    waiters, readers FROM dblock_lock"""

# What who takes a name locks.
_TAKES = """SELECT 1 FROM dblock_guard AS g STRAIGHT_JOIN dblock_lock AS l
    ON l.lock_name = g.lock_name WHERE g.lock_name = %s FOR UPDATE NOWAIT"""

_LATE = "Lock wait timeout exceeded; try restarting transaction"
