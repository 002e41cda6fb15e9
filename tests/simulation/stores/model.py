"""A model of PostgreSQL's statements: what they do, not how, for many runs in little time.

Each statement is known by its kind and its parameters. It is carried out at once and as a whole, or
waits for who has the row; so what a snapshot may see of a wait is not in the model. That it does
what the server does is a test: the same schedules on both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dblock.dialects.adapter import Answer, ServerSession
from dblock.dialects.postgresql.adapter import Psycopg
from dblock.dialects.postgresql.fragments import milliseconds
from dblock.dialects.query import Query
from dblock.dialects.retiring import PAGE
from dblock.dialects.tickets import NUMBER, TICKET, UNCALLED
from dblock.protocol.commands import EndSession
from dblock.protocol.faults import Fault as DatabaseFault
from dblock.protocol.schema_version import SCHEMA_VERSION
from dblock.protocol.tokens import is_shared
from tests.simulation.client import Client
from tests.simulation.errors import Lost, Refused
from tests.simulation.rates import Taken
from tests.simulation.schedule import LATE, Fault
from tests.simulation.store import Blocked, Store, losable
from tests.simulation.tables import Committed, Row
from tests.simulation.transport import Simulated, simulated

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
#: Characters of a channel, with which its tickets begin.
CHANNEL = 8
#: What those are called with who observe a leader.
TOPIC = "e:"
#: The name of the row whose fence is the floor.
FLOOR = ""
#: Seconds for which a grant, a release and who leaves wait for a row.
PATIENT, STEADY = 0.025, 0.25
#: The longest TTL that has been granted before a run: a pause after a crash is as long.
LONGEST_TTL = 10.0
#: How long who waits to be called does not look by itself, with two before it.
LOOK = 2.7
#: Of a witness that is written anew: how long what it knows is valid.
VALID = 25 * 3600.0


@dataclass(slots=True)
class Name:
    """A name's row."""

    fence: int = 0
    token: str | None = None
    owner: str | None = None
    acquired: float | None = None
    expires: float | None = None
    queue: list[str] = field(default_factory=list)
    #: Whose hold is shared, and by whom: void for another token.
    group: str | None = None
    readers: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """Those who share the hold, if any reader has it."""
        if self.token is None or not is_shared(self.token):
            return ()
        return self.readers if self.group == self.token else (self.token,)

    @property
    def listed(self) -> str | None:
        return None if self.group is None else " ".join((self.group, *self.readers))

    def share(self, members: tuple[str, ...]) -> None:
        self.group, self.readers = self.token, members


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
    #: By names: the fence of the hold that wrote it, the value, and when.
    values: dict[str, tuple[int, str, float]] = field(default_factory=dict)
    #: The limits of semaphores.
    limits: dict[str, int] = field(default_factory=dict)
    #: The rate limits: the TATs in microseconds by the clock, the marks, and when a call set them.
    rates: dict[str, tuple[int, str, float]] = field(default_factory=dict)
    epoch: int = 0
    cause: str | None = None
    longest: float = LONGEST_TTL
    opens: float = 0.0
    #: Who wrote the epoch's row.
    server: str = "1/1"

    def copy(self) -> Tables:
        """Return the same, which does not change with it."""
        names = {key: replace(name, queue=[*name.queue]) for key, name in self.names.items()}
        return replace(
            self,
            names=names,
            waiters=dict(self.waiters),
            values=dict(self.values),
            limits=dict(self.limits),
            rates=dict(self.rates),
        )


@dataclass(slots=True, eq=False)
class ModelDriver:
    """A session."""

    number: int
    #: The modes of the rows that its transaction has locked.
    locked: dict[str, str] = field(default_factory=dict)
    in_transaction: bool = False
    channel: str | None = None
    #: What its statement came to, which waits for the standby.
    answer: Answer | None = None
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


class ModelAdapter(Simulated):
    """That of PostgreSQL, whose sessions are the model's."""

    def prepare_connection(self, connection: ModelDriver) -> ServerSession:
        store = self.client.link(connection).store
        assert isinstance(store, ModelStore)
        number = str(connection.number)
        return ServerSession(store.server, EndSession(int(number), None))

    def unbounded(self, connection: ModelDriver) -> list[str]:
        return []

    def classify(self, error: BaseException) -> DatabaseFault | None:
        if isinstance(error, Refused):
            return error.fault
        if isinstance(error, Lost):
            return DatabaseFault.DISCONNECTED
        return None

    def timed_out(self, error: BaseException) -> bool:
        return Simulated.timed_out(self, error) if isinstance(error, Lost) else False


class ModelStore(Store):
    """The tables in memory."""

    name = "model"
    url = "postgresql+psycopg://"
    database = "postgresql"
    adapter = simulated(Psycopg, ModelAdapter)  # type: ignore[type-abstract]
    has = frozenset({"calls", "moves", "epochs"})  # no rows: nobody finds a cycle
    look = LOOK
    ends_sessions = True
    faults = (
        *LATE,
        *(Fault("cut", 0.2), Fault("crash", 9.0), Fault("crash-after", 9.0)),
        Fault("given-up", 0.5),
        *(Fault("promote", lost) for lost in (0.0, 1.0, 3.0)),
    )

    def __init__(self, folder: Path) -> None:
        self._sessions = 0

    def reset(self) -> None:
        self._sessions = 0
        self._drivers: dict[int, ModelDriver] = {}
        self.server = "1/1"
        self.tables = Tables()
        self.witness: Witness | None = Witness(0, LONGEST_TTL, 0.0, VALID)
        #: What each commit has made of the tables, and whether it was waited for.
        self._history = [(self.tables.copy(), True)]
        self._written: bool | None = None
        #: Until when there is no standby, and what it knows meanwhile.
        self._alone_until, self._standby = 0.0, self._history[0][0]
        self._calls: list[str] = []

    def open(self, client: Client) -> ModelDriver:
        self._sessions += 1
        driver = self._drivers[self._sessions] = ModelDriver(self._sessions)
        return driver

    def undo(self, driver: ModelDriver) -> None:
        driver.locked.clear()
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
        while lost and len(self._history) > 1:
            before, last = (tables.longest for tables, _ in self._history[-2:])
            if last > before:
                break  # a standby has heard of that
            self._history.pop()
            lost -= 1
        if self._fall_back():
            self.note_loss()

    def losable(self, *, promoted: bool) -> float:
        return losable([waited_for for _, waited_for in self._history], promoted=promoted)

    def _fall_back(self) -> bool:
        before, self.witness = self.tables.names, None
        self.tables = self._history[-1][0].copy()
        return before != self.tables.names

    def rows(self) -> dict[str, Row]:
        return {
            key: Row(name.token, name.fence, name.expires, tuple(name.queue), name.listed)
            for key, name in self.tables.names.items()
        }

    def locked(self, name: str) -> bool:
        return any(name in driver.locked for driver in self._drivers.values())

    def in_transaction(self, driver: ModelDriver) -> bool:
        return driver.in_transaction

    def closed_until(self) -> float:
        return self.tables.opens

    def longest_pause(self) -> float:
        return self.tables.longest

    def epoch(self) -> int:
        return self.tables.epoch

    def known_ttl(self) -> tuple[float, float]:
        witness = self.witness
        return (0.0, 0.0) if witness is None else (witness.longest, witness.valid_until)

    def committed(self) -> Committed:
        return Committed({}, {}, set(), {})

    def limits(self) -> dict[str, int]:
        return self.tables.limits

    def rates(self) -> dict[str, Taken]:
        return {name: Taken(tat / 1e6, mark) for name, (tat, mark, _) in self.tables.rates.items()}

    def waiters(self) -> list[tuple[str, str]]:
        return [(id, row["name"]) for id, row in self.tables.waiters.items()]

    # --- statements --------------------------------------------------------------------------

    def execute(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        if query.command is None:
            return self._other(driver, query)
        self._written = None
        carry_out: Callable[..., Answer] = getattr(self, f"_{query.kind}")
        answer = carry_out(driver, query)
        if self._written is not None:
            self._history.append((self.tables.copy(), self._written))
        if self._written:
            driver.answer = answer
            if self.loop.now < self._alone_until:
                self._carried_out(driver, query)
            return self._confirmed(driver)
        self._deliver()
        return answer

    def retry(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        return self.execute(driver, query) if driver.answer is None else self._confirmed(driver)

    def overdue(self, driver: ModelDriver, blocked: Blocked) -> Answer:
        return (
            super().overdue(driver, blocked) if driver.answer is None else self._confirmed(driver)
        )

    def _confirmed(self, driver: ModelDriver) -> Answer:
        """Return what a statement came to whose commit the standby has."""
        answer, left = driver.answer, self._alone_until - self.loop.now
        assert answer is not None
        if left > 0:
            raise Blocked(left * self.rate)
        driver.answer = None
        self._deliver()
        return answer

    @property
    def identity(self) -> str:
        return self.server

    def move(self) -> None:
        """Let another server take its place, with the same tables and a witness of its own."""
        self.go_down()
        self.server = "2/1"

    def be_alone(self, seconds: float) -> None:
        self._alone_until, self._standby = self.loop.now + seconds, self.tables.copy()

    def vouches(self, name: str, token: str) -> bool:
        known = self._standby.names.get(name)
        return self.loop.now >= self._alone_until or (known is not None and known.token == token)

    def _other(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        """What makes a connection ready to listen."""
        if isinstance(query.params, dict) and "channel" in query.params:
            driver.channel = query.params["channel"]
            return [(True, "")], 1
        return (), 0

    def _look_around(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        place = "public", "simulated", "1", None, "5432"
        return [(*place, SCHEMA_VERSION, SCHEMA_VERSION, "0" * 32)], 1

    def _begin(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        driver.in_transaction = True
        return (), 0

    def _commit(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        driver.in_transaction = False
        driver.locked.clear()
        return (), 0

    _rollback = _commit

    def _probe(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        return [(1,)], 1

    def _writes(self, *, lazily: bool = False) -> None:
        """The statement's commit is waited for, or not."""
        self._written = not lazily or bool(self._written)

    def _deliver(self) -> None:
        """Have those called whom a commit notifies."""
        calls, self._calls = self._calls, []
        for ticket in calls:
            for link in self.links:
                if link.driver.channel == ticket[:CHANNEL] or (
                    link.observes and ticket.startswith(TOPIC)
                ):
                    link.tell(ticket)

    # Locks of rows.

    def _in_use(self, driver: ModelDriver, name: str, mode: str) -> bool:
        """Whether others have the row locked so that it cannot be locked in a mode."""
        return any(
            other.locked.get(name) in _EXCLUDED[mode]
            for other in self._drivers.values()
            if other is not driver
        )

    def _await_row(self, driver: ModelDriver, name: str, mode: str, patience: float | None) -> None:
        if self._in_use(driver, name, mode):
            raise Blocked(math.inf if patience is None else patience, Refused(DatabaseFault.BUSY))

    # The queue.

    def _lives(self, ticket: str) -> bool:
        return ticket.startswith(UNCALLED) or any(
            driver.channel == ticket[:CHANNEL] for driver in self._drivers.values()
        )

    def _before(self, name: Name, position: int | None, token: str = "") -> int:
        """Return how many are in the way of one with a token."""
        ahead = name.queue if position is None else name.queue[:position]
        reader = is_shared(token)
        return sum(self._lives(one) and not (reader and is_shared(_token(one))) for one in ahead)

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

    def _position(self, name: Name, token: str) -> int | None:
        """Return where the waiter with a token stands."""
        return next((n for n, entry in enumerate(name.queue) if _token(entry) == token), None)

    def _others(self, name: Name, position: int) -> list[str]:
        """The queue when the one at a position has taken the name."""
        before = [entry for entry in name.queue[:position] if self._can_be_called(entry)]
        return before + name.queue[position + 1 :]

    def _can_be_called(self, entry: str) -> bool:
        return not entry.startswith(UNCALLED) and self._lives(entry)

    def _call(self, name: Name) -> None:
        first = next(filter(self._can_be_called, name.queue), None)
        if first is not None:
            self._calls.append(first[:NUMBER])

    def _call_waiting_readers(self, name: Name) -> int:
        """Call the readers before the first writer."""
        called = 0
        for entry in filter(self._lives, name.queue):
            if not is_shared(_token(entry)):
                break
            if self._can_be_called(entry):
                self._calls.append(entry[:NUMBER])
                called += 1
        return called

    def _open(self, ttl: float | None = None) -> Witness | None:
        """The witness, where it lets anything be granted; with a TTL, of a lease as long."""
        witness, now = self.witness, self.clock()
        if witness is None or witness.opens > now:
            return None
        if ttl is not None and not (witness.longest >= ttl and witness.valid_until > now):
            return None
        return witness

    def _give(self, name: Name, command: Any, witness: Witness) -> tuple[Any, ...]:
        now = self.clock()
        name.fence = max(name.fence, witness.epoch) + 1
        name.token, name.owner = command.token, command.owner
        name.acquired, name.expires = now, now + command.ttl
        self._writes()
        return name.fence, command.ttl, ""

    # The lease.

    def _grant(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        witness, name = self._open(command.ttl), self.tables.names.get(command.name)
        if command.known and (name is None or name.queue):
            return (), 0
        if name is None:
            return self._first(command, witness)
        before = self._before(name, None) if name.queue else 0
        turn = self._turn(name, before)
        if witness is None or not turn or self._in_use(driver, command.name, "update"):
            return (), 0
        name.queue = self._others(name, len(name.queue))
        return [self._give(name, command, witness)], 1

    def _grant_slot(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        names, witness = self.tables.names, self._open(command.ttl)
        turnstile = names.get(command.name)
        passed = turnstile is None or self._anybodys(turnstile)
        passed = passed or (turnstile is not None and turnstile.token == command.turnstile)
        limit = self.tables.limits.get(command.name)
        if witness is None or not passed or limit != command.limit:
            return (), 0
        for number in range(1 if command.known else command.limit):
            key = f"{command.name}#{1 + (command.first + number) % command.limit}"
            slot = names.get(key)
            if command.known and slot and slot.queue:
                return (), 0
            if slot and self._anybodys(slot) and not self._in_use(driver, key, "update"):
                slot.queue = self._others(slot, len(slot.queue))
                fence, remaining, _ = self._give(slot, command, witness)
                return [(fence, remaining, key, "")], 1
        return (), 0

    def _anybodys(self, name: Name) -> bool:
        return self._turn(name, self._before(name, None) if name.queue else 0)

    def _look_at_slots(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        names = self.tables.names
        keys = [command.name, *(f"{command.name}#{n + 1}" for n in range(command.limit))]
        found = self.tables.limits.get(command.name)
        known = found is not None or command.name in self.tables.values
        limit = str(found or 0) if known else None
        if command.name in self.tables.rates:
            limit = "-1"
        rows = [
            (limit, *self._told(key, names[key]), None, self._anybodys(names[key]))
            for key in keys
            if key in names
        ]
        return rows or [(limit, None)], len(rows) or 1

    def _set_limit(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        limited = command.name in self.tables.limits and not command.anew
        if limited or command.name in self.tables.values:
            return (), 0
        self.tables.limits[command.name] = command.limit
        self._writes()
        return [("",)], 1

    def _take_place(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        now = round(self.clock() * 1e6)
        tat, mark, _ = self.tables.rates.get(command.name, (0, "", 0.0))
        if mark != command.mark and (not mark or tat + command.step <= now + command.ahead):
            tat, mark = max(tat, now) + command.step, command.mark
            self.tables.rates[command.name] = tat, mark, self.clock()
            self._writes(lazily=True)
        since = round(EPOCH.timestamp() * 1e6)
        return [(mark, since + tat, since + now)], 1

    def _first(self, command: Any, witness: Witness | None) -> Answer:
        """Take a name that nobody has had yet."""
        if witness is None:
            return (), 0
        name = self.tables.names[command.name] = Name(self._floor())
        return [self._give(name, command, witness)], 1

    def _take(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        key = command.name
        witness, name = self._open(command.ttl), self.tables.names.get(key)
        if name is None:
            return (), 0
        place = self._position(name, command.token)
        if witness is None or not self._turn(name, self._before(name, place, command.token)):
            return (), 0
        self._await_row(driver, key, "update", PATIENT)
        name.queue = self._others(name, len(name.queue) if place is None else place)
        return [self._give(name, command, witness)], 1

    def _join(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        assert isinstance(query.params, dict)
        key, token, entry = command.name, command.token, query.params["entry"]
        name = self.tables.names.get(key)
        if name is None or name.token == token:
            return (), 0
        self._await_row(driver, key, "no key update", PATIENT)
        place = self._position(name, token)
        if place is None:
            name.queue = [*self._alive(name), entry]
        else:
            name.queue[place] = entry
        self._writes(lazily=True)
        return [(None, None, "off", *self._told(key, name), *self._place(name, token))], 1

    def _place(self, name: Name, token: str) -> tuple[Any, ...]:
        """Where one who has just joined stands."""
        before = self._position(name, token)
        assert before is not None
        if is_shared(token):
            before = self._before(name, before, token)
        return before, self._turn(name, before), EPOCH.timestamp() + self.clock()

    def _told(self, key: str, name: Name) -> tuple[Any, ...]:
        return (
            key,
            name.fence,
            name.token,
            name.owner,
            _moment(name.acquired),
            _moment(name.expires),
            None if name.expires is None else name.expires - self.clock(),
            name.listed,
        )

    def _look(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        names = self.tables.names
        rows = [self._told(key, names[key]) for key in command.names if key in names]
        return rows, len(rows)

    def _look_queued(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        key = command.name
        name = self.tables.names.get(key)
        if name is None:
            return (), 0
        place = self._position(name, command.token)
        before = self._before(name, place, command.token)
        told = (
            None if place is None else before,
            self._turn(name, before),
            EPOCH.timestamp() + self.clock(),
        )
        return [(*self._told(key, name), *told)], 1

    def _list_held(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        now = self.clock()
        waited = {one["name"] for one in self.tables.waiters.values() if one["expires"] > now}
        rows = [
            self._told(key, name)
            for key, name in sorted(self.tables.names.items())
            if name.token is not None or key in waited
        ]
        return rows, len(rows)

    def _leave(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        key = command.name
        name = self.tables.names.get(key)
        place = None if name is None else self._position(name, command.token)
        if name is None or place is None:
            return (), 0
        self._await_row(driver, key, "no key update", STEADY)
        del name.queue[place]
        self._writes(lazily=True)
        if name.expires is not None and name.expires <= self.clock():
            self._call(name)
        called = self._call_waiting_readers(name) if name.members else None
        return [(None, "off", called)], 1

    def _release(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        name = self.tables.names.get(command.name)
        if name is None or name.token != command.token or name.queue:
            return (), 0
        self._await_row(driver, command.name, "no key update", PATIENT)
        name.token, name.expires = None, self.clock()
        self._writes(lazily=True)
        return [("off",)], 1

    def _pass_on(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        name = self.tables.names.get(command.name)
        if name is None or name.token != command.token:
            return (), 0
        self._await_row(driver, command.name, "no key update", PATIENT)
        now = self.clock()
        name.queue = self._alive(name)
        first = name.queue[0] if name.queue else ""
        term = int(first[TICKET + 32 : TICKET + 36] or 0) / 1000
        witness = self._open(term)
        if not first or first.startswith(UNCALLED) or witness is None or not command.passes:
            name.token, name.expires = None, now
            self._writes(lazily=True)
            self._call(name)
            return [(None, "off")], 1
        del name.queue[0]
        name.fence = max(name.fence, witness.epoch) + 1
        name.token, name.owner = _token(first), first[TICKET + 36 :]
        name.acquired, name.expires = now, now + term
        self._writes()
        granted = EPOCH.timestamp() + now
        self._calls.append(f"{first[:TICKET]} {name.fence} {granted:.6f} {term:.6f}")
        return [(None, "")], 1

    def _renew(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        witness, now, renewed = self.witness, self.clock(), []
        longest = max(ttl for _, _, ttl in command.asked)
        if witness is None or witness.longest < longest or witness.valid_until <= now:
            return (), 0
        for key, token, ttl in command.asked:
            name = self.tables.names.get(key)
            if name is None or name.token != token or self._in_use(driver, key, "no key update"):
                continue
            if name.fence > witness.epoch and name.expires is not None and name.expires > now:
                until = max(now + ttl, name.expires) if name.members else now + ttl
                earlier, name.expires = until < name.expires, until
                if earlier:
                    self._call(name)
                renewed.append((token, name.fence, "", None))
        if renewed:
            self._writes()
        return renewed, len(renewed)

    # Readers.

    def _join_readers(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        key, token = command.name, command.token
        witness, name = self._open(command.ttl), self.tables.names.get(key)
        if name is None or witness is None or name.token != command.group:
            return (), 0
        place = self._position(name, token)
        before = 0 if command.past else self._before(name, place, token)
        if name.fence <= witness.epoch or before or token in name.members:
            return (), 0
        self._await_row(driver, key, "no key update", PATIENT)
        now = self.clock()
        if name.expires is None or name.expires <= now:
            return (), 0
        name.share((*name.members, token))
        name.expires = max(name.expires, now + command.ttl)
        if place is not None:
            del name.queue[place]
        self._writes()
        return [("",)], 1

    def _leave_readers(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        name = self.tables.names.get(command.name)
        if name is None or name.token != command.group or command.token not in name.members:
            return (), 0
        self._await_row(driver, command.name, "no key update", PATIENT)
        name.share(tuple(one for one in name.members if one != command.token))
        if not name.readers:
            name.token, name.expires = None, self.clock()
            self._call(name)
        self._writes(lazily=True)
        return [(None, "off")], 1

    def _call_readers(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        name = self.tables.names.get(command.name)
        if name is None or name.token != command.group:
            return (), 0
        return [(self._call_waiting_readers(name),)], 1

    def _attach(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        witness, now, key = self.witness, self.clock(), command.name
        name = self.tables.names.get(key)
        if witness is None or witness.longest < command.ttl or witness.valid_until <= now:
            return (), 0
        if name is None or name.token != command.token or self._in_use(driver, key, "update"):
            return (), 0
        if name.fence <= witness.epoch or name.expires is None or name.expires <= now:
            return (), 0
        if now + command.ttl < name.expires:
            self._call(name)
        name.token, name.owner, name.expires = command.new_token, command.owner, now + command.ttl
        self._writes()
        return [(name.fence, "", None)], 1

    # The witness.

    def _read_witness(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        witness, now = self.witness, self.clock()
        if witness is None:
            return (), 0
        longest = witness.longest if witness.valid_until > now else 0
        return [(witness.epoch, self.tables.cause, witness.opens - now, longest)], 1

    def _write_witness(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        tables, now = self.tables, self.clock()
        if self.witness is not None:
            return (), 0
        if tables.server == self.server:
            tables.opens = min(now + tables.longest, max(tables.opens, now))
        else:
            tables.server, tables.cause = self.server, "failover"
            reading = round((EPOCH.timestamp() + now) * 1e6)
            tables.epoch = reading if reading > tables.epoch else tables.epoch + 2**32
            tables.opens = now + tables.longest
        self.witness = Witness(tables.epoch, tables.longest, tables.opens, tables.opens + VALID)
        self._writes()
        return [(tables.epoch,)], 1

    def _announce_ttl(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        if self.witness is None:
            return (), 0
        self.tables.longest = max(self.tables.longest, command.ttl)
        self._writes()
        return [("",)], 1

    def _record_ttl(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        witness, ttl, now, tables = self.witness, command.ttl, self.clock(), self.tables
        if witness is None or tables.longest < ttl:
            return (), 0
        if witness.valid_until <= now:
            names = tables.names.values()
            left = max(((one.expires or 0.0) - now for one in names if one.token), default=0.0)
            before = min(tables.longest, max(left, 0.0)) if tables.longest > witness.longest else 0
            tables.longest = max(ttl, witness.longest, before)
            witness.longest, witness.valid_until = ttl, now + VALID
        else:
            witness.longest = max(witness.longest, ttl)
        self._writes()
        return (), 1

    # Row locks and guards.

    def _create(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        if command.name in self.tables.names:
            return (), 0
        self.tables.names[command.name] = Name(self._floor())
        self._writes()
        return (), 1

    # Names that are not used any more.

    def _floor(self) -> int:
        """The fence above which a new row begins."""
        return self.tables.names.get(FLOOR, Name()).fence

    def _unused(self, key: str, idle: float) -> bool:
        name, ago = self.tables.names[key], self.clock() - idle
        times = (name.expires, name.acquired)
        return not name.queue and all(time is None or time < ago for time in times)

    def _look_for_unused(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        keys = sorted(key for key in self.tables.names if key > command.after)[:PAGE]
        unused = [key for key in keys if self._unused(key, command.idle)]
        fence = max((self.tables.names[key].fence for key in unused), default=None)
        return [(keys[-1] if keys else None, fence)], 1

    def _raise_floor(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        if command.fence <= self._floor() and FLOOR in self.tables.names:
            return (), 0
        self.tables.names[FLOOR] = Name(command.fence)
        self._writes()
        return (), 1

    def _retire(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        retired = [
            key
            for key, name in self.tables.names.items()
            if command.after < key <= command.last and name.fence <= command.fence
            if self._unused(key, command.idle) and not self._in_use(driver, key, "update")
        ]
        for key in retired:
            del self.tables.names[key]
            self._writes()
        return (), len(retired)

    def _prune_values(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        values, ago = self.tables.values, self.clock() - command.age
        old = [key for key, (*_, at) in values.items() if at < ago and key not in self.tables.names]
        for key in old:
            del values[key]
            self._writes()
        now = self.clock() * 1e6
        for key, (tat, _, at) in tuple(self.tables.rates.items()):
            if at < ago and tat < now and key not in self.tables.names:
                del self.tables.rates[key]
                self._writes()
                old.append(key)
        return (), len(old)

    # What a leader tells.

    def _write_value(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        name, now = self.tables.names.get(command.name), self.clock()
        if name is None or name.token != command.token:
            return (), 0
        if name.expires is None or name.expires <= now:
            return (), 0
        written = self.tables.values.get(command.name, (0, "", 0.0))[0]
        if written > command.fence or command.name in self.tables.limits:
            return (), 0
        self.tables.values[command.name] = command.fence, command.value, now
        self._writes()
        assert isinstance(query.params, dict)
        self._calls.append(query.params["topic"])
        return [(command.fence, "", "")], 1

    def _read_leader(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        name, witness, now = self.tables.names.get(command.name), self.witness, self.clock()
        if name is None:
            return (), 0
        lasts = name.token is not None and name.expires is not None and name.expires > now
        leads = lasts and not is_shared(name.token or "")
        leads = leads and witness is not None and name.fence > witness.epoch
        fence, value, _ = self.tables.values.get(command.name, (0, "", 0.0))
        since = _moment(name.acquired) if leads else None
        left = name.expires - now if name.expires is not None else None
        told = (value or None, fence or None)
        return [(leads, name.owner, name.fence, since, left, name.token, *told)], 1

    def _call_observers(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        assert isinstance(query.params, dict)
        self._calls.append(query.params["topic"])
        return [("", "off")], 1

    def _lock_row(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        key = command.name
        name, opened = self.tables.names.get(key), self._open() is not None
        free = name is not None and (
            name.token is None or name.expires is None or name.expires <= self.clock()
        )
        if name is None or not free or not opened:
            return [(True, None, opened)], 1
        if "SKIP LOCKED" in query.sql and self._in_use(driver, key, "update"):
            return [(True, None, opened)], 1
        # The server counts in milliseconds, and has none for what is without a limit.
        patience = milliseconds(query.patience) / 1000 or None
        self._await_row(driver, key, "update", patience)
        driver.locked[key] = "update"
        return [(True, name.fence, opened)], 1

    def _guard(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        key, witness = command.name, self.witness
        name = self.tables.names.get(key)
        if name is None or (name.fence, name.token) != (command.fence, command.token):
            return (), 0
        if witness is None or name.fence <= witness.epoch or self._in_use(driver, key, "key share"):
            return (), 0
        driver.locked.setdefault(key, "key share")
        return [(name.fence,)], 1

    # Waiters.

    def _register(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        now = self.clock()
        row = self.tables.waiters.get(command.id) or {
            **dict(zip(command._fields, command, strict=True)),
            "since": now - command.waited,
        }
        holds = json.dumps(command.holds) if command.holds else None
        self.tables.waiters[command.id] = row | {"expires": now + command.lasts, "holds": holds}
        self._writes(lazily=True)
        return (), 1

    def _unregister(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        found = self.tables.waiters.pop(command.id, None) is not None
        if found:
            self._writes(lazily=True)
        return (), int(found)

    def _sweep(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        over = [id for id, row in self.tables.waiters.items() if row["expires"] <= self.clock()]
        for id in over:
            del self.tables.waiters[id]
            self._writes(lazily=True)
        return (), len(over)

    def _list_waiters(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        now, only = self.clock(), command.name
        rows = [
            (row["name"], row["owner"], row["strategy"], _moment(row["since"]), now - row["since"])
            for row in sorted(self.tables.waiters.values(), key=lambda row: row["since"])
            if row["expires"] > now and only in (None, row["name"])
        ]
        return rows, len(rows)

    def _list_runs(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        return (), 0  # no job is in the model

    _list_held_runs = _list_runs

    def _list_row_locks(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        command: Any = query.command
        rows = [
            (key, other.number, "somebody", "", None, None, False)
            for other in self._drivers.values()
            for key, mode in other.locked.items()
            if mode == "update" and command.name in (None, key)
        ]
        return rows, len(rows)

    def _list_blocked(self, driver: ModelDriver, query: Query[Any]) -> Answer:
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

    def _end_session(self, driver: ModelDriver, query: Query[Any]) -> Answer:
        """End another session: a row for as long as it is there."""
        command: Any = query.command
        other = self._drivers.get(int(command.number))
        for link in tuple(self.links):
            if link.driver is other:
                link.break_off()
        return ((), 0) if other is None else ([(True,)], 1)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


def _token(entry: str) -> str:
    """Return the token of who stands in the queue with an entry."""
    return entry[TICKET : TICKET + 32]
