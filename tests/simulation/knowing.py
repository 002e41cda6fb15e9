"""What the answers have told each thread: what became of its tries, and which holds it has seen."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum, auto
from typing import Any

from dblock.dialects.adapter import Answer
from tests.simulation.errors import Lost
from tests.simulation.loop import Actor
from tests.simulation.transport import kind_of

_TRIES = frozenset({"grant", "take", "join"})
_LOOKS = frozenset({"look", "look_queued"})


class Doubt(Enum):
    """Whether anything that was asked for may have been granted, or be so yet."""

    NONE = auto()
    OPEN = auto()
    #: A look has found it.
    FOUND = auto()


class Knowing:
    """What each thread can know of the name that it tries to get."""

    def __init__(self) -> None:
        self._doubts: defaultdict[Actor, Doubt] = defaultdict(lambda: Doubt.NONE)
        #: How many sessions have not ended yet that a try was lost with; and the tries' tokens.
        self._sessions: defaultdict[Actor, int] = defaultdict(int)
        self._tokens: defaultdict[Actor, set[str]] = defaultdict(set)
        self._seen: dict[tuple[Actor, str], int] = {}

    def begin(self, actor: Actor) -> None:
        """A thread begins to try."""
        self._doubts[actor] = Doubt.NONE
        self._sessions[actor] = 0
        self._tokens[actor].clear()

    def doubt(self, actor: Actor) -> Doubt:
        return self._doubts[actor]

    def seen(self, actor: Actor, name: str) -> int:
        """The highest fence of a name that a thread was told, in whatever answer."""
        return self._seen.get((actor, name), 0)

    def told(self, actor: Actor, query: Any, answer: Answer | BaseException) -> None:
        """A thread has an answer, or hears that it gets none."""
        kind = kind_of(query)
        if kind in _TRIES and isinstance(answer, Lost):
            self._doubts[actor] = Doubt.OPEN
            self._sessions[actor] += 1
            self._tokens[actor].add(query.command.token)
        elif isinstance(answer, BaseException):
            return
        elif kind == "end_session" and not answer[0]:
            self._sessions[actor] -= 1
        elif kind in _LOOKS:
            self._look(actor, answer)

    def _look(self, actor: Actor, answer: Answer) -> None:
        rows = answer[0]
        for name, fence, *_ in rows:
            self._seen[actor, name] = max(fence, self.seen(actor, name))
        if self._doubts[actor] is Doubt.NONE:
            return
        if any(row[2] in self._tokens[actor] for row in rows):
            self._doubts[actor] = Doubt.FOUND
        elif self._sessions[actor] <= 0:
            self._doubts[actor] = Doubt.NONE
