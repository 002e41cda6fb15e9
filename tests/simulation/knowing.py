"""What the answers have told each thread: what became of its tries, and which holds it has seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from dblock.dialects.adapter import Answer
from dblock.dialects.query import Result
from dblock.dialects.values import text
from dblock.protocol.faults import StatementError
from tests.simulation.errors import Lost
from tests.simulation.loop import Actor
from tests.simulation.transport import kind_of

if TYPE_CHECKING:
    from tests.simulation.ledger import Ledger

_TRIES = frozenset({"grant", "grant_slot", "take", "join", "join_readers", "attach"})
_LOOKS = frozenset({"look", "look_queued"})
_ENDS = frozenset({"release", "pass_on", "leave_readers"})


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
    #: What was granted, or stands in the queue, and no answer has told that this is over.
    left: set[str] = field(default_factory=set)


class Knowing:
    """What each thread can know of the names that it tries to get."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tries: defaultdict[tuple[Actor, str], Tries] = defaultdict(Tries)
        #: Of which name a thread has lost a try last.
        self._lost: dict[Actor, str] = {}
        self._seen: dict[tuple[Actor, str], int] = {}

    def begin(self, actor: Actor, name: str) -> None:
        """A thread begins to try."""
        self._tries[actor, name] = Tries()

    def doubt(self, actor: Actor, name: str) -> Doubt:
        return self._tries[actor, name].doubt

    def unreturned(self, actor: Actor, name: str) -> bool:
        """Whether a thread may have the name, or be passed it, by what it was told of its tries."""
        return bool(self._tries[actor, name].left)

    def seen(self, actor: Actor, name: str) -> int:
        """The highest fence of a name that a thread was told, in whatever answer."""
        return self._seen.get((actor, name), 0)

    def told(self, actor: Actor, query: Any, answer: Answer | BaseException) -> None:
        """A thread has an answer, or hears that it gets none."""
        kind = kind_of(query)
        self._note_left(actor, kind, query, answer)
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
                rows = [row for row in answer[0] if text(row[0]) == name]
                self._look(actor, name, rows)
                if kind == "look":  # who looks so does not stand in the queue any more
                    held = [row for row in rows if (row[6] or 0) > 0]
                    left = self._tries[actor, name].left
                    left -= {one for one in left if not any(_among(row, {one}) for row in held)}
        elif kind == "look_at_slots":
            rows = [row[1:] for row in answer[0] if row[1] is not None]
            for row in rows:
                self._note(actor, text(row[0]), row[1])
            self._settle(actor, query.command.name, rows)

    def _note_left(
        self, actor: Actor, kind: str, query: Any, answer: Answer | BaseException
    ) -> None:
        answered = None if isinstance(answer, BaseException) else answer
        if kind == "join":
            left = answered is not None or isinstance(answer, Lost)
            left = left and "calls" in self._ledger.store.has
        else:
            # A token that was granted before, and lost, may be refused now.
            left = kind in _TRIES and answered is not None and _grants(query, answered)
            left = left and query.command.token in self._ledger.grants
        if left:
            self._tries[actor, query.command.name].left.add(query.command.token)
        elif answered is not None and (kind in _ENDS or (kind == "leave" and answered[1])):
            for (who, _), tries in self._tries.items():
                if who is actor:
                    tries.left.discard(query.command.token)

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
        if any(_among(row, tries.tokens) for row in rows):
            tries.doubt = Doubt.FOUND
        elif tries.sessions <= 0:
            tries.doubt = Doubt.NONE


def _grants(query: Any, answer: Answer) -> bool:
    """Whether the answer to a try says that something is the thread's, or will be."""
    rows, matched = answer
    try:
        return query.read(Result(rows, matched)) is not None
    except StatementError:  # the reply says that a row was in use, so nothing was done
        return False


def _among(row: Sequence[Any], tokens: set[str]) -> bool:
    """Whether one of the tokens has the name, or is on the list of those who share it."""
    shared = row[7].split(" ") if isinstance(row[7], str) else []
    return not tokens.isdisjoint([row[2], *shared])
