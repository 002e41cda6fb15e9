"""A check's argument, the patient, and its results, the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..dialects import Dialect
    from ..dialects.look_alikes import LookAlike
    from ..io.connecting import OwnConnection


class Level(Enum):
    """``OK``; ``NOTE``: worth knowing, but no promise is broken; ``WRONG``: a promise is broken."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one of the doctor's checks.

    ``what`` names the check, and ``found`` is the fact. If the level is not OK, ``consequence``
    says what follows from that, and ``fix`` says what to do. If ``fix`` has statements, each is on
    a separate line, so that you can paste them.
    """

    what: str
    level: Level
    found: str
    consequence: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A reading of the server's clock, between two moments of this host's monotonic clock."""

    there: datetime
    before: float
    after: float


class Ask(Protocol):
    def __call__(self, sql: str, **params: object) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True, slots=True)
class Patient:
    """A database. ``ask`` runs a statement on one of dblock's own connections.

    ``looks`` are the readings of its clock so far.
    """

    dialect: Dialect
    connection: OwnConnection
    ask: Ask
    looks: list[ClockReading] = field(default_factory=list)


Check = Callable[[Patient], Iterable[Finding]]

RESTORE_KEY = "restore the primary key; this prints its definition:\ndblock upgrade --sql"


def ok(what: str, found: str) -> Finding:
    return Finding(what, Level.OK, found)


def note(what: str, found: str, consequence: str, fix: str) -> Finding:
    return Finding(what, Level.NOTE, found, consequence, fix)


def wrong(what: str, found: str, consequence: str, fix: str) -> Finding:
    return Finding(what, Level.WRONG, found, consequence, fix)


def trusted(other: LookAlike) -> Finding:
    """Return the finding for a server that dblock uses only because of ``trust_server``."""
    return wrong(
        "server",
        f"{other.name}: {other.reason}",
        "dblock promises nothing on this server",
        "use PostgreSQL, MariaDB, MySQL or SQLite itself",
    )
