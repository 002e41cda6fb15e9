"""What differs from the plain course of events, as one line of text.

::

    a.grant#2+1.5           a's second grant reaches the server 1.5 s later
    a.release#1>b.look#1    a's release comes right after b's look
    b.grant#1!unanswered    b's grant is carried out, its reply never comes
    a.renew#1!pause:8       a is stopped for 8 s when its renewal has been sent

Events go by their labels, so a line keeps its meaning when other kinds of events are added. What
names an event that does not come has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

#: An event that is to come after another waits so many seconds for it.
HELD_MAX = 2.0

_LABEL = r"[\w.~-]+#\d+(?:<[a-z-]*)?"
_DEVIATION = re.compile(
    rf"(?P<label>{_LABEL})(?:\+(?P<delay>[\d.]+)|>(?P<after>{_LABEL})"
    r"|!(?P<fault>[a-z-]+)(?::(?P<seconds>[\d.]+))?)"
)


def label_kind(label: str) -> str:
    """Return the kind of a request, or what else an event is, by its label."""
    return label.rpartition(".")[2].split("#")[0]


@dataclass(frozen=True, slots=True)
class Later:
    """An event comes so many seconds later."""

    seconds: float

    def __str__(self) -> str:
        return f"+{self.seconds:g}"


@dataclass(frozen=True, slots=True)
class After:
    """An event comes right after another, or when that has not come for a while."""

    label: str

    def __str__(self) -> str:
        return f">{self.label}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something fails at an event; for so many seconds, where that makes sense."""

    kind: str
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"!{self.kind}:{self.seconds:g}" if self.seconds else f"!{self.kind}"


Change = Later | After | Fault

#: A request arrives when its connection was given up: where it has a way to go, to a server.
LATE = (Fault("late", 1.0), Fault("late", 9.0))


@dataclass(frozen=True, slots=True)
class Schedule:
    """The deviations by the labels of the events they are about, in the order they were added."""

    changes: tuple[tuple[str, Change], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the schedule that a line tells. Raises ValueError for what is none."""
        found: list[tuple[str, Change]] = []
        for word in text.split():
            match = _DEVIATION.fullmatch(word)
            if match is None:
                raise ValueError(f"{word!r} is no deviation: see tests/simulation/schedule.py")
            label, delay, after, fault, seconds = match.groups()
            if delay is not None:
                found.append((label, Later(float(delay))))
            elif after is not None:
                found.append((label, After(after)))
            else:
                found.append((label, Fault(fault, float(seconds or 0))))
        return cls(tuple(found))

    def __str__(self) -> str:
        return " ".join(f"{label}{change}" for label, change in self.changes)

    def plus(self, label: str, change: Change) -> Schedule:
        return Schedule((*self.changes, (label, change)))

    def without(self, number: int) -> Schedule:
        return Schedule(self.changes[:number] + self.changes[number + 1 :])

    def of(self, label: str) -> Iterable[Change]:
        return (change for of, change in self.changes if of == label)

    @property
    def faults(self) -> list[Fault]:
        return [change for _, change in self.changes if isinstance(change, Fault)]

    @property
    def delayed(self) -> float:
        """Seconds by which anything comes later."""
        return sum(
            0.0 if isinstance(change, Fault) else getattr(change, "seconds", HELD_MAX)
            for _, change in self.changes
        )
