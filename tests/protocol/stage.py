"""A database's part, played from a script: what it answers to each step of a protocol.

The answers are words, the same for all databases; how a word is put into rows differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from dblock import DBLockError, Timeouts
from dblock.dialects import DIALECTS, Dialect
from dblock.dialects.query import Result
from dblock.protocol import commands
from dblock.protocol.exchange import Exchange
from dblock.protocol.faults import Fault, StatementError
from dblock.protocol.lease import Held, Refused
from dblock.protocol.rate import TakePlace
from dblock.protocol.row_lock import Locked
from dblock.protocol.schema_version import SCHEMA_VERSION
from dblock.protocol.state import Passed, Place
from dblock.protocol.steps import (
    Disown,
    Execute,
    ExecuteInTransaction,
    ExecuteOnSession,
    ForgetTransaction,
    Procedure,
    Reply,
    Sleep,
    Step,
    Turn,
    WaitNotification,
    WaitTurn,
)
from dblock.protocol.term import FIRST_TERM, Term
from dblock.protocol.waiters import Caller, Waiter
from tests.protocol.record_rows import USUAL as USUAL_RECORDS
from tests.protocol.record_rows import is_in_packet, record_rows
from tests.servers import FAMILY

Rows = Sequence[Sequence[Any]]
#: For each word of a step its answers, one after the other, then the usual one. One that begins
#: with "!" is a fault; one that ends with "late" comes after the lease is over.
Script = Mapping[str, Sequence[str]]

START, TTL = 1000.0, 30.0

#: Where the tables are.
TABLES = {
    "postgresql": Place("0123456789abcdef0123456789abcdef", "public", "shop", "745"),
    "mariadb": Place("0123456789abcdef0123456789abcdef", "shop"),
    "mysql": Place("0123456789abcdef0123456789abcdef", "shop"),
    "sqlite": Place("0123456789abcdef0123456789abcdef", "main", "/srv/shop.db"),
}


def located(kind: str, *, clustered: bool = False) -> Dialect:
    """A database's statements once it is known where the tables are."""
    made = DIALECTS[kind](None, "dblock_", Timeouts())
    made.settle(TABLES[kind]._replace(clustered=clustered))
    return made


LATENCY, LATE = 0.001, 40.0
AHEAD = 500.0  # of the holder's clock, the database's
MOST = 60  # steps that are written down

THEN = datetime(2026, 1, 1)
#: The token of one who shares, and that of those who have the name.
READER, READERS = "shared" + "m" * 26, "shared" + "t" * 26
STATES = {
    "held": ("report", 2, "its token", "another", THEN, THEN, 25.0, None),
    "free": ("report", 2, None, "another", THEN, THEN, -1.0, None),
    "mine": ("report", 3, "token", "me", THEN, THEN, 29.0, None),
    "detached": ("report", 3, "old token", "another", THEN, THEN, 29.0, None),
    "run out": ("report", 3, "old token", "another", THEN, THEN, -1.0, None),
    "attached": ("report", 3, "its token", "another", THEN, THEN, 29.0, None),
    "abandoned": ("report", 3, "its token", "another", THEN, THEN, -1.0, None),
    "released": ("report", 3, None, "another", THEN, THEN, -1.0, None),
    "shared": ("report", 2, READERS, "another", THEN, THEN, 25.0, None),
    "joined": ("report", 2, READERS, "another", THEN, THEN, 29.0, f"{READERS} {READERS} {READER}"),
    "followed": ("report", 4, "its token", "another", THEN, THEN, 25.0, None),
}
#: What who waits hears: that it is its turn, or what was passed on to it, and how long ago.
CALLS: dict[str, tuple[int, float] | None] = {
    "called": None,
    "passed on": (3, LATENCY),
    "passed on again": (2, LATENCY),
    "passed on long ago": (3, FIRST_TERM / 2 + LATENCY),
}
#: Where a ticket stands: how many are before it, and whether it may take the name.
PLACES = {
    "first": (0, False),
    "second": (1, False),
    "first, shared": (0, False),
    "second, shared": (1, False),
    "out, shared": (None, False),
    "turn": (0, True),
    "out": (None, False),
    "out, free": (None, True),
}
END = commands.EndSession(1, "the session")
HELD = Held(3, Term(START, TTL), "server")
USUAL = {
    "grant": "refused",
    "join": "first",
    "take": "granted",
    "wait_in_server": "first",
    "look": "held",
    "look_queued": "first",
    "read_witness": "there",
    "renew": "renewed",
    "attach": "attached",
    "join_readers": "joined",
    "leave_readers": "left",
    "call_readers": "called",
    "release": "released",
    "pass_on": "released",
    "release_and_unlock": "released",
    "create": "created",
    "lock_row": "locked",
    "guard": "given",
    "look_around": "here",
    "end_session": "gone",
    "take_place": "taken",
    "wait_turn": "in front",
    "wait_notification": "in vain",
    **USUAL_RECORDS,
}
LOST = "!disconnected"
# Seconds.
PATIENCE = 0.2


class Stage:
    """One database, at one moment of its script."""

    def __init__(self, kind: str, script: Script) -> None:
        self.dialect = located(kind)
        self.now = START
        self.lines: list[str] = []
        self._left = {word: list(answers) for word, answers in script.items()}

    def exchange(
        self, name: str = "report", *, wait: float | None = None, timeout: float = PATIENCE
    ) -> Exchange:
        """Return the exchange of a call that begins with the scene."""
        return Exchange(self.dialect, name, START, wait, timeout, START)

    def waiter(self, strategy: str, holds: Mapping[str, int | None]) -> Waiter:
        return Waiter(
            self.dialect,
            "report",
            strategy,
            START,
            Caller(
                owner=lambda: "me",
                holds=lambda: holds,
                new_id=lambda: "id",
                seen={},
            ),
        )

    # --- the play ----------------------------------------------------------------------------

    def play(self, protocol: Procedure[Any]) -> list[str]:
        """Return what the protocol asked for and was told, step by step, and what came of it."""
        reply: Any = None
        failure: StatementError | None = None
        while len(self.lines) < MOST:
            try:
                step = protocol.throw(failure) if failure else protocol.send(reply)
            except StopIteration as stop:
                return [*self.lines, f"= {_told(stop.value)}"]
            except (DBLockError, ValueError) as error:
                return [*self.lines, f"= {type(error).__name__}"]
            failure = None
            try:
                reply = self._perform(step)
            except StatementError as caught:
                failure = caught
                failure.now = self.now
        protocol.close()
        return [*self.lines, "..."]

    def _perform(self, step: Step) -> Reply[Any]:
        said, word = _said(step), _word(step)
        answer = self._answer(word)
        self.lines.append(f"{said:<28} {answer}".rstrip())
        sent = self.now
        match step:
            case WaitNotification() if answer in CALLS:
                self.now += LATENCY
            case Sleep() | WaitNotification():
                self.now += step.seconds
            case WaitTurn() if answer == "not in front":
                self.now += step.seconds or 0.0
            case _:
                self.now += LATE if answer.endswith("late") else LATENCY
        if answer.startswith("!"):
            fault = Fault[answer.split()[0][1:].upper()]
            lost = fault is Fault.DISCONNECTED and "for good" not in answer
            raise StatementError(fault, answer, end=END if lost else None)
        return Reply(self._read(step, answer.removesuffix(" late")), sent, self.now, "server")

    def _answer(self, word: str) -> str:
        answers = self._left.get(word)
        return answers.pop(0) if answers else USUAL.get(word, "")

    # --- the words in rows -------------------------------------------------------------------

    def _read(self, step: Step, answer: str) -> Any:
        match step:
            case WaitTurn(look=look):
                listening = bool(step.server) or answer.endswith("listening")
                listening = listening and not answer.endswith("deaf")
                called = self.dialect.traits.can_notify and listening
                ticket = "ticket" if called else "looking" if look else None
                in_front = answer.startswith("in front")
                if in_front or answer == "alarm":
                    first = Turn(True, ticket, called)
                    return first if in_front else Turn(first=False, alarmed=True)
                return None
            case WaitNotification():
                return self._passed(answer) or answer in CALLS
            case Execute(commands.EndSession()):  # SQLite has none
                return answer != "gone"
            case Execute(command) | ExecuteInTransaction(command) | ExecuteOnSession(command):
                rows = self._found(command, answer)
                if self.dialect.name == "mysql" and is_in_packet(command):
                    rows = [(False, *row) for row in rows]
                return self.dialect.query(command).read(Result(rows, len(rows)))
            case _:
                return None

    def _passed(self, answer: str) -> Passed | None:
        passed = CALLS.get(answer)
        if passed is None:
            return None
        fence, ago = passed
        return Passed(fence, self._clock - ago, FIRST_TERM)

    @property
    def _clock(self) -> float:
        """The database's clock."""
        return self.now + AHEAD

    def _found(self, command: commands.Command[Any], answer: str) -> Rows:
        yes: Rows = [(1,)]
        match command:
            case commands.LookAround():
                return self._around(answer)
            case commands.Grant() | commands.Take():
                return self._granted(answer)
            case commands.Join():
                return self._joined(answer)
            case commands.WaitInServer():
                return [(answer != "at once",)]
            case commands.Look(names):
                return [] if answer == "none" else [STATES[answer] for _ in names]
            case commands.LookQueued():
                if answer == "mine":
                    return [(*STATES["mine"], *self._place(None, False))]
                if answer == "nothing":
                    return []
                return [(*_state(answer), *self._place(*PLACES[answer]))]
            case commands.ReadWitness():
                pause, longest = 1.5 if answer == "pause" else -1.0, 3600.0
                longest *= 10 if answer == "longer" else 1
                return [] if answer == "missing" else [(1, None, pause, longest)]
            case commands.Renew(asked):
                return [(one.token, 3) for one in asked] if answer == "renewed" else []
            case commands.Attach():
                return [(3,)] if answer == "attached" else []
            case commands.SelectForUpdate(borrowed=borrowed):
                return self._row(answer, borrowed=borrowed)
            case commands.Leave() | commands.JoinReaders() | commands.LeaveReaders():
                return [] if answer == "none" else yes
            case (
                commands.Release()
                | commands.PassOn()
                | commands.ReleaseAndUnlock()
                | commands.Guard()
            ):
                return yes if answer in ("released", "given") else []
            case commands.Create():
                return yes if answer == "created" else []
            case TakePlace(mark=mark, step=step):
                return self._arrived(answer, mark, step)
            case commands.SeeHidden(table):
                return [(table, "CREATE TEMPORARY TABLE")]
            case commands.ListBlocked() | commands.ListRowLocks():
                return []
            case command:
                rows = record_rows(command, answer)
                return yes if rows is None else rows

    def _around(self, answer: str) -> Rows:
        here = TABLES[self.dialect.name]
        told = [getattr(here, what) for what in self.dialect.found]
        identity = here.identity if answer == "here" else answer
        return [(*told, SCHEMA_VERSION, SCHEMA_VERSION, identity)]

    def _granted(self, answer: str) -> Rows:
        if answer == "granted":
            return [(3, TTL, "token")]
        return []

    def _joined(self, answer: str) -> Rows:
        nothing: tuple[object, ...] = (None,) * 11
        if answer == "granted" and self.dialect.traits.can_notify:
            return [(3, TTL, "", *nothing)]
        if answer == "granted":
            return [(3, TTL, "token", *STATES["mine"], None, False)]
        if answer == "nothing":
            return []
        grant = (2, 25.0, "its token") if self.dialect.name in FAMILY else (None, None, None)
        return [(*grant, *_state(answer), *self._place(*PLACES[answer]))]

    def _arrived(self, answer: str, mark: str, step: int) -> Rows:
        """A rate limit with a burst of one: its TAT, and whose it is."""
        now = round(self._clock * 1e6)
        tats = {"taken": now + step, "taken, for later": now + 2 * step, "refused": now + step}
        if answer == "nothing":
            return []
        if answer == "a semaphore's":
            return [("3", 0, now)]
        # A snapshot from before another call has taken the place.
        tat = now - step if answer == "taken meanwhile" else tats[answer]
        return [(mark if answer.startswith("taken") and answer in tats else "another", tat, now)]

    def _place(self, before: int | None, free: bool) -> tuple[object, ...]:
        return (before, free, self._clock) if self.dialect.traits.can_notify else (before, free)

    def _row(self, answer: str, *, borrowed: bool) -> Rows:
        locked = answer == "locked"
        if self.dialect.name != "postgresql":
            return [(3,)] if locked else []
        row = (answer != "stale", 3 if locked else None)
        return [(*row, *(("0", answer != "elsewhere") if borrowed else ()), answer != "closed")]


class Scene(NamedTuple):
    """A play: its procedure, what the database answers, and the databases that it is for."""

    title: str
    make: Callable[[Stage], Procedure[Any]]
    script: Script = MappingProxyType({})
    kinds: tuple[str, ...] = tuple(sorted(DIALECTS))


def _state(place: str) -> tuple[object, ...]:
    """Return the state of a name where a ticket stands so."""
    if place.endswith("shared"):
        return STATES["shared"]
    return STATES["free" if PLACES[place][1] else "held"]


def _said(step: Step) -> str:
    match step:
        case Execute(commands.PassOn(passes=False)):
            return "pass_on, to nobody"
        case Execute(command):
            return command.word
        case ExecuteInTransaction(command):
            return f"in transaction: {command.word}"
        case ExecuteOnSession(command):
            return f"on session: {command.word}"
        case Sleep(seconds) | WaitNotification(seconds):
            return f"{_word(step)} {seconds:.3g}"
        case WaitTurn(seconds=seconds):
            return "wait_turn" if seconds is None else f"wait_turn {seconds:.3g}"
        case _:
            return _word(step)


def _word(step: Step) -> str:
    match step:
        case Execute(command) | ExecuteInTransaction(command) | ExecuteOnSession(command):
            return command.word
        case ForgetTransaction() | Sleep() | WaitTurn() | WaitNotification() | Disown():
            return commands.word(type(step).__name__)


def _told(outcome: object) -> str:
    match outcome:
        case Held(fence=fence, contended=contended):
            return f"held, fence {fence}{', contended' if contended else ''}"
        case Refused() | Locked():
            return type(outcome).__name__.lower()
        case Term(ttl=ttl):
            return f"until {ttl:g} s after it was asked for"
        case float():
            return f"refused, for {outcome:.3g} s"
        case _:
            return "done"
