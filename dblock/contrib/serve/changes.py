"""The changes between two looks at the locks, as events. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...lock_state import Leader, LockState, RunState
from .objects import described, leader_object, named_run


class ServerSentEvent(NamedTuple):
    """An event as it is sent. ``name`` is the lock's, None if the event is for every client."""

    kind: str
    name: str | None
    text: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The database's answers at one moment, by name.

    ``at`` is the moment by the event loop's clock. ``elections`` are the names whose leaders were
    asked for, and ``leaders`` has the leader of each name that has one.
    """

    at: float
    locks: Mapping[str, LockState]
    runs: Mapping[str, RunState]
    leaders: Mapping[str, Leader] = field(default_factory=dict)
    elections: frozenset[str] = frozenset()
    #: The JSON of locks, made for the first client and used again for the next.
    texts: dict[str, bytes] = field(default_factory=dict)

    def text(self, name: str) -> bytes:
        """Return the JSON of a lock."""
        text = self.texts.get(name)
        if text is None:
            text = self.texts[name] = compact(described(self.locks[name]))
        return text


def event(kind: str, name: str | None, told: Mapping[str, Any]) -> ServerSentEvent:
    """Return an event with its text. JSON has no line breaks of its own, so it is one line."""
    return ServerSentEvent(kind, name, b"event: %b\ndata: %b\n\n" % (kind.encode(), compact(told)))


def compact(told: Any) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(told, separators=(",", ":")).encode()


def events(old: Snapshot, new: Snapshot) -> Iterator[ServerSentEvent]:
    """Yield the events that lead a client from ``old`` to ``new``."""
    for name in sorted(old.locks.keys() | new.locks.keys()):
        for kind, state in _steps(old.locks.get(name), new.locks.get(name)):
            yield event(kind, name, described(state))
    for name, leader in new.leaders.items():
        if compact(leader.value) != compact(_value(old.leaders.get(name), leader.fence)):
            yield event("proclaimed", name, leader_object(name, leader))
    if old.runs is not new.runs:
        for name, run in new.runs.items():
            if run != old.runs.get(name):
                yield event("run", name, named_run(run))


def _value(leader: Leader | None, fence: int) -> Any:
    """Return the leader's value in this term. A term begins without a value."""
    return leader.value if leader is not None and leader.fence == fence else None


def _steps(old: LockState | None, new: LockState | None) -> Iterator[tuple[str, LockState]]:
    """Yield how a name came from one state to another: one hold ends, another begins."""
    if new is None:
        assert old is not None
        new = LockState(old.name, old.fence)
    before = old.fence if old is not None and old.held else None
    after = new.fence if new.held else None
    if before is not None and before != after:
        if after is None:
            yield "expired" if new.status == "expired" else "released", new
        else:
            yield "released", LockState(new.name, before)
    if after is not None and after != before:
        yield "granted", new
    elif before == after and (old is None or _known(old) != _known(new)):
        yield "changed", new


def _known(state: LockState) -> tuple[Any, ...]:
    """Return the parts of a state that stay the same while time passes and nothing happens."""
    return (
        state.status,
        state.fence,
        state.owner,
        state.acquired_at,
        state.expires_at,
        state.run,
        state.row_lock,
        state.readers,
        [(waiter.owner, waiter.strategy, waiter.since) for waiter in state.waiters],
    )
