"""What has changed between two looks at the locks, as events. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ...lock_state import Leader, LockState, RunState
from .objects import leader_object, lease_object, run_object


class Event(NamedTuple):
    """An event as it is sent. ``name`` is the lock's, None if the event is for every client."""

    kind: str
    name: str | None
    text: bytes


@dataclass(frozen=True, slots=True)
class Look:
    """What the database said at one moment, each by name.

    ``at`` is the moment by the event loop's clock. ``leaders`` has the names whose leaders somebody
    asks for.
    """

    at: float = 0.0
    locks: Mapping[str, LockState] = field(default_factory=dict)
    runs: Mapping[str, RunState] = field(default_factory=dict)
    leaders: Mapping[str, Leader] = field(default_factory=dict)


def event(kind: str, name: str | None, told: Mapping[str, Any]) -> Event:
    """Return an event with its text. JSON has no line breaks of its own, so it is one line."""
    return Event(kind, name, b"event: %b\ndata: %b\n\n" % (kind.encode(), compact(told)))


def compact(told: Any) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(told, separators=(",", ":")).encode()


def events(old: Look, new: Look) -> Iterator[Event]:
    """Yield what a client that knows ``old`` has to learn to know ``new``."""
    if old.locks is not new.locks:
        for name in sorted(old.locks.keys() | new.locks.keys()):
            for kind, state in _steps(old.locks.get(name), new.locks.get(name)):
                yield event(kind, name, lease_object(state))
    if old.leaders is not new.leaders:
        for name, leader in new.leaders.items():
            if leader.value != _value(old.leaders.get(name), leader.fence):
                yield event("proclaimed", name, leader_object(name, leader))
    if old.runs is not new.runs:
        for name, run in new.runs.items():
            if run != old.runs.get(name):
                yield event("run", name, run_object(run))


def _value(leader: Leader | None, fence: int) -> Any:
    """Return what a leader had proclaimed in this term. A term begins without a value."""
    return leader.value if leader is not None and leader.fence == fence else None


def _steps(old: LockState | None, new: LockState | None) -> Iterator[tuple[str, LockState]]:
    """Yield how a name came from one state to another: one hold ends, another begins."""
    if new is None:
        assert old is not None
        new = LockState(old.name, old.fence)
    was = old if old is not None and old.held else None
    if was is not None and not (new.held and new.fence == was.fence):
        if new.held:  # the next holder's
            yield "released", LockState(was.name, was.fence)
        else:
            yield ("expired" if new.status == "expired" else "released"), new
    elif was is None and new.held:
        pass
    elif old is None or _known(old) != _known(new):
        yield "changed", new
        return
    if new.held and (was is None or was.fence != new.fence):
        yield "granted", new


def _known(state: LockState) -> tuple[Any, ...]:
    """Return what of a state does not change by itself as time goes on."""
    waiters = tuple(replace_waited(state))
    return replace(state, remaining=None, waiters=()), state.status, waiters


def replace_waited(state: LockState) -> Iterator[tuple[Any, ...]]:
    for waiter in state.waiters:
        yield waiter.owner, waiter.strategy, waiter.since
