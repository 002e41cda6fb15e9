"""A model of PostgreSQL's statements: what they do, not how, for many runs in little time.

Each statement is known by its kind and its parameters. It is carried out at once and as a whole, or
waits for who has the row; so what a snapshot may see of a wait is not in the model. That it does
what the server does is a test: the same schedules on both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool

from dblock.dialects import Dialect, PostgreSQL
from dblock.dialects.base import UNCALLED, Answer, Session
from dblock.protocol.faults import Fault
from dblock.protocol.steps import Query
from dblock.target import resolve
from dblock.version import SCHEMA_VERSION
from tests.simulation.client import Client
from tests.simulation.errors import Error, Lost
from tests.simulation.store import Blocked, Row, Store
from tests.simulation.transport import Simulated, connecting, simulated

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
#: Characters of a channel, with which its tickets begin.
CHANNEL = 8
#: Seconds for which a grant, a release and who leaves wait for a row.
PATIENT, STEADY = 0.025, 0.25
#: The longest TTL that has been granted before a run: a pause after a crash is as long.
LONGEST_TTL = 10.0
#: Of a witness that is written anew: how long what it knows is valid.
VALID = 25 * 3600.0


class Refused(Error):
    """The server's answer to a statement that fails."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.name.lower())
        self.fault = fault


@dataclass(slots=True)
class Name:
    """A name's row."""

    fence: int = 0
    token: str | None = None
    owner: str | None = None
    acquired: float | None = None
    expires: float | None = None
    queue: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Witness:
    """The row of the witness."""

    epoch: int
    longest: float
    opens: float
    valid_until: float


@dataclass(slots=True)
class Tables:
    """All that a crash may undo."""

    names: dict[str, Name] = field(default_factory=dict)
    waiters: dict[str, dict[str, Any]] = field(default_factory=dict)
    epoch: int = 0
    cause: str | None = None
    longest: float = LONGEST_TTL
    opens: float = 0.0
    #: Who wrote the epoch's row.
    server: str = "1/1"

    def copy(self) -> Tables:
        """Return the same, which does not change with it."""
        names = {key: replace(name, queue=[*name.queue]) for key, name in self.names.items()}
        return replace(self, names=names, waiters=dict(self.waiters))


@dataclass(slots=True, eq=False)
class ModelDriver:
    """A session."""

    number: int
    #: The modes of the rows that its transaction has locked.
    locked: dict[str, str] = field(default_factory=dict)
    in_transaction: bool = False
    channel: str | None = None
    gates: set[str] = field(default_factory=set)
    #: Where psycopg keeps what handles notifications.
    pgconn: SimpleNamespace = field(default_factory=SimpleNamespace)

    def fileno(self) -> int:
        return id(self)

    def close(self) -> None:
        """The link's end is the session's."""


# Which locks of a row exclude each other.
_EXCLUDED = {
    "update": {"update", "no key update", "key share"},
    "no key update": {"update", "no key update"},
    "key share": {"update"},
}


class ModelDialect(Simulated):
    """PostgreSQL's dialect, whose sessions are the model's."""

    def prepare_connection(self, connection: ModelDriver) -> Session:
        store = self.client.store
        assert isinstance(store, ModelStore)
        return Session(store.server, Query("SELECT its end", {"session": connection.number}))

    def unbounded(self, connection: ModelDriver) -> list[str]:
        return []

    def classify(self, error: BaseException) -> Fault | None:
        if isinstance(error, Refused):
            return error.fault
        if isinstance(error, Lost):
            return Fault.DISCONNECTED
        return None

    def timed_out(self, error: BaseException) -> bool:
        return Simulated.timed_out(self, error) if isinstance(error, Lost) else False


_KIND = simulated(PostgreSQL, ModelDialect)  # type: ignore[type-abstract]


class ModelStore(Store):
    """The tables in memory."""

    name = "model"

    def __init__(self, folder: Path) -> None:
        self._engines: dict[str, Engine] = {}
        self._sessions = 0

    def clock(self) -> float:
        return round(super().clock(), 6)

    def reset(self) -> None:
        self._sessions = 0
        self._drivers: dict[int, ModelDriver] = {}
        self.server = "1/1"
        self.tables = Tables()
        self.witness: Witness | None = Witness(0, LONGEST_TTL, 0.0, VALID)
        #: What each commit has made of the tables, and whether it was waited for.
        self._history = [(self.tables.copy(), True)]
        self._written: bool | None = None
        self._calls: list[str] = []

    def engine(self, client: str) -> Engine:
        if client not in self._engines:
            self._engines[client] = create_engine(
                "postgresql+psycopg://",
                creator=lambda: connecting(self),
                poolclass=NullPool,
                _initialize=False,
            )
        return self._engines[client]

    def resolve(self, target: Any, **options: Any) -> tuple[Engine, Dialect]:
        return resolve(target, dialects={"postgresql": _KIND}, **options)

    def open(self, client: Client) -> ModelDriver:
        self._sessions += 1
        driver = self._drivers[self._sessions] = ModelDriver(self._sessions)
        return driver

    def undo(self, driver: ModelDriver) -> None:
        driver.locked.clear()
        driver.gates.clear()
        driver.in_transaction = False
        driver.channel = None
        self._drivers.pop(driver.number, None)

    def forget(self, lost: int) -> bool:
        while lost and not self._history[-1][1]:
            self._history.pop()
            lost -= 1
        return self._fall_back()

    def promote(self, lost: int = 0) -> None:
        self.go_down()
        timeline = int(self.server.partition("/")[2]) + 1
        self.server = f"1/{timeline}"
        del self._history[max(1, len(self._history) - lost) :]
        self.losses += self._fall_back()

    def _fall_back(self) -> bool:
        before, self.witness = self.tables.names, None
        self.tables = self._history[-1][0].copy()
        return before != self.tables.names

    def rows(self) -> dict[str, Row]:
        return {
            key: Row(name.token, name.fence, name.expires, tuple(name.queue))
            for key, name in self.tables.names.items()
        }

    # --- statements --------------------------------------------------------------------------

    def execute(self, driver: ModelDriver, query: Any) -> Answer:
        kind = getattr(query, "kind", None)
        if kind is None:
            return self._plain(driver, query)
        self._written = None
        carry_out: Callable[..., Answer] = getattr(self, f"_{kind}")
        answer = carry_out(driver, query)
        if self._written is not None:
            self._history.append((self.tables.copy(), self._written))
        self._deliver()
        return answer

    def _plain(self, driver: ModelDriver, query: Any) -> Answer:
        """What is none of the dialect's statements."""
        word = query.sql.split(None, 1)[0]
        if "channel" in query.params:
            driver.channel = query.params["channel"]
            return [(True, "")], 1
        if "session" in query.params:
            return self._end(query.params["session"])
        if word == "SELECT":
            return [(1, SCHEMA_VERSION, SCHEMA_VERSION)], 1
        driver.in_transaction = word == "BEGIN"
        if word in ("COMMIT", "ROLLBACK"):
            driver.locked.clear()
        return (), 0

    def _writes(self, *, lazily: bool = False) -> None:
        """The statement's commit is waited for, or not."""
        self._written = not lazily or bool(self._written)

    def _deliver(self) -> None:
        """Have those called whom a commit notifies."""
        calls, self._calls = self._calls, []
        for ticket in calls:
            for link in self.links:
                if link.driver.channel == ticket[:CHANNEL]:
                    link.tell(ticket)

    # Locks of rows.

    def _others(self, driver: ModelDriver, name: str, mode: str) -> bool:
        """Whether others have the row locked so that it cannot be locked in a mode."""
        return any(
            other.locked.get(name) in _EXCLUDED[mode]
            for other in self._drivers.values()
            if other is not driver
        )

    def _await_row(self, driver: ModelDriver, name: str, mode: str, patience: float | None) -> None:
        if self._others(driver, name, mode):
            raise Blocked(math.inf if patience is None else patience, Refused(Fault.BUSY))

    # The queue.

    def _lives(self, ticket: str) -> bool:
        return ticket.startswith(UNCALLED) or any(
            driver.channel == ticket[:CHANNEL] for driver in self._drivers.values()
        )

    def _before(self, name: Name, position: int | None) -> int:
        ahead = name.queue if position is None else name.queue[:position]
        return sum(map(self._lives, ahead))

    def _gated(self, driver: ModelDriver, key: str, name: Name) -> int:
        if name.expires is None or not name.expires <= self.clock() <= name.expires + 0.4:
            return 0
        return int(
            any(key in other.gates for other in self._drivers.values() if other is not driver)
        )

    def _turn(self, name: Name, before: int) -> bool:
        now = self.clock()
        if name.expires is None or (name.token is None and name.expires > now):
            return True
        return name.expires + before * 0.4 <= now

    def _alive(self, name: Name) -> list[str]:
        """The queue without those at its head who are not there any more."""
        queue = list(name.queue)
        while queue and not self._lives(queue[0]):
            queue.pop(0)
        return queue

    def _call(self, name: Name) -> None:
        if name.queue and not name.queue[0].startswith(UNCALLED):
            self._calls.append(name.queue[0])

    def _open(self, ttl: float | None = None) -> Witness | None:
        """The witness, where it lets anything be granted; with a TTL, of a lease as long."""
        witness, now = self.witness, self.clock()
        if witness is None or witness.opens > now:
            return None
        if ttl is not None and not (witness.longest >= ttl and witness.valid_until > now):
            return None
        return witness

    def _take(self, name: Name, params: Any, witness: Witness) -> tuple[Any, ...]:
        now = self.clock()
        name.fence = max(name.fence, witness.epoch) + 1
        name.token, name.owner = params["token"], params["owner"]
        name.acquired, name.expires = now, now + params["ttl"]
        self._writes()
        return name.fence, params["ttl"], ""

    # The lease.

    def _grant(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        key, ticket = params["name"], params.get("ticket")
        witness = self._open(params["ttl"])
        name = self.tables.names.get(key)
        padding: tuple[Any, ...] = () if ticket is None else (None,) * 9
        if name is None:
            if witness is None:
                return (), 0
            name = self.tables.names[key] = Name()
            return [(*self._take(name, params, witness), *padding)], 1
        if ticket is None:
            before = self._before(name, None) if name.queue else 0
            turn = self._turn(name, before + self._gated(driver, key, name))
            if witness is None or not turn or self._others(driver, key, "update"):
                return (), 0
            name.queue = []
            return [self._take(name, params, witness)], 1
        return self._grant_or_join(driver, key, name, witness, params)

    def _grant_or_join(
        self, driver: ModelDriver, key: str, name: Name, witness: Witness | None, params: Any
    ) -> Answer:
        ticket, former = params["ticket"], params["former"]
        place = next((name.queue.index(one) for one in (ticket, former) if one in name.queue), None)
        newcomer = self._gated(driver, key, name) if place is None else 0
        if witness is not None and self._turn(name, self._before(name, place) + newcomer):
            self._await_row(driver, key, "update", PATIENT)
            name.queue = [] if place is None else name.queue[place + 1 :]
            return [(*self._take(name, params, witness), *(None,) * 9)], 1
        if ticket in name.queue or self._open() is None:
            return (), 0
        if self._open(params["ttl"]) is None:
            return (), 0
        self._await_row(driver, key, "no key update", PATIENT)
        if former in name.queue:
            name.queue[name.queue.index(former)] = ticket
        else:
            name.queue = [*self._alive(name), ticket]
        self._writes(lazily=True)
        before = name.queue.index(ticket)
        return [(None, None, "off", *self._told(key, name), before, self._turn(name, before))], 1

    def _told(self, key: str, name: Name) -> tuple[Any, ...]:
        return (
            key,
            name.fence,
            name.token,
            name.owner,
            _moment(name.acquired),
            _moment(name.expires),
            None if name.expires is None else name.expires - self.clock(),
        )

    def _look(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        names = self.tables.names
        rows = [self._told(key, names[key]) for key in params.values() if key in names]
        return rows, len(rows)

    def _look_queued(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        key, ticket = params["name"], params["ticket"]
        name = self.tables.names.get(key)
        if name is None:
            return (), 0
        place = name.queue.index(ticket) if ticket in name.queue else None
        before = self._before(name, place)
        told = (None if place is None else before, self._turn(name, before))
        return [(*self._told(key, name), *told)], 1

    def _held(self, driver: ModelDriver, query: Any) -> Answer:
        now = self.clock()
        waited = {one["name"] for one in self.tables.waiters.values() if one["expires"] > now}
        rows = [
            self._told(key, name)
            for key, name in sorted(self.tables.names.items())
            if name.token is not None or key in waited
        ]
        return rows, len(rows)

    def _leave(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        key, ticket = params["name"], params["ticket"]
        name = self.tables.names.get(key)
        if name is None or ticket not in name.queue:
            return (), 0
        self._await_row(driver, key, "no key update", STEADY)
        name.queue.remove(ticket)
        self._writes(lazily=True)
        if name.expires is not None and name.expires <= self.clock():
            self._call(name)
        return [(None, "off")], 1

    def _release(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        key = params["name"]
        name = self.tables.names.get(key)
        if name is None or name.token != params["token"]:
            return (), 0
        self._await_row(driver, key, "no key update", PATIENT)
        name.token, name.expires = None, self.clock()
        name.queue = self._alive(name)
        self._writes(lazily=True)
        self._call(name)
        return [(None, "off")], 1

    def _renew(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        witness, now = self.witness, self.clock()
        known = witness is not None and (
            witness.longest >= params["ttl"] and witness.valid_until > now
        )
        renewed = []
        for key, token, ttl in zip(params["names"], params["tokens"], params["ttls"], strict=True):
            name = self.tables.names.get(key)
            if not known or witness is None or name is None or name.token != token:
                continue
            busy = self._others(driver, key, "no key update")
            if busy or name.fence <= witness.epoch or name.expires is None or name.expires <= now:
                continue
            name.expires = now + ttl
            renewed.append((token, ""))
        if renewed:
            self._writes()
        return renewed, len(renewed)

    # Gates.

    def _knock(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        key = params["name"]
        patience = int(params["patience"]) / 1000
        others = [other for other in self._drivers.values() if other is not driver]
        if any(key in other.gates for other in others):
            raise Blocked(patience, Refused(Fault.BUSY))
        name, witness = self.tables.names.get(key), self._open(params["ttl"])
        if name is not None:
            self._await_row(driver, key, "no key update", patience)
        driver.gates.add(key)
        if name is None or witness is None:
            return (), 0
        if self._turn(name, len(name.queue)):
            self._await_row(driver, key, "update", patience)
            name.queue = []
            return [(*self._take(name, params, witness), *(None,) * 9, False)], 1
        answer = self._grant_or_join(driver, key, name, witness, params)
        rows, matched = answer
        return [(*row, False) for row in rows], matched

    def _let_go(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        answer = self._release(driver, query)
        if answer[1]:
            driver.gates.discard(params["name"])
        return answer

    def _ungate(self, driver: ModelDriver, query: Any) -> Answer:
        driver.gates.clear()
        return [(None,)], 1

    # The witness.

    def _witness(self, driver: ModelDriver, query: Any) -> Answer:
        witness, now = self.witness, self.clock()
        if witness is None:
            return (), 0
        longest = witness.longest if witness.valid_until > now else 0
        return [(witness.epoch, self.tables.cause, witness.opens - now, longest)], 1

    def _write_witness(self, driver: ModelDriver, query: Any) -> Answer:
        tables, now = self.tables, self.clock()
        if self.witness is not None:
            return (), 0
        if tables.server == self.server:
            tables.opens = min(now + tables.longest, max(tables.opens, now))
        else:
            tables.server, tables.cause = self.server, "failover"
            tables.epoch = max(tables.epoch + 2**32, round((EPOCH.timestamp() + now) * 1e6))
            tables.opens = now + tables.longest
        self.witness = Witness(tables.epoch, tables.longest, tables.opens, tables.opens + VALID)
        self._writes()
        return [(tables.epoch,)], 1

    def _announce_ttl(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        if self.witness is None:
            return (), 0
        self.tables.longest = max(self.tables.longest, params["ttl"])
        self._writes()
        return [("",)], 1

    def _record_ttl(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        witness, ttl, now = self.witness, params["ttl"], self.clock()
        if witness is None or self.tables.longest < ttl:
            return (), 0
        if witness.valid_until <= now:
            witness.longest, witness.valid_until = ttl, now + VALID
        else:
            witness.longest = max(witness.longest, ttl)
        self._writes()
        return (), 1

    # Row locks and guards.

    def _create(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        if params["name"] in self.tables.names:
            return (), 0
        self.tables.names[params["name"]] = Name()
        self._writes()
        return (), 1

    def _lock_row(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        key, patience = params["name"], int(params["patience"])
        name, opened = self.tables.names.get(key), self._open() is not None
        free = name is not None and (
            name.token is None or name.expires is None or name.expires <= self.clock()
        )
        if name is None or not free or not opened:
            return [(True, None, opened)], 1
        if "SKIP LOCKED" in query.sql and self._others(driver, key, "update"):
            return [(True, None, opened)], 1
        self._await_row(driver, key, "update", patience / 1000 if patience else None)
        driver.locked[key] = "update"
        return [(True, name.fence, opened)], 1

    def _guard(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        key, witness = params["name"], self.witness
        name = self.tables.names.get(key)
        if name is None or (name.fence, name.token) != (params["fence"], params["token"]):
            return (), 0
        if witness is None or name.fence <= witness.epoch or self._others(driver, key, "key share"):
            return (), 0
        driver.locked.setdefault(key, "key share")
        return [(name.fence,)], 1

    # Waiters.

    def _register(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        now = self.clock()
        known = self.tables.waiters.get(params["id"])
        row = known or {
            "id": params["id"],
            "name": params["name"],
            "strategy": params["strategy"],
            "owner": params["owner"],
            "since": now + params["since"],
        }
        self.tables.waiters[params["id"]] = row | {
            "expires": now + params["expiry"],
            "holds": params["holds"],
        }
        return (), 1

    def _unregister(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        return (), int(self.tables.waiters.pop(params["id"], None) is not None)

    def _sweep(self, driver: ModelDriver, query: Any) -> Answer:
        over = [id for id, row in self.tables.waiters.items() if row["expires"] <= self.clock()]
        for id in over:
            del self.tables.waiters[id]
        return (), len(over)

    def _waiters(self, driver: ModelDriver, query: Any) -> Answer:
        params = query.params
        now, only = self.clock(), params.get("name")
        rows = [
            (row["name"], row["owner"], row["strategy"], _moment(row["since"]), now - row["since"])
            for row in sorted(self.tables.waiters.values(), key=lambda row: row["since"])
            if row["expires"] > now and only in (None, row["name"])
        ]
        return rows, len(rows)

    def _blocked(self, driver: ModelDriver, query: Any) -> Answer:
        now, rows = self.clock(), []
        for row in self.tables.waiters.values():
            if row["holds"] is None or row["expires"] <= now:
                continue
            name = self.tables.names.get(row["name"])
            held = name is not None and name.token is not None and (name.expires or 0.0) > now
            fence = name.fence if held and name is not None else None
            since = _moment(row["since"])
            rows.append((row["id"], row["name"], fence, row["owner"], since, row["holds"]))
        return rows, len(rows)

    def _end(self, number: int) -> Answer:
        """End another session: a row for as long as it is there."""
        other = self._drivers.get(number)
        for link in tuple(self.links):
            if link.driver is other:
                link.break_off()
        return ((), 0) if other is None else ([(True,)], 1)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)
