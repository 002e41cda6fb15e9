"""What the doctor looks at, and what it can say."""

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
    """``NOTE``: it works, and here is what to know. ``WRONG``: a promise does not hold."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at and found; if it is not well, what comes of it and what mends it."""

    what: str
    level: Level
    found: str
    consequence: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What the server's clock said, between two moments of a clock here that nobody sets."""

    there: datetime
    before: float
    after: float


class Ask(Protocol):
    def __call__(self, sql: str, **params: object) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True, slots=True)
class Patient:
    """A database. ``ask`` runs a statement on a connection of dblock's own.

    ``looks`` are those at its clock so far.
    """

    dialect: Dialect
    connection: OwnConnection
    ask: Ask
    looks: list[Look] = field(default_factory=list)


Check = Callable[[Patient], Iterable[Finding]]


def ok(what: str, found: str) -> Finding:
    return Finding(what, Level.OK, found)


def note(what: str, found: str, consequence: str, mend: str) -> Finding:
    return Finding(what, Level.NOTE, found, consequence, mend)


def wrong(what: str, found: str, consequence: str, mend: str) -> Finding:
    return Finding(what, Level.WRONG, found, consequence, mend)


def trusted(other: LookAlike) -> Finding:
    """Return what is to be said of a server that is used only because it is trusted."""
    return wrong(
        "server", f"{other.name}: {other.reason}", "nothing is promised", "use the real server"
    )
