"""What the answers have told each thread: what became of its tries, and which holds it has seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from dblock.dialects.adapter import Answer
from dblock.dialects.values import text
from tests.simulation.errors import Lost
from tests.simulation.loop import Actor
from tests.simulation.transport import kind_of

_TRIES = frozenset({"grant", "grant_slot", "take", "join", "join_readers", "attach"})
_LOOKS = frozenset({"look", "look_queued"})


class Doubt(Enum):
    """Whether anything that was asked for may have been granted, or be so yet."""

    NONE = auto()
    OPEN = auto()
    #: A look has found it.
    FOUND = auto()


@dataclass(slots=True)
class Tries:
    """What became of a thread's tries to get a name."""

    doubt: Doubt = Doubt.NONE
    #: How many sessions have not ended yet that a try was lost with; and the tries' tokens.
    sessions: int = 0
    tokens: set[str] = field(default_factory=set)


class Knowing:
    """What each thread can know of the names that it tries to get."""

    def __init__(self) -> None:
        self._tries: defaultdict[tuple[Actor, str], Tries] = defaultdict(Tries)
        #: Of which name a thread has lost a try last.
        self._lost: dict[Actor, str] = {}
        self._seen: dict[tuple[Actor, str], int] = {}

    def begin(self, actor: Actor, name: str) -> None:
        """A thread begins to try."""
        self._tries[actor, name] = Tries()

    def doubt(self, actor: Actor, name: str) -> Doubt:
        return self._tries[actor, name].doubt

    def seen(self, actor: Actor, name: str) -> int:
        """The highest fence of a name that a thread was told, in whatever answer."""
        return self._seen.get((actor, name), 0)

    def told(self, actor: Actor, query: Any, answer: Answer | BaseException) -> None:
        """A thread has an answer, or hears that it gets none."""
        kind = kind_of(query)
        if kind in _TRIES and isinstance(answer, Lost):
            tries = self._tries[actor, query.command.name]
            tries.doubt = Doubt.OPEN
            tries.sessions += 1
            command = query.command
            tries.tokens.add(command.new_token if kind == "attach" else command.token)
            self._lost[actor] = query.command.name
        elif isinstance(answer, BaseException):
            return
        elif kind == "end_session" and not answer[0] and actor in self._lost:
            self._tries[actor, self._lost[actor]].sessions -= 1
        elif kind in _LOOKS:
            command = query.command
            names = (command.name,) if kind == "look_queued" else command.names
            for name in names:
                self._look(actor, name, [row for row in answer[0] if text(row[0]) == name])

        elif kind == "look_at_slots":
            rows = [row[1:] for row in answer[0] if row[1] is not None]
            for row in rows:
                self._note(actor, text(row[0]), row[1])
            self._settle(actor, query.command.name, rows)

    def _look(self, actor: Actor, name: str, rows: Sequence[Sequence[Any]]) -> None:
        for _, fence, *_ in rows:
            self._note(actor, name, fence)
        self._settle(actor, name, rows)

    def _note(self, actor: Actor, name: str, fence: int) -> None:
        self._seen[actor, name] = max(fence, self.seen(actor, name))

    def _settle(self, actor: Actor, name: str, rows: Sequence[Sequence[Any]]) -> None:
        tries = self._tries[actor, name]
        if tries.doubt is Doubt.NONE:
            return
        if any(row[2] in tries.tokens or _among(row, tries.tokens) for row in rows):
            tries.doubt = Doubt.FOUND
        elif tries.sessions <= 0:
            tries.doubt = Doubt.NONE


def _among(row: Sequence[Any], tokens: set[str]) -> bool:
    """Whether one of the tokens is on the list of those who share a hold."""
    listed = row[7]
    return isinstance(listed, str) and not tokens.isdisjoint(listed.split(" "))
