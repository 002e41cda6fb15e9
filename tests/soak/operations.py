"""From events to operations: holds and writes, with what is certain of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from .history import Event

# Reasons of a loss that say what happened, unlike "unknown" and "connection lost".
CERTAIN = ("expired", "taken over", "forced")


@dataclass(slots=True)
class Operation:
    """The events of one operation: sent, perhaps a commit, perhaps an outcome."""

    events: list[Event]

    @property
    def sent(self) -> Event:
        return self.events[0]

    @property
    def end(self) -> Event | None:
        """Its outcome; None of an operation whose process was killed first."""
        last = self.events[-1]
        return last if last.step in ("ok", "failed", "unknown", "error") else None

    @property
    def outcome(self) -> str:
        return "unknown" if self.end is None else self.end.step

    @property
    def name(self) -> str:
        return str(self.sent.detail["name"])


@dataclass(slots=True)
class Write(Operation):
    """``commit`` is when its commit was about to be sent; None when it never was."""

    @property
    def id(self) -> str:
        return f"{self.sent.process}:{self.sent.op}"

    @property
    def fence(self) -> int:
        return int(self.sent.detail["fence"])

    @property
    def commit(self) -> float | None:
        return next((event.at for event in self.events if event.step == "commit"), None)


@dataclass(slots=True)
class Hold:
    """One acquired lease. From ``start`` to ``end`` its holder is certain to have believed in it.

    ``start`` is when acquire had returned. ``end`` is the first of: its release was sent; its own
    deadline, of which a time no later than the true one is known; the last time that it was seen
    believing, where it was told a loss after that. ``sent`` is when it was asked for, and before
    ``began`` it was not granted.
    """

    name: str
    fence: int
    sent: float
    start: float
    deadline: float
    began: float
    end: float = 0.0
    events: list[Event] = field(default_factory=list)
    #: A loss that it was told while it had, by its own clock, time left.
    early_loss: Event | None = None


@dataclass(slots=True)
class Operations:
    """All that was done."""

    all: list[Operation]
    holds: list[Hold]
    writes: list[Write]
    probes: list[Operation]


def gather(events: Iterable[Event], prober: str) -> Operations:
    """Put together the events of each operation, and the operations of each hold."""
    grouped: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events:
        grouped[event.process, event.op].append(event)
    done = [Write(of) if of[0].kind == "write" else Operation(of) for of in grouped.values()]
    done.sort(key=lambda operation: operation.sent.at)
    holds: dict[tuple[str, int], Hold] = {}
    later: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for operation in done:
        sent, end = operation.sent, operation.end
        if sent.kind == "acquire" and end is not None and end.step == "ok":
            holds[sent.process, sent.op] = Hold(
                sent.detail["name"],
                end.detail["fence"],
                sent.at,
                end.at,
                end.detail["deadline"],
                end.detail.get("began", sent.at),
                events=list(operation.events),
            )
        elif "hold" in sent.detail:
            later[sent.process, sent.detail["hold"]].append(operation)
    for key, hold in holds.items():
        _follow(hold, later[key])
    return Operations(
        done,
        sorted(holds.values(), key=lambda hold: hold.start),
        [operation for operation in done if isinstance(operation, Write)],
        [one for one in done if one.sent.process == prober and one.sent.kind == "acquire"],
    )


def _follow(hold: Hold, operations: list[Operation]) -> None:
    """Find out how long the holder believed, from what it did while it held."""
    hold.end = hold.deadline
    for operation in operations:
        sent, end = operation.sent, operation.end
        hold.events += operation.events
        lost = end is not None and end.step == "failed" and is_loss(end)
        if end is not None and lost:
            # All that is certain is that it believed before this.
            hold.end = min(hold.deadline, sent.at)
            if end.at < hold.deadline and end.detail.get("reason") in CERTAIN:
                hold.early_loss = end
        elif sent.kind == "release":
            hold.end = min(hold.deadline, sent.at)
        elif end is not None and end.step == "ok" and "deadline" in end.detail:
            hold.deadline = max(hold.deadline, end.detail["deadline"])
            hold.end = hold.deadline
            continue
        else:
            continue
        return


def is_loss(event: Event) -> bool:
    return event.detail.get("error") == "LockLost" or event.kind == "inside"
