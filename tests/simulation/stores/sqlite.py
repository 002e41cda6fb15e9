"""Real SQLite, whose clock and patience are virtual."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dblock.dialects.adapter import Answer, Send
from dblock.dialects.query import Query
from dblock.dialects.sqlite.adapter import SQLite3
from dblock.schema import upgrade
from tests.simulation.client import Client
from tests.simulation.errors import Lost
from tests.simulation.lending import Statement, lending_engine, lost_errors
from tests.simulation.rates import Taken
from tests.simulation.store import Blocked, Store
from tests.simulation.tables import USERS, Committed, Row
from tests.simulation.transport import Simulated, kind_of, simulated

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_JULIAN_EPOCH = 2461041.5
_FORMAT = "%Y-%m-%d %H:%M:%f"
_TABLES = (
    *(
        "dblock_lock",
        "dblock_waiter",
        "dblock_run",
        "dblock_applied",
        "dblock_once",
        "dblock_value",
    ),
    *(table.name for table in USERS.sorted_tables),
)


class Driver(sqlite3.Connection):
    """One session."""

    patience = 5.0
    #: Its transaction ended with the session, and the client does not know.
    undone = False


class _Simulated(Simulated):
    """Has a statement wait for as long as it says, as the real sender does."""

    def sender(self, connection: Driver) -> Send:
        def send(query: Query[Any], within: float | None = None, waits: bool = False) -> Answer:
            if query.patience is not None:
                connection.patience = query.patience
            return self.send(connection, query, within, waits)

        return send


class SQLiteStore(Store):
    """A file, whose functions of time tell the loop's."""

    name = "sqlite"
    database = "sqlite"
    adapter = simulated(SQLite3, _Simulated)  # type: ignore[type-abstract]
    one_writer = True
    has = frozenset({"runs", "lending", "looks", "members"})

    @classmethod
    def prepare(cls, folder: Path) -> None:
        upgrade(f"sqlite:///{folder / 'sqlite.db'}")

    def __init__(self, folder: Path, number: int = 0) -> None:
        self._folder = folder
        self._path = folder / f"sqlite.{os.getpid()}.{number}.db"
        self.url = f"sqlite:///{self._path}"
        shutil.copy(folder / "sqlite.db", self._path)
        self._idle: list[Driver] = []
        #: Not to be used before the next run: their clients may know them yet.
        self._ended: list[Driver] = []
        self._lost = lost_errors(sqlite3)
        self._texts: dict[int, str] = {}
        self._moments: dict[str, float] = {}
        self._admin = self._connect()
        self.place = f"{number:032}"
        self._admin.execute("UPDATE dblock_schema SET identity = ?", (self.place,))
        self.lending = lending_engine(self, f"sqlite:///{self._path}")

    def reset(self) -> None:
        self._idle += self._ended
        self._ended.clear()
        for table in _TABLES:
            self._admin.execute(f"DELETE FROM {table}")

    def another(self, number: int) -> Store:
        return SQLiteStore(self._folder, number)

    def enlist(self, record: str, longest: int) -> None:
        self._admin.execute(
            "INSERT INTO dblock_value (lock_name, fence, value, written_at) "
            "VALUES ('', ?, json_quote(?), strftime(?, 'now'))",
            (longest, record, _FORMAT),
        )

    def copied(self) -> dict[str, list[tuple[Any, ...]]]:
        ask = self._admin.execute
        return {table: ask(f"SELECT * FROM {table}").fetchall() for table in _TABLES}

    def bring_back(self, copy: dict[str, list[tuple[Any, ...]]]) -> None:
        self.go_down()
        for table, rows in copy.items():
            self._admin.execute(f"DELETE FROM {table}")
            for row in rows:
                places = ", ".join("?" * len(row))
                self._admin.execute(f"INSERT INTO {table} VALUES ({places})", row)

    def open(self, client: Client) -> Driver:
        driver = self._idle.pop() if self._idle else self._connect()
        driver.isolation_level, driver.patience, driver.undone = None, Driver.patience, False
        return driver

    def open_lent(self) -> Driver:
        driver = self._idle.pop() if self._idle else self._connect()
        driver.isolation_level, driver.patience, driver.undone = "DEFERRED", Driver.patience, False
        return driver

    def lost(self, kind: type[Lost]) -> type[Exception]:
        return self._lost[kind]

    def in_transaction(self, driver: Driver) -> bool:
        return driver.in_transaction or driver.undone

    def locked(self, name: str) -> bool:
        return any(link.driver.in_transaction for link in self.links)

    def settings(self, driver: Driver) -> object:
        return driver.patience, driver.isolation_level

    def is_local(self, query: Any) -> bool:
        return kind_of(query) == "pragma"

    def _connect(self) -> Driver:
        driver = sqlite3.connect(self._path, timeout=0, isolation_level=None, factory=Driver)
        driver.execute("PRAGMA synchronous = OFF")
        driver.create_function("strftime", 2, self._strftime)
        driver.create_function("strftime", 3, self._strftime)
        driver.create_function("julianday", 1, self._julianday)
        return driver

    def execute(self, driver: Driver, query: Any) -> Answer:
        if query.sql.startswith("PRAGMA busy_timeout"):
            return self._patience(driver, query.sql)
        if query.sql.startswith("PRAGMA synchronous"):
            return (), -1
        cursor = driver.cursor()
        try:
            cursor.execute(query.sql, query.params)
            rows = cursor.fetchall() if cursor.description else ()
            if isinstance(query, Statement):
                query.description = cursor.description
            return rows, cursor.rowcount
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY and driver.patience > 0:
                raise Blocked(driver.patience, error) from None
            raise
        finally:
            cursor.close()

    def _patience(self, driver: Driver, sql: str) -> Answer:
        _, given, milliseconds = sql.partition("=")
        if given:
            driver.patience = int(milliseconds) / 1000
        return [(int(driver.patience * 1000),)], -1

    def undo(self, driver: Driver) -> None:
        if driver.in_transaction:
            driver.undone = True
            driver.rollback()
        if driver not in self._ended:
            self._ended.append(driver)

    def rows(self) -> dict[str, Row]:
        found = self._admin.execute(
            "SELECT lock_name, token, fence, expires_at, waiters, readers FROM dblock_lock"
        )
        return {
            name: Row(
                token,
                fence,
                None if expires is None else self._moment(expires),
                tuple(waiters.split(",")) if waiters else (),
                readers,
            )
            for name, token, fence, expires, waiters, readers in found
        }

    def committed(self) -> Committed:
        ask = self._admin.execute
        return Committed(
            {id: (name, fence) for id, name, fence in ask("SELECT id, name, fence FROM written")},
            dict(ask("SELECT id, amount FROM stock").fetchall()),
            {key for (key,) in ask("SELECT idempotency_key FROM dblock_applied")},
            {
                (name, slot): status
                for name, slot, status in ask("SELECT lock_name, slot, exit_status FROM dblock_run")
            },
            {id: (key, n) for id, key, n in ask("SELECT id, idempotency_key, result FROM effect")},
            dict(ask("SELECT idempotency_key, result FROM dblock_once").fetchall()),
            {id: (name, fence) for id, name, fence in ask("SELECT id, name, fence FROM passed")},
        )

    def put(self, stock: dict[int, int]) -> None:
        self._admin.executemany("INSERT INTO stock (id, amount) VALUES (?, ?)", stock.items())

    def limits(self) -> dict[str, int]:
        found = self._admin.execute("SELECT lock_name, value FROM dblock_value WHERE fence = 0")
        return {name: int(limit) for name, limit in found}

    def rates(self) -> dict[str, Taken]:
        found = self._admin.execute("SELECT lock_name, fence, value FROM dblock_value")
        return {
            name: Taken(-fence / 1e6 - EPOCH.timestamp(), mark)
            for name, fence, mark in found
            if fence < 0
        }

    def waiters(self) -> list[tuple[str, str]]:
        return self._admin.execute(
            "SELECT id, lock_name FROM dblock_waiter ORDER BY since, id"
        ).fetchall()

    # --- time --------------------------------------------------------------------------------

    def clock(self) -> float:
        return math.floor(super().clock() * 1000 + 1e-6) / 1000

    def _strftime(self, form: str, of: str, modifier: str = "+0 seconds") -> str:
        assert (form, of) == (_FORMAT, "now"), "only what dblock's statements ask for"
        seconds, unit = modifier.split()
        assert unit == "seconds"
        milliseconds = round(self.clock() * 1000) + round(float(seconds) * 1000)
        text = self._texts.get(milliseconds)
        if text is None:
            moment = EPOCH + timedelta(milliseconds=milliseconds)
            text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            self._texts[milliseconds] = text
            self._moments[text] = milliseconds / 1000
        return text

    def _julianday(self, of: str | None) -> float | None:
        if of is None:
            return None
        seconds = self.clock() if of == "now" else self._moment(of)
        return _JULIAN_EPOCH + seconds / 86400

    def _moment(self, text: str) -> float:
        found = self._moments.get(text)
        if found is None:
            found = (datetime.fromisoformat(f"{text}+00:00") - EPOCH).total_seconds()
            self._moments[text] = found
        return found
