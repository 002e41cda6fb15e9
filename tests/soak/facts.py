"""What a history is, and what several rules ask of it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .history import PROBE, RESTORED, Event
from .ledger import Ledger, Row
from .operations import Hold, Operations, gather


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong, and the events that show it."""

    what: str
    events: Sequence[Event] = ()
    rows: Sequence[Row] = ()


@dataclass(slots=True)
class Rule:
    """One rule: what it says, how many things it was applied to, and where it was broken."""

    name: str
    says: str
    checked: int = 0
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class History:
    """All that a soak leaves behind."""

    events: Sequence[Event]
    ledger: Ledger
    names: Sequence[str]
    #: Whether the database knows of a waiter in the queue that it has died.
    sees_deaths: bool = True
    #: Whether what was committed outlives the faults; not where a standby may have missed it.
    keeps_commits: bool = True


class Facts:
    """What several rules ask of a history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.operations: Operations = gather(history.events, PROBE)
        self.holds: dict[str, list[Hold]] = defaultdict(list)  # of each name, by their starts
        for hold in self.operations.holds:
            self.holds[hold.name].append(hold)
        self.writes = {write.id: write for write in self.operations.writes}
        self.rows = {row.id: row for row in history.ledger.rows}
        self.logs: dict[str, list[Row]] = {name: [] for name in history.names}
        for row in sorted(history.ledger.rows, key=lambda row: row.place):
            self.logs.setdefault(row.name, []).append(row)

    def forgotten(self, start: float, end: float) -> bool:
        """Whether a member of a quorum was restored in this time. It has lost what it had granted,
        and with that a hold that two of three members have loses its majority."""
        return any(
            one.sent.detail.get("fault") == RESTORED
            and one.sent.at <= end
            and (one.end is None or one.end.at >= start)
            for one in self.operations.all
        )

    def events(self, row: Row) -> list[Event]:
        """What is known of a row's write."""
        write = self.writes.get(row.id)
        return write.events if write else []


Found = tuple[int, Iterable[Violation]]
